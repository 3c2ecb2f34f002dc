"""Sampling of requests, and the spans of a service in one process, by OpenTelemetry's own exporter
for tests."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.status import StatusCode

from fencelog.api.http.request_spans import RequestSpans
from fencelog.api.processes.standalone import StandaloneConfig, standalone
from fencelog.api.processes.traces.exporter import OtelSpans
from fencelog.api.processes.traces.options import process_spans
from fencelog.ledgers.host import SystemHost
from tests.support.network.http_client import http_client

TOPIC = "/v1/topics/default/t"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE}-b7ad6b7169203331-01"
UNSAMPLED = f"00-{TRACE}-b7ad6b7169203331-00"

APPEND = Counter(
    {
        "POST": 1,
        "append queue": 1,
        "ledger add": 1,
        "bookie add": 3,
        "journal queue": 3,
        "journal sync": 3,
        "reply": 1,
    }
)

OF_TRACES = {"request_spans", "spans", "followed", "followed_adds", "exporter", "options"}
"""The modules of spans, at the broker and at the bookies."""


class Chance(SystemHost):
    """A host whose next fraction is known."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def fraction(self) -> float:
        return self._fraction


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> OtelSpans:
    return OtelSpans(SimpleSpanProcessor(exporter), "fencelog-test", SystemHost())


@pytest.mark.parametrize(
    ("ratio", "chance", "given", "parent"),
    [
        (0.0, 0.0, None, None),
        (0.5, 0.4, None, ""),
        (0.5, 0.5, None, None),
        (1.0, 0.999, None, ""),
        (0.0, 0.0, SAMPLED, SAMPLED),
        (1.0, 0.0, UNSAMPLED, None),
        (0.0, 0.0, SAMPLED.upper(), None),
        (1.0, 0.0, "nonsense", ""),
        (1.0, 0.0, "\xff", ""),
        (0.0, 0.0, "nonsense", None),
        (0.0, 0.0, f"00-{'0' * 32}-b7ad6b7169203331-01", None),
    ],
)
def test_what_is_sampled(
    spans: OtelSpans, ratio: float, chance: float, given: str | None, parent: str | None
) -> None:
    sampling = RequestSpans(spans, Chance(chance), ratio)
    assert sampling.sample(None if given is None else given.encode("latin-1")) == parent


@pytest.fixture
async def client(spans: OtelSpans, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service whose sampled requests have spans."""
    token = process_spans.set(RequestSpans(spans, SystemHost()))
    config = StandaloneConfig(tmp_path, "127.0.0.1:0", record_events=False)
    async with standalone(config) as service:
        process_spans.reset(token)
        url = service.announcement["http"]
        async with http_client(url) as client:
            assert (await client.put(TOPIC)).status_code == 201
            assert (await client.post(f"{TOPIC}/messages", content=b"x")).status_code == 201
            yield client


def names(found: tuple[ReadableSpan, ...]) -> Counter[str]:
    return Counter(span.name for span in found)


@pytest.mark.parametrize("way", ["messages", "messages:batch"])
async def test_a_sampled_append_has_a_span_for_each_stage(
    client: httpx.AsyncClient, exporter: InMemorySpanExporter, way: str
) -> None:
    headers = {"traceparent": SAMPLED, "content-type": "text/plain", "x-request-id": "mine"}
    answer = await client.post(f"{TOPIC}/{way}", content=b"x", headers=headers)
    assert answer.status_code == 201
    await client.post(f"{TOPIC}/{way}", content=b"x", headers={"content-type": "text/plain"})
    for _ in range(100):  # The third bookie may answer after the client has its answer.
        found = exporter.get_finished_spans()
        if len(found) >= APPEND.total():
            break
        await asyncio.sleep(0.05)
    assert names(found) == APPEND
    assert {span.context.trace_id for span in found if span.context} == {int(TRACE, 16)}
    (request,) = (span for span in found if span.name == "POST")
    assert request.parent is not None
    assert request.parent.span_id == 0xB7AD6B7169203331
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 201
    assert request.attributes["url.path"] == f"{TOPIC}/{way}"
    assert request.attributes["fencelog.request_id"] == "mine"
    assert request.start_time is not None
    assert request.end_time is not None
    for span in found:
        assert span.start_time is not None
        assert span.end_time is not None
        if not span.name.startswith(("journal", "bookie")):
            assert request.start_time <= span.start_time <= span.end_time <= request.end_time


async def test_requests_that_are_not_sampled_have_none(
    client: httpx.AsyncClient, exporter: InMemorySpanExporter
) -> None:
    for headers in ({}, {"traceparent": UNSAMPLED}, {"x-request-id": "mine"}):
        assert (await client.post(f"{TOPIC}/messages", headers=headers)).status_code == 201
        await client.get(f"{TOPIC}/partitions/0/messages", headers=headers)
    assert exporter.get_finished_spans() == ()


async def test_each_of_equal_requests_may_be_sampled(
    spans: OtelSpans, exporter: InMemorySpanExporter, tmp_path: Path
) -> None:
    """A head that is known from before says nothing of that."""
    host = Chance(0.9)
    token = process_spans.set(RequestSpans(spans, host, 0.5))
    config = StandaloneConfig(tmp_path, "127.0.0.1:0", record_events=False)
    async with standalone(config) as service:
        process_spans.reset(token)
        async with http_client(service.announcement["http"]) as client:
            assert (await client.put(TOPIC)).status_code == 201
            for number in range(6):
                if number == 4:
                    host._fraction = 0.1
                answer = await client.post(f"{TOPIC}/messages", content=b"x")
                assert answer.status_code == 201
    assert names(exporter.get_finished_spans())["POST"] == 2


async def test_a_failure_is_an_error_of_its_span(
    client: httpx.AsyncClient, exporter: InMemorySpanExporter
) -> None:
    headers = {"traceparent": SAMPLED}
    assert (await client.get("/v1/topics/default/none", headers=headers)).status_code == 404
    for _ in range(2):
        await client.post(f"{TOPIC}:terminate", headers=headers)
    refused = await client.post(f"{TOPIC}/messages", content=b"x", headers=headers)
    assert refused.status_code == 409
    found = exporter.get_finished_spans()
    assert names(found) == Counter({"GET": 1, "POST": 3})
    assert {span.status.status_code for span in found} == {StatusCode.UNSET}


async def test_an_append_runs_nothing_of_the_traces_where_there_are_none(tmp_path: Path) -> None:
    """The cost of traces that are off: at each bookie, one look at the runs of a frame."""
    config = StandaloneConfig(tmp_path, "127.0.0.1:0", record_events=False)
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and (module := Path(code.co_filename).stem) in OF_TRACES:
            called.add((module, code.co_name))

    async with (
        standalone(config) as service,
        http_client(service.announcement["http"]) as client,
    ):
        assert (await client.put(TOPIC)).status_code == 201
        sys.setprofile(note)
        try:
            for headers in ({}, {"traceparent": SAMPLED}):
                answer = await client.post(f"{TOPIC}/messages", content=b"x", headers=headers)
                assert answer.status_code == 201
        finally:
            sys.setprofile(None)
    assert called == {("followed_adds", "followed")}
