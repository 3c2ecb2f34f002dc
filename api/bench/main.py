"""``fencelog bench``: metrics beside the machine's own limits, measured in the same run."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from fencelog.api.bench.harness.limits import Limits, measure_limits
from fencelog.api.bench.harness.scratch import scratch_directory, sigterm_as_interrupt
from fencelog.api.console import ChildOption, MetadataOption, is_number
from fencelog.api.processes.lifecycle import run_on_uvloop, run_service

T = TypeVar("T")

app = typer.Typer(
    help="Measure what this machine makes of it, beside the machine's own limits.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

MAX_LIMIT_S = 1.0
"""The longest time for each of the machine's limits; less when a metric gets less."""

BESIDE: Mapping[str, str] = {
    "adds_per_s": "fdatasync_per_s",
    "single_add_p50_ms": "fdatasync_p50_ms",
    "single_add_p99_ms": "fdatasync_p50_ms",
    "post_per_s": "fdatasync_per_s",
    "post_p50_ms": "fdatasync_p50_ms",
    "post_p99_ms": "fdatasync_p50_ms",
    "repeated_post_per_s": "fdatasync_per_s",
    "repeated_post_p99_ms": "fdatasync_p50_ms",
    "mb_per_s": "loopback_mb_per_s",
    "small_adds_per_s": "fdatasync_per_s",
    "large_adds_mb_per_s": "sequential_sync_mb_per_s",
    "entry_log_read_mb_per_s": "loopback_mb_per_s",
    "sink_mb_per_s": "new_page_mb_per_s",
    "segments_sink_mb_per_s": "new_page_mb_per_s",
    "small_copied_mb_per_s": "sequential_sync_mb_per_s",
    "large_copied_mb_per_s": "sequential_sync_mb_per_s",
    "striped_copied_mb_per_s": "sequential_sync_mb_per_s",
    "append_p99_healing_ms": "fdatasync_p50_ms",
}
"""The limit that each metric is best compared with."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Time for each figure.")]
Data = Annotated[
    Path, typer.Option(file_okay=False, help="Directory on the disk to measure; kept clean.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the data where it was written.")]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The output of ``--json``: plain numbers, units last in the names."""

    figures: dict[str, float]
    limits: dict[str, float]


@app.command("ledger")
def bench_ledger(
    as_json: Json = False, seconds: Seconds = 3.0, data: Data = Path(), keep: Keep = False
) -> None:
    """Durable 1 KiB adds over three bookie processes: pipelined, then one at a time."""
    from fencelog.api.bench.ledger import measure_ledger

    _bench("ledger", measure_ledger, seconds, data, keep=keep, as_json=as_json)


@app.command("bookie")
def bench_bookie(
    as_json: Json = False,
    seconds: Seconds = 3.0,
    data: Data = Path(),
    keep: Keep = False,
    journal_mib: Annotated[
        int, typer.Option(min=1, help="Journal to replay after kill -9.")
    ] = 1024,
    entries: Annotated[
        int, typer.Option(min=1, help="Small entries stored when memory is read.")
    ] = 10_000_000,
) -> None:
    """One bookie process: adds of 1 and 64 KiB, reads, restart after kill -9, memory."""
    from fencelog.api.bench.bookie import Sizes, measure_bookie

    measure = partial(measure_bookie, sizes=Sizes(journal_mib, entries))
    _bench("bookie", measure, seconds, data, keep=keep, as_json=as_json)


@app.command("bookie-process", hidden=True)
def bookie_process(
    metadata: MetadataOption,
    data: Annotated[Path, typer.Option()],
    write_cache_bytes: Annotated[int | None, typer.Option()] = None,
    flush_interval_ms: Annotated[int | None, typer.Option()] = None,
    child: ChildOption = False,
) -> None:
    """The bookie that ``bench bookie`` measures."""
    from fencelog.api.bench.bookie_process import bench_bookie_process
    from fencelog.bookie.config import BookieConfig

    config = BookieConfig(data)
    if write_cache_bytes is not None:
        config = replace(config, write_cache_bytes=write_cache_bytes)
    if flush_interval_ms is not None:
        config = replace(config, flush_interval_ms=flush_interval_ms)
    service = bench_bookie_process(metadata, config)
    run_on_uvloop(run_service(service, print_addresses=lambda running: None, child=child))


@app.command("http")
def bench_http(
    as_json: Json = False, seconds: Seconds = 3.0, data: Data = Path(), keep: Keep = False
) -> None:
    """Appends over HTTP to a standalone service: single posts, NDJSON and record batches."""
    from fencelog.api.bench.http import measure_http

    _bench("http", measure_http, seconds, data, keep=keep, as_json=as_json)


@app.command("fanin")
def bench_fanin(
    as_json: Json = False,
    seconds: Seconds = 3.0,
    topics: Annotated[str, typer.Option(help="Numbers of topics, comma-separated.")] = (
        "1,10,100,1000"
    ),
    connections: Annotated[int, typer.Option(min=1, help="Clients, one request each.")] = 64,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="A broker and three bookies in processes instead.")
    ] = False,
    data: Data = Path(),
    keep: Keep = False,
) -> None:
    """Single posts to a standalone service, each to a topic taken at random."""
    from fencelog.api.bench.fanin import measure_fanin

    numbers = _numbers(topics)
    measure = partial(measure_fanin, topics=numbers, connections=connections, cluster=cluster)
    _bench("fanin", measure, seconds, data, keep=keep, as_json=as_json)


@app.command("consume")
def bench_consume(
    as_json: Json = False, seconds: Seconds = 3.0, data: Data = Path(), keep: Keep = False
) -> None:
    """Messages pulled and acknowledged, one by one and a hundred at a time."""
    from fencelog.api.bench.consume import measure_consume

    _bench("consume", measure_consume, seconds, data, keep=keep, as_json=as_json)


@app.command("routes")
def bench_routes(
    as_json: Json = False, seconds: Seconds = 3.0, data: Data = Path(), keep: Keep = False
) -> None:
    """Posts and reads through a partition's owner and through another broker of a cluster."""
    from fencelog.api.bench.routes import measure_routes

    _bench("routes", measure_routes, seconds, data, keep=keep, as_json=as_json)


@app.command("traces")
def bench_traces(
    as_json: Json = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time of each turn.")] = 2.0,
    turns: Annotated[int, typer.Option(min=1, help="Turns of each service.")] = 5,
    data: Data = Path(),
    keep: Keep = False,
) -> None:
    """Posts to services without traces, and with ratios of 0, 1 % and all, in turn."""
    from fencelog.api.bench.traces import measure_traces

    measure = partial(measure_traces, turns=turns)
    _bench("traces", measure, seconds, data, keep=keep, as_json=as_json)


@app.command("read")
def bench_read(
    as_json: Json = False, seconds: Seconds = 3.0, data: Data = Path(), keep: Keep = False
) -> None:
    """Catch-up reads of record batches over HTTP, from the first message to the last."""
    from fencelog.api.bench.read import measure_read

    _bench("read", measure_read, seconds, data, keep=keep, as_json=as_json)


@app.command("start")
def bench_start(
    as_json: Json = False,
    times: Annotated[int, typer.Option(min=1, help="Starts of each kind.")] = 10,
    data: Data = Path(),
    keep: Keep = False,
) -> None:
    """Starts of a standalone service, up to the announcement, readiness and the first append."""
    from fencelog.api.bench.start import measure_start

    async def measure(directory: Path, _seconds: float) -> dict[str, float]:
        return await measure_start(directory, times)

    _bench("start", measure, MAX_LIMIT_S, data, keep=keep, as_json=as_json)


@app.command("recovery")
def bench_recovery(
    as_json: Json = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time of each load of appends.")] = 10.0,
    copied_mib: Annotated[
        int, typer.Option(min=1, help="Of each kind of ledger, on the lost bookie.")
    ] = 512,
    data: Data = Path(),
    keep: Keep = False,
) -> None:
    """Copies of a lost bookie made again in a cluster of processes, and appends meanwhile."""
    from fencelog.api.bench.recovery import measure_recovery

    measure = partial(measure_recovery, copied_mib=copied_mib)
    _bench("recovery", measure, seconds, data, keep=keep, as_json=as_json)


@app.command("audit")
def bench_audit(
    as_json: Json = False,
    ledgers: Annotated[int, typer.Option(min=1, help="Of three entries each.")] = 10_000,
    data: Data = Path(),
    keep: Keep = False,
) -> None:
    """The checks of the auditor, of many ledgers in a cluster of processes."""
    from fencelog.api.bench.audit import measure_audit

    measure = partial(measure_audit, ledgers=ledgers)
    _bench("audit", measure, MAX_LIMIT_S, data, keep=keep, as_json=as_json)


@app.command("spark")
def bench_spark(
    as_json: Json = False,
    messages: Annotated[
        int, typer.Option(min=1000, help="Of 100 B in the largest topic.")
    ] = 1_000_000,
    data: Data = Path(),
    keep: Keep = False,
) -> None:
    """Reads and writes from Spark on two cores, beside Parquet and the limits of Spark's pipe."""
    from fencelog.api.bench.spark import measure_spark

    measure = partial(measure_spark, messages=messages)
    _bench("spark", measure, MAX_LIMIT_S, data, keep=keep, as_json=as_json)


@app.command("topics")
def bench_topics(
    as_json: Json = False,
    topics: Annotated[int, typer.Option(min=1, help="Of one partition, one message each.")] = 1000,
    data: Data = Path(),
    keep: Keep = False,
) -> None:
    """Many topics at one broker: memory of each, and how fast another broker takes all over."""
    from fencelog.api.bench.topics import measure_topics

    measure = partial(measure_topics, topics=topics)
    _bench("topics", measure, MAX_LIMIT_S, data, keep=keep, as_json=as_json)


@app.command("soak")
def bench_soak(
    as_json: Json = False,
    seconds: Annotated[float, typer.Option(min=1.0, help="Time of the load.")] = 600.0,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds of each line.")] = 10.0,
    rate: Annotated[
        float | None, typer.Option(min=1.0, help="Messages a second; half the maximum if left out.")
    ] = None,
    connections: Annotated[int, typer.Option(min=1, help="Clients, one request each.")] = 64,
    data: Data = Path(),
    keep: Keep = False,
) -> None:
    """A steady load of single posts, with retention, compaction and garbage collection running."""
    from fencelog.api.bench.soak import SoakSizes, measure_soak

    sizes = SoakSizes(interval, connections, rate)
    measure = partial(measure_soak, sizes=sizes)
    report, limits = _measured("soak", measure, seconds, data, keep=keep)
    result = BenchResult(_rounded(report.metrics), _rounded(asdict(limits)))
    intervals = [_rounded(row) for row in report.rows()]
    if as_json:
        typer.echo(json.dumps(asdict(result) | {"intervals": intervals}))
    else:
        Console().print(render("soak", result))
        Console().print(render_intervals(intervals))


def _numbers(text: str) -> list[int]:
    """Return the numbers of a comma-separated list. Raises typer.BadParameter."""
    parts = text.split(",")
    if not all(is_number(part) and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"{text!r} is not a list such as 1,10,100", param_hint="--topics")
    return [int(part) for part in parts]


def _bench(
    name: str,
    measure: Callable[[Path, float], Coroutine[Any, Any, Any]],
    seconds: float,
    data: Path,
    *,
    keep: bool,
    as_json: bool,
) -> None:
    """Measure, and print the metrics beside the limits."""
    measured, limits = _measured(name, measure, seconds, data, keep=keep)
    metrics = measured if isinstance(measured, dict) else asdict(measured)
    result = BenchResult(_rounded(metrics), _rounded(asdict(limits)))
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        Console().print(render(name, result))


def _measured(
    name: str,
    measure: Callable[[Path, float], Coroutine[Any, Any, T]],
    seconds: float,
    data: Path,
    *,
    keep: bool,
) -> tuple[T, Limits]:
    """Measure the limits, then the metrics (they need a loop of their own)."""
    console = Console(stderr=True)
    with (
        sigterm_as_interrupt(),
        scratch_directory(data, keep=keep) as directory,
        console.status(f"bench {name}"),
    ):
        limits = measure_limits(directory, min(seconds, MAX_LIMIT_S))
        return run_on_uvloop(measure(directory, seconds)), limits


def render(name: str, result: BenchResult) -> Table:
    """Return a table of the metrics, each beside the limit that it is compared with, then the
    limits themselves."""
    table = Table(title=f"fencelog bench {name}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("beside the machine", justify="right")
    for figure, value in result.figures.items():
        limit = BESIDE.get(figure)
        table.add_row(figure, _number(value), _ratio(value, limit, result.limits) if limit else "")
    table.add_section()
    for limit, value in result.limits.items():
        table.add_row(limit, _number(value), "", style="dim")
    return table


def render_intervals(intervals: Sequence[Mapping[str, float]]) -> Table:
    """Return a table with a line for each interval of a run."""
    table = Table()
    for name in intervals[0]:
        table.add_column(name, justify="right")
    for interval in intervals:
        table.add_row(*map(_number, interval.values()))
    return table


def _ratio(value: float, limit: str, limits: Mapping[str, float]) -> str:
    return f"{value / limits[limit]:.2f} x {limit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3f}"


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}
