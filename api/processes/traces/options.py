"""The options of a process for traces: ``--trace-endpoint`` and ``--trace-ratio``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from fencelog.api.http.request_spans import RequestSpans
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost

ENDPOINT_VARIABLE = "FENCELOG_TRACE_ENDPOINT"
RATIO_VARIABLE = "FENCELOG_TRACE_RATIO"


def _checked(given: str | None) -> str | None:
    try:
        return None if given is None else check_endpoint(given)
    except FencelogError as error:
        raise typer.BadParameter(error.detail) from None


TraceEndpointOption = Annotated[
    str | None,
    typer.Option(
        envvar=ENDPOINT_VARIABLE,
        metavar="URL",
        callback=_checked,
        help="Where traces go by OTLP over HTTP: http://HOST:4318. Needs fencelog[otel].",
    ),
]

TraceRatioOption = Annotated[
    float,
    typer.Option(
        envvar=RATIO_VARIABLE,
        min=0,
        max=1,
        help="The share of requests that are traced; those with a sampled traceparent all are.",
    ),
]

_OPTIONS = (
    Parameter(
        "trace_endpoint", Parameter.KEYWORD_ONLY, default=None, annotation=TraceEndpointOption
    ),
    Parameter("trace_ratio", Parameter.KEYWORD_ONLY, default=0.0, annotation=TraceRatioOption),
)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """``endpoint``: the URL of a collector; ``ratio``: of requests without a ``traceparent``."""

    endpoint: str
    ratio: float = 0.0


process_spans: ContextVar[RequestSpans | None] = ContextVar("process_spans", default=None)
"""The taker of the spans of this process, and the share of its requests that have any."""


def check_endpoint(given: str) -> str:
    """Return the URL of a collector. Raises FencelogError(BAD_REQUEST)."""
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"{given!r} is no URL like http://HOST:4318")
    return given


@contextmanager
def tracing(options: TraceOptions, service: str) -> Iterator[None]:
    """Export spans within the context; at its end, those that wait. Raises
    FencelogError(BAD_REQUEST) without the extra."""
    try:
        from fencelog.api.processes.traces.exporter import otlp_spans
    except ImportError as error:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"traces need the extra otel: pip install 'fencelog[otel]' ({error})",
        ) from error
    host = SystemHost()
    spans = otlp_spans(options.endpoint, service, host)
    token = process_spans.set(RequestSpans(spans, host, options.ratio))
    try:
        yield
    finally:
        process_spans.reset(token)
        spans.close()


def with_trace_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that runs a process, with the options for its traces. The processes that it
    starts have the same. It raises FencelogError as the command does, and as ``tracing``."""

    @wraps(command)
    def run(
        *arguments: Any, trace_endpoint: str | None, trace_ratio: float, **options: Any
    ) -> None:
        context = options.get("context")
        if trace_endpoint is None or (context is not None and context.invoked_subcommand):
            command(*arguments, **options)
            return
        os.environ |= {ENDPOINT_VARIABLE: trace_endpoint, RATIO_VARIABLE: str(trace_ratio)}
        service = f"fencelog-{command.__name__}"
        with tracing(TraceOptions(trace_endpoint, trace_ratio), service):
            command(*arguments, **options)

    given = signature(command, eval_str=True)
    parameters = [*given.parameters.values(), *_OPTIONS]
    run.__signature__ = given.replace(parameters=parameters)  # type: ignore[attr-defined]  # PEP 362
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
