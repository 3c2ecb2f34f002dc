"""The options for traces."""

from __future__ import annotations

import sys

import pytest

from fencelog.api.processes.traces.options import (
    TraceOptions,
    check_endpoint,
    process_spans,
    tracing,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.api.processes.traces.collector import collector
from tests.support.fencelog_cli import complaint, fencelog


@pytest.mark.parametrize(
    "given", ["http://127.0.0.1:4318", "https://c.example/otel/", "http://[::1]:1"]
)
def test_urls_of_collectors(given: str) -> None:
    assert check_endpoint(given) == given


@pytest.mark.parametrize(
    "given", ["", "127.0.0.1:4318", "grpc://c:4317", "http://", "http://c/?a=1"]
)
def test_others_are_refused(given: str) -> None:
    with pytest.raises(FencelogError) as caught:
        check_endpoint(given)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert repr(given) in caught.value.detail


def test_a_process_has_spans_within_the_context() -> None:
    with collector() as server:
        with tracing(TraceOptions(server.url, 0.25), "fencelog-test"):
            found = process_spans.get()
            assert found is not None
            assert found.ratio == 0.25
        assert process_spans.get() is None


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fencelog.api.processes.traces.exporter", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with (
        pytest.raises(FencelogError, match=r"pip install 'fencelog\[otel\]'"),
        tracing(TraceOptions("http://127.0.0.1:1"), "fencelog-test"),
    ):
        pass


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--trace-endpoint", "nowhere"), "'nowhere' is no URL like http://HOST:4318"),
        (("--trace-ratio", "2"), "--trace-ratio"),
    ],
)
def test_the_command_line_says_what_is_wrong(options: tuple[str, str], said: str) -> None:
    done = fencelog("standalone", *options)
    assert done.returncode == 2
    assert said in complaint(done)
