"""The whole road with real parts: HTTP over uvicorn, a broker, three bookies that sync to disk.

The clients are not ours: the standard library's, curl's habits by hand, httpx.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import pytest

from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.api.processes.broker_main import serving_broker
from fencelog.api.processes.standalone import StandaloneConfig, standalone
from fencelog.bookie.config import BookieConfig
from fencelog.ledgers.client import LedgerClient
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.record_batch import Message, decode_batch, encode_batch
from fencelog.ledgers.record_batch.frames import read_frames

T = TypeVar("T")
TOPIC = "/v1/topics/default/orders"
READ = f"{TOPIC}/partitions/0/messages"


async def blocking(call: Callable[[], T]) -> T:
    """Run a client that blocks, beside the service in this loop."""
    return await asyncio.get_running_loop().run_in_executor(None, call)


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[str]:
    async with standalone(StandaloneConfig(directory, "127.0.0.1:0")) as service:
        yield str(service.announcement["http"])


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
        yield http


async def values(http: httpx.AsyncClient, path: str = READ) -> list[bytes]:
    """All values of a partition, by way of record batches."""
    found: list[bytes] = []
    offset = 0
    while True:
        headers = {"accept": "application/vnd.fencelog.batch"}
        answer = await http.get(path, params={"from": offset}, headers=headers)
        assert answer.status_code == 200
        for frame in read_frames(answer.content):
            found += [message.value for message in decode_batch(frame.batch)]
        offset = int(answer.headers["next-offset"])
        if answer.headers["at-tail"] == "true":
            return found


async def test_what_is_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as url, client(url) as http:
        assert (await http.put(TOPIC)).status_code == 201
        posts = [http.post(f"{TOPIC}/messages", content=b"%d" % n) for n in range(50)]
        offsets = [(await post).json()["offset"] for post in posts]
        assert offsets == list(range(50))
        body = b"\r\n".join([b"", b"\xff", b"long" * 100_000])
        headers = {"content-type": "text/plain"}
        answer = await http.post(f"{TOPIC}/messages:batch", content=body, headers=headers)
        assert answer.json()["appended"] == [{"partition": 0, "offset": 50, "count": 3}]
        written = await values(http)
    assert written == [b"%d" % n for n in range(50)] + [b"\r", b"\xff\r", b"long" * 100_000]
    async with running(tmp_path) as url, client(url) as http:
        assert await values(http) == written
        more = await http.post(f"{TOPIC}/messages", content=b"after")
        assert more.json()["offset"] == len(written)


async def test_concurrent_appends_get_dense_offsets(tmp_path: Path) -> None:
    async with running(tmp_path) as url, client(url) as http:
        await http.put(TOPIC)

        async def append(n: int) -> int:
            answer = await http.post(f"{TOPIC}/messages", content=b"%d" % n)
            return int(answer.json()["offset"])

        offsets = await asyncio.gather(*(append(n) for n in range(200)))
        assert sorted(offsets) == list(range(200))
        stored = await values(http)
        assert [stored[offset] for offset in offsets] == [b"%d" % n for n in range(200)]


async def test_the_standard_librarys_client(tmp_path: Path) -> None:
    async with running(tmp_path) as url:
        address = urlsplit(url)

        lines = {"Content-Type": "application/x-ndjson"}

        def drive() -> list[tuple[int, Any]]:
            connection = http.client.HTTPConnection(str(address.hostname), address.port)
            seen = []
            for method, path, body, headers in (
                ("PUT", TOPIC, None, {}),
                ("POST", f"{TOPIC}/messages", b"one", {"Fencelog-Key": "k"}),
                ("POST", f"{TOPIC}/messages:batch", b'{"text":"two"}\n', lines),
                ("POST", f"{TOPIC}/messages:batch", b'{"text":1}', lines),
                ("GET", READ, None, {}),
                ("DELETE", TOPIC, None, {}),
                ("GET", READ, None, {}),
            ):
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
                seen.append((answer.status, json.loads(content) if content else None))
            connection.close()
            return seen

        seen = await blocking(drive)
    assert [status for status, _ in seen] == [201, 201, 201, 400, 200, 204, 404]
    assert [m["text"] for m in seen[4][1]["messages"]] == ["one", "two"]
    assert seen[4][1]["messages"][0]["key"] == "k"
    assert seen[3][1]["line"] == 1
    assert seen[6][1]["code"] == "topic_not_found"


async def test_requests_in_a_pipeline_and_garbage_on_the_wire(tmp_path: Path) -> None:
    async with running(tmp_path) as url, client(url) as http:
        await http.put(TOPIC)
        address = urlsplit(url)

        line = f"POST {TOPIC}/messages HTTP/1.1"
        post = f"{line}\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n".encode()

        def talk(request: bytes, answers: int) -> bytes:
            """Send bytes; return what came when it has that many answers or has ended."""
            with socket.create_connection((str(address.hostname), address.port or 0)) as sock:
                sock.sendall(request)
                received = b""
                while received.count(b"HTTP/1.1 ") < answers and (part := sock.recv(65536)):
                    received += part
                return received

        pipelined = await blocking(lambda: talk(post + b"a" + post + b"b", 2))
        assert pipelined.count(b"HTTP/1.1 201") == 2
        refusal = await blocking(lambda: talk(b"\x00\xff garbage\r\n\r\n", 1))
        assert refusal.startswith(b"HTTP/1.1 400")
        assert await values(http) == [b"a", b"b"]


async def test_an_event_stream_follows_appends(tmp_path: Path) -> None:
    async with running(tmp_path) as url, client(url) as http:
        await http.put(TOPIC)
        headers = {"accept": "text/event-stream"}
        path = f"{READ}?from=earliest&limit=3"
        async with http.stream("GET", path, headers=headers) as answer:
            for value in (b"a", b"b", b"c"):
                await http.post(f"{TOPIC}/messages", content=value)
            lines = [line async for line in answer.aiter_lines()]
    ids = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
    assert ids == ["0", "1", "2"]


class TestTwoBrokers:
    """One metadata tree, two sessions, three bookies over TCP."""

    @pytest.fixture
    async def brokers(self, tmp_path: Path, host: Host) -> AsyncIterator[tuple[str, Any]]:
        """The URL of a broker that lasts, and the way to start another one."""
        tree = MemoryCluster()
        async with contextlib.AsyncExitStack() as stack:

            async def session() -> MemoryMetadataStore:
                store = MemoryMetadataStore(tree)
                await store.start()
                stack.push_async_callback(store.close)
                return store

            storage = await session()
            await create_instance(storage, host)
            for number in range(3):
                config = BookieConfig(data_dir=tmp_path / str(number))
                bookie = serving_bookie(storage, config, host=host, listen="127.0.0.1:0")
                await stack.enter_async_context(bookie)

            async def broker() -> contextlib.AbstractAsyncContextManager[str]:
                return serving_broker(await session(), {}, host=host, http="127.0.0.1:0")

            url = await stack.enter_async_context(await broker())
            yield url, broker

    async def test_any_broker_answers_and_a_closed_owner_is_followed(self, brokers: Any) -> None:
        lasting, broker = brokers
        async with client(lasting) as here:
            await here.put(TOPIC, json={"partitions": 2})
            async with await broker() as url, client(url) as there:
                first = await there.post(f"{TOPIC}/messages?partition=0", content=b"0")
                assert first.status_code == 201
                owners = (await here.get(f"{TOPIC}/owners")).json()["owners"]
                assert [(o["partition"], o["url"]) for o in owners] == [(0, url)]
                forwarded = await here.post(f"{TOPIC}/messages?partition=0", content=b"1")
                assert forwarded.json()["offset"] == 1
                batch = encode_batch([Message(b"2", b"k"), Message(b"3")])
                headers = {"content-type": "application/vnd.fencelog.batch"}
                answer = await here.post(
                    f"{TOPIC}/messages:batch?partition=0", content=batch, headers=headers
                )
                assert answer.json()["appended"] == [{"partition": 0, "offset": 2, "count": 2}]
                assert await values(here) == [b"0", b"1", b"2", b"3"]
                assert (await here.get(f"{READ}/2")).headers["fencelog-key"] == "k"
            taken = await here.post(f"{TOPIC}/messages?partition=0", content=b"4")
            assert (taken.status_code, taken.json()["offset"]) == (201, 4)
            assert await values(here) == [b"0", b"1", b"2", b"3", b"4"]

    async def test_a_broker_has_warmed_up_before_others_know_it(
        self, brokers: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They may give it partitions at once."""
        lasting, broker = brokers
        known: list[int] = []
        warm_up = LedgerClient.warm_up

        async def observed(ledgers: LedgerClient) -> None:
            await warm_up(ledgers)
            async with client(lasting) as here:
                known.append(len((await here.get("/v1/brokers")).json()["brokers"]))

        monkeypatch.setattr(LedgerClient, "warm_up", observed)
        async with await broker():
            assert known == [1]


@pytest.mark.parametrize(
    ("bookies", "quorums"), [(1, (1, 1, 1)), (2, (2, 2, 2)), (3, (3, 3, 2)), (4, (3, 3, 2))]
)
async def test_topics_fit_the_bookies_there_are(
    tmp_path: Path, bookies: int, quorums: tuple[int, int, int]
) -> None:
    config = StandaloneConfig(tmp_path, "127.0.0.1:0", bookies)
    async with standalone(config) as service, client(service.announcement["http"]) as http:
        made = (await http.put(TOPIC)).json()
        named = ("ensemble_size", "write_quorum", "ack_quorum")
        assert tuple(made[name] for name in named) == quorums
        assert (await http.post(f"{TOPIC}/messages", content=b"x")).status_code == 201
        explicit = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2}
        allowed = {"allow_missing_bookies": "true"}
        other = (await http.put(f"{TOPIC}-2", json=explicit, params=allowed)).json()
        assert explicit.items() <= other.items()
