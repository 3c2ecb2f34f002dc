"""The half that FastAPI answers: loaded once, while the other half serves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pydantic
import pytest

from fencelog.api.server.administration import Administration
from fencelog.ledgers.limits import MAX_ADMIN_BYTES
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over
from tests.support.network.http_client import http_client

NEEDED_LATER = {"fastapi", "starlette", "pydantic"}
"""What the administration alone needs, which takes as long to import as all the rest."""
NEEDED_NEVER = {
    *("httpx", "rich", "pytest", "hypothesis", "jinja2", "prometheus_client", "pyspark", "pyarrow"),
    "yaml",
}
"""What commands and tests need, and no process that serves."""


class HeldBuild:
    """A build that takes until it is let go, and notes who built."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.go_on = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self) -> Any:
        self.threads.append(threading.current_thread())
        self.go_on.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize("process", ["standalone", "broker_main", "bookie_main"])
def test_a_process_serves_before_it_has_loaded_what_administration_needs(process: str) -> None:
    script = f"import sys, fencelog.api.processes.{process}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (NEEDED_LATER | NEEDED_NEVER).isdisjoint(done.stdout.split())


async def test_it_is_built_once_in_a_thread_of_its_own() -> None:
    build = HeldBuild("framework")
    administration = Administration(build)
    asked = [asyncio.create_task(administration.framework()) for _ in range(3)]
    await asyncio.sleep(0)
    build.go_on.set()
    assert await asyncio.gather(*asked) == [build.result] * 3
    assert await administration.framework() == build.result
    (thread,) = build.threads
    assert thread is not threading.main_thread()


async def test_a_request_that_is_given_up_takes_it_from_no_other() -> None:
    build = HeldBuild("framework")
    administration = Administration(build)
    first, second = (asyncio.create_task(administration.framework()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    build.go_on.set()
    assert await second == build.result
    assert first.cancelled()


async def test_a_broken_installation_is_every_request_s_error() -> None:
    build = HeldBuild(ImportError("no fastapi"))
    build.go_on.set()
    administration = Administration(build)
    for _ in range(2):
        with pytest.raises(ImportError):
            await administration.framework()


async def test_the_first_request_builds_nothing(
    fake_broker: FakeBroker,
    fake_bookies: FakeBookies,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be the one by which another broker hands over its partitions."""
    app = app_over(fake_broker, fake_bookies)
    await app.administration.framework()
    built: list[object] = []
    init = pydantic.TypeAdapter.__init__

    def counted(adapter: Any, *args: Any, **options: Any) -> None:
        built.append(args)
        init(adapter, *args, **options)

    monkeypatch.setattr(pydantic.TypeAdapter, "__init__", counted)
    async with serve(app) as url, http_client(url) as http:
        assert (await http.get("/v1/topics")).status_code == 200
    assert built == []
    pydantic.TypeAdapter(int)
    assert len(built) == 1


async def test_appends_reads_and_health_do_not_wait_for_it(
    fake_broker: FakeBroker, fake_bookies: FakeBookies, serve: Serve
) -> None:
    app = app_over(fake_broker, fake_bookies)
    build = HeldBuild(await app.administration.framework())
    async with serve(app) as url, http_client(url) as http:
        await http.put("/v1/topics/ns/t")
        app.administration = Administration(build)
        topics = asyncio.create_task(http.get("/v1/topics"))
        try:
            for path in ("/healthz", "/readyz"):
                answer = await http.get(path)
                assert (answer.status_code, answer.text) == (200, '{"status":"ok"}\n')
            appended = await http.post("/v1/topics/ns/t/messages", content=b"x")
            assert appended.status_code == 201
            read = await http.get("/v1/topics/ns/t/partitions/0/messages?from=earliest")
            assert read.json()["messages"][0]["text"] == "x"
            assert not topics.done()
        finally:
            build.go_on.set()
        assert (await topics).status_code == 200


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_above_the_limit_is_refused_before_it_is_parsed(
    fake_broker: FakeBroker, fake_bookies: FakeBookies, serve: Serve, is_chunked: bool
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b" " * 40_000
        yield b" " * 40_000

    async with serve(app_over(fake_broker, fake_bookies)) as url, http_client(url) as http:
        body = parts() if is_chunked else b" " * 80_000
        refused = await http.put("/v1/topics/ns/t", content=body)
        assert (refused.status_code, refused.json()["code"]) == (413, "payload_too_large")
        assert refused.json()["limit"] == MAX_ADMIN_BYTES
        assert (await http.get("/v1/topics/ns/t")).status_code == 404
        whole = b'{"partitions": 2}'.ljust(MAX_ADMIN_BYTES)
        json = {"content-type": "application/json"}
        made = await http.put("/v1/topics/ns/t", content=whole, headers=json)
        assert made.status_code == 201
        assert (await http.get("/v1/topics/ns/t")).json()["partitions"] == 2
