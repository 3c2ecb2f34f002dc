"""A real Prometheus that scrapes a real cluster: the alert of each fault fires, and no other.

It is given the rules of ``k8s/monitoring`` with one change: ``for`` is two seconds everywhere, and
the window of an alert is as much shorter as its ``for``, so that what happens once, and is no alert
in minutes, is none in seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fencelog.api.local_cluster.child_process import fencelog_command
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from tests.processes.monitoring.prometheus import (
    DASHBOARDS,
    MONITORING,
    panels,
    program,
    variables,
)
from tests.support.network.http_client import http_client

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

OF_THE_MACHINE = {
    *("FencelogAppendsSlow", "FencelogBookieDiskFillsUp", "FencelogBookieDiskFull"),
    "FencelogJournalSlow",
}
"""The alerts that a slow or full machine raises by itself."""

FOR_S = 2

SEEN_S = 60.0
STEADY_S = 5.0
"""More than twice ``for``: what is wrong for that long has fired."""


class Prometheus:
    """A running server."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression."""
        answer = await self._client.post("/api/v1/query", data={"query": expression})
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    async def alerts(self, state: str) -> dict[str, dict[str, str]]:
        """Return the labels of the alerts in a state by name, without those of the machine."""
        found = (await self._client.get("/api/v1/alerts")).json()["data"]["alerts"]
        return {
            alert["labels"]["alertname"]: alert["labels"]
            for alert in found
            if alert["state"] == state and alert["labels"]["alertname"] not in OF_THE_MACHINE
        }

    async def loaded(self) -> set[str]:
        """Return the names of the rules that are loaded and evaluated without an error."""
        groups = (await self._client.get("/api/v1/rules")).json()["data"]["groups"]
        loaded = [rule for group in groups for rule in group["rules"]]
        assert not [rule for rule in loaded if rule.get("lastError")]
        return {rule["name"] for rule in loaded if rule["health"] == "ok"}


def free_address() -> str:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{chosen.getsockname()[1]}"


def configure(folder: Path, cluster: Cluster) -> set[str]:
    """Write the configuration; return the names of the rules."""
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text("utf-8"))
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    for rule in every:
        if "for" in rule:
            rule["expr"] = _WINDOW.sub(partial(_shortened, rule["for"]), rule["expr"])
            rule["for"] = f"{FOR_S}s"
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    config["global"]["scrape_timeout"] = "500ms"
    urls = {
        "broker": cluster.urls,
        "bookie": [bookie.announcement["health"] for bookie in cluster.bookies],
        "zookeeper": [],  # the classes of its provider are not among Spark's jars
    }
    for job in config["scrape_configs"]:
        (given,) = job["static_configs"]
        given["targets"] = [url.removeprefix("http://") for url in urls[job["job_name"]]]
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), "utf-8")
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return {rule.get("alert") or rule["record"] for rule in every}


_WINDOW = re.compile(r"\[(\d+[smhd])\]")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _shortened(held: str, window: re.Match[str]) -> str:
    """Return a window, as much shorter as ``for`` is, though long enough to hold some samples."""
    held_s, window_s = (int(each[:-1]) * _UNIT_S[each[-1]] for each in (held, window[1]))
    return f"[{max(window_s * FOR_S // held_s, FOR_S)}s]"


@contextlib.asynccontextmanager
async def prometheus(folder: Path) -> AsyncIterator[Prometheus]:
    """Run a server on a free port of loopback."""
    address = free_address()
    with (folder / "prometheus.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            stdout=output,
            stderr=output,
        )
    try:
        async with http_client(f"http://{address}") as client:

            async def is_ready() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    return (await client.get("/-/ready")).status_code == 200
                return False

            await until(is_ready)
            yield Prometheus(client)
    finally:
        process.terminate()
        await process.wait()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SEEN_S):
        while not await holds():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.2)


async def run(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(*fencelog_command(*words))
    assert await process.wait() == 0


async def use(url: str) -> None:
    """Append and read without end, through a subscription whose messages are not all
    acknowledged."""
    topic = f"{url}/v1/topics/shop/orders"
    async with http_client() as client:
        assert (await client.put(topic)).status_code == 201
        assert (await client.put(f"{topic}/subscriptions/billing")).status_code == 201
        while True:
            pull = {"consumer": "c", "max": 1}
            for answer in (
                await client.post(f"{topic}/messages", content=b"x" * 100),
                await client.post(f"{topic}/subscriptions/billing:pull", json=pull),
                await client.get(f"{topic}/partitions/0/messages", params={"limit": 1}),
            ):
                assert answer.is_success, answer.text
            await asyncio.sleep(0.1)


async def do_what_is_rare(url: str) -> None:
    """Do what a young cluster that is well does not do by itself, so that every panel has something
    to show: refuse a request, check all ledgers, balance copies."""
    async with http_client(url) as client:
        assert (await client.get("/v1/topics/shop/absent")).status_code == 404
        balance = {"balance_bytes_per_s": 1_000_000}
        (await client.patch("/v1/admin/autorecovery", json=balance)).raise_for_status()
        (await client.post("/v1/admin/checks", json={"checks": ["cluster"]})).raise_for_status()


async def only_fires(server: Prometheus, expected: dict[str, dict[str, str]]) -> None:
    """Wait until these alerts fire, with these labels, and see that no others do."""

    async def are_firing() -> bool:
        return (await server.alerts("firing")).keys() >= expected.keys()

    await until(are_firing)
    await asyncio.sleep(STEADY_S)
    firing = await server.alerts("firing")
    assert firing.keys() == expected.keys()
    for name, labels in expected.items():
        assert labels.items() <= firing[name].items()


@pytest.mark.thorough
async def test_a_fault_raises_its_alert(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    config = ClusterConfig(
        tmp_path / "cluster",
        bookies=4,
        brokers=1,
        http_port=0,
        session_ms=4000,
        autorecovery=("--look-ms", "500"),
        health=True,
    )
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(config))
        names = configure(folder, cluster)
        await do_what_is_rare(cluster.urls[0])
        using = asyncio.create_task(use(cluster.urls[0]))
        stack.callback(using.cancel)
        server = await stack.enter_async_context(prometheus(folder))

        async def is_well() -> bool:
            nothing = not await server.alerts("firing") and not await server.alerts("pending")
            return nothing and len(await server.query("up == 1")) == 5

        await until(is_well)
        await asyncio.sleep(STEADY_S)
        await only_fires(server, {})
        assert await server.loaded() == names
        assert not using.done(), using.result()
        await every_panel_shows_something(server)

        read_only = ("bookies", "read-only", "bookie-1")
        await run(*read_only, "on", "--metadata", cluster.metadata)
        await only_fires(server, {"FencelogBookieReadOnly": {"bookie": "bookie-1"}})
        await run(*read_only, "off", "--metadata", cluster.metadata)
        await until(is_well)

        killed = cluster.bookies[3]
        address = killed.announcement["health"].removeprefix("http://")
        await killed.kill()
        await only_fires(server, {"FencelogBookieDown": {"instance": address}})
        assert not using.done(), using.result()


async def every_panel_shows_something(server: Prometheus) -> None:
    """Ask what every panel and every variable asks, until each has an answer; none is refused."""
    empty: set[str] = set()

    async def none_is_empty() -> bool:
        nonlocal empty
        asked = {query for path in DASHBOARDS for query in queries_of(path)}
        empty = {query for query in asked if not await server.query(query)}
        return not empty

    try:
        await until(none_is_empty)
    except TimeoutError:
        pytest.fail(f"nothing is shown for {sorted(empty)}")


def queries_of(path: Path) -> Iterator[str]:
    """Yield the queries of a dashboard, with all of what can be chosen in it."""
    yield from map(of_all, variables(path))
    for panel in panels(path):
        for target in panel["targets"]:
            yield of_all(target["expr"].replace("$__rate_interval", "1m"))


def of_all(expression: str) -> str:
    """Return an expression with all values of each variable."""
    for variable in ("namespace", "topic", "subscription", "bookie"):
        expression = expression.replace(f'"${variable}"', '".*"')
    assert "$" not in expression
    return expression
