"""One append, from HTTP over a broker that does not own the partition to three bookies: each
process exports its spans to a collector, and together they are one tree."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import pytest

from fencelog.api.local_cluster.cluster import ClusterConfig, running_cluster
from tests.api.processes.traces.collector import Collector, Received, collector
from tests.support.network.http_client import http_client

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

TOPIC = "/v1/topics/default/t"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT_SPAN = "b7ad6b7169203331"
UNSAMPLED = "1bf7651916cd43dd8448eb211c80319d"

EXPECTED = Counter(
    {
        ("fencelog-broker", "POST"): 2,
        ("fencelog-broker", "append queue"): 1,
        ("fencelog-broker", "ledger add"): 1,
        ("fencelog-broker", "reply"): 1,
        ("fencelog-bookie", "bookie add"): 3,
        ("fencelog-bookie", "journal queue"): 3,
        ("fencelog-bookie", "journal sync"): 3,
    }
)


async def spans_of(server: Collector) -> list[Received]:
    """Return the spans of the trace, once all of them have come."""
    for _ in range(300):
        found = [span for span in server.spans if span.trace_id == TRACE]
        if len(found) >= EXPECTED.total():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(Counter((span.service, span.name) for span in found))


async def post(client: httpx.AsyncClient, url: str, **headers: str) -> str:
    answer = await client.post(f"{url}{TOPIC}/messages", content=b"x", headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.headers.get("fencelog-owner", url))


async def test_an_append_is_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ClusterConfig(tmp_path, bookies=3, brokers=2, http_port=0, record_events=False)
    with collector() as server:
        monkeypatch.setenv("FENCELOG_TRACE_ENDPOINT", server.url)
        async with running_cluster(config) as cluster, http_client() as client:
            created = await client.put(f"{cluster.urls[0]}{TOPIC}")
            assert created.status_code == 201
            owner = await post(client, cluster.urls[0])
            (other,) = (url for url in cluster.urls if url != owner)
            await post(client, other)
            await post(client, other, traceparent=f"00-{UNSAMPLED}-{CLIENT_SPAN}-00")
            sampled = f"00-{TRACE}-{CLIENT_SPAN}-01"
            assert await post(client, other, traceparent=sampled) == owner
            spans = await spans_of(server)
        assert {span.trace_id for span in server.spans} == {TRACE}
    assert Counter((span.service, span.name) for span in spans) == EXPECTED
    check_tree(spans)


def check_tree(spans: list[Received]) -> None:
    """Check what is part of what, and that the stages follow one another. The processes share a
    clock."""
    by_id = {span.span_id: span for span in spans}
    parents = {
        span.span_id: "client" if span.parent_id == CLIENT_SPAN else by_id[span.parent_id].name
        for span in spans
    }
    assert Counter((parents[span.span_id], span.name) for span in spans) == Counter(
        {
            ("client", "POST"): 1,
            ("POST", "POST"): 1,
            ("POST", "append queue"): 1,
            ("POST", "ledger add"): 1,
            ("POST", "reply"): 1,
            ("ledger add", "bookie add"): 3,
            ("bookie add", "journal queue"): 3,
            ("bookie add", "journal sync"): 3,
        }
    )
    named = {span.name: span for span in spans}
    queue, ledger, reply = (named[name] for name in ("append queue", "ledger add", "reply"))
    assert queue.start_ns <= queue.end_ns == ledger.start_ns <= ledger.end_ns == reply.start_ns
    for add in (span for span in spans if span.name == "bookie add"):
        inner = {span.name: span for span in spans if span.parent_id == add.span_id}
        before, sync = inner["journal queue"], inner["journal sync"]
        assert ledger.start_ns <= add.start_ns == before.start_ns <= before.end_ns
        assert before.end_ns == sync.start_ns <= sync.end_ns == add.end_ns
        assert add.attributes["fencelog.ledger_id"] == ledger.attributes["fencelog.ledger_id"]
        assert add.attributes["fencelog.entry_id"] == ledger.attributes["fencelog.entry_id"]
    bookies = {span.attributes.get("fencelog.bookie_id") for span in spans}
    assert bookies - {None} == {"bookie-1", "bookie-2", "bookie-3"}
    assert not any(span.is_error for span in spans)
