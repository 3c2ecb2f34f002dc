"""One request, from HTTP over a broker that does not own the partition to the bookies: its id is in
the log lines of each process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from tests.support.network.http_client import http_client

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

TOPIC = "/v1/topics/default/t"


def lines_of(data: Path, name: str) -> list[dict[str, Any]]:
    text = (data / "log" / f"{name}.log").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


async def lines_about(data: Path, name: str, request_id: str) -> list[dict[str, Any]]:
    """Return the lines of a process that name a request, once there are some."""
    for _ in range(200):
        if found := [x for x in lines_of(data, name) if x.get("request_id") == request_id]:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} has no line about {request_id}")


async def owner_of(client: httpx.AsyncClient, urls: list[str]) -> str:
    """Return the URL of the owner of the topic's partition, which an append has opened."""
    for _ in range(2):  # The second one goes the way of appends to a log that is open.
        answer = await client.post(f"{urls[0]}{TOPIC}/messages", content=b"x")
        assert answer.status_code == 201, answer.text
    return str(answer.headers.get("fencelog-owner", urls[0]))


async def append_elsewhere(client: httpx.AsyncClient, cluster: Cluster, way: str) -> str:
    """Append through a broker that is not the owner; return the owner's name."""
    owner = await owner_of(client, cluster.urls)
    (other,) = (url for url in cluster.urls if url != owner)
    headers = {"X-Request-Id": f"id-{way}", "Content-Type": "text/plain"}
    await client.post(f"{other}{TOPIC}/messages", content=b"x")  # It knows the owner now.
    answer = await client.post(f"{other}{TOPIC}/{way}", content=b"x", headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["fencelog-owner"] == owner
    assert answer.headers.get_list("x-request-id") == [f"id-{way}"]
    return cluster.broker_at(owner).name


async def test_a_request_is_followed_to_the_bookies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCELOG_LOG_FORMAT", "json")
    monkeypatch.setenv("FENCELOG_LOG_LEVEL", "info,broker.append=debug,bookie.server=debug")
    config = ClusterConfig(tmp_path, bookies=3, brokers=2, http_port=0, record_events=False)
    async with running_cluster(config) as cluster, http_client() as client:
        created = await client.put(f"{cluster.urls[0]}{TOPIC}")
        assert created.status_code == 201
        for way in ("messages", "messages:batch"):
            owner = await append_elsewhere(client, cluster, way)
            (line,) = await lines_about(tmp_path, owner, f"id-{way}")
            assert line["message"] == "1 messages are acknowledged"
            for bookie in ("bookie-1", "bookie-2", "bookie-3"):
                (stored,) = await lines_about(tmp_path, bookie, f"id-{way}")
                assert stored["level"] == "debug"
                assert stored["bookie_id"] == bookie
                assert stored["ledger_id"] == line["ledger_id"]
                assert stored["entry_id"] == line["entry_id"]
        # A problem of the owner: both brokers' logs know the request that the client asks about.
        other = next(each.name for each in cluster.brokers if each.name != owner)
        url = f"{cluster.url_of(cluster.brokers[int(other[-1]) - 1])}{TOPIC}/partitions/0/messages"
        answer = await client.get(url, params={"from": 99}, headers={"X-Request-Id": "late"})
        assert answer.json()["request_id"] == "late"
        (line,) = await lines_about(tmp_path, owner, "late")
        assert (line["level"], line["code"]) == ("info", "offset_beyond_tail")
