"""The cost of single posts with compiled modules (``make compiled``), beside the pure form.

    python -m tests.bench.compiled_cost [NUMBER_OF_TOPICS …]

Two services run beside each other and take turns under the same load, 64 connections with 1 KiB
posts to topics taken at random: what else the machine does meanwhile meets both. The CPU time of a
post is that of the whole service, its three bookies included. Afterwards the topics of each have to
hold all that was acknowledged.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

from fencelog.api.bench.fanin import append_to_each, check_tails, create_topics, random_topics
from fencelog.api.bench.harness.load import RequestSource
from fencelog.api.bench.http import LoadedService, Measured, measure_load, standalone
from fencelog.api.processes.lifecycle import run_on_uvloop
from tests.support.house import ROOT

SITE = ROOT / "build" / "compiled"

POINTS = (10, 1_000)
CONNECTIONS = 64
TURNS = 4
SECONDS = 4.0


@asynccontextmanager
async def service_of(site: Path | None, directory: Path) -> AsyncIterator[LoadedService]:
    """Run a service with the compiled modules of a site; None: with none."""
    before = os.environ.pop("PYTHONPATH", None)
    if site is not None:
        os.environ["PYTHONPATH"] = str(site)
    try:
        async with standalone(directory) as service:
            (pid,) = service.pids
            maps = Path(f"/proc/{pid}/maps").read_text("utf-8")
            assert ("__mypyc." in maps) == (site is not None)
            yield service
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


async def measure(topics: int, directory: Path) -> dict[str, float]:
    """Return the medians of both forms, and the median of the turns' ratios."""
    found: dict[str, list[Measured]] = {"pure": [], "compiled": []}
    async with AsyncExitStack() as stack:
        services: dict[str, LoadedService] = {}
        sources: dict[str, list[RequestSource]] = {}
        names: dict[str, list[str]] = {}
        acknowledged: dict[str, int] = {}
        for name, site in (("pure", None), ("compiled", SITE)):
            service = await stack.enter_async_context(service_of(site, directory / name))
            topic_names = names[name] = await create_topics(service.url, topics)
            acknowledged[name] = await append_to_each(service.url, topic_names)
            services[name] = service
            sources[name] = [random_topics(service.url, topic_names, i) for i in range(CONNECTIONS)]
        for turn in range(TURNS):
            order = list(services)
            for name in order if turn % 2 == 0 else reversed(order):
                measured, posts = await measure_load(services[name], sources[name], SECONDS)
                found[name].append(measured)
                acknowledged[name] += posts
        for name, service in services.items():
            await check_tails(service.url, names[name], acknowledged[name])
    metrics: dict[str, float] = {"topics": topics}
    for name, turns in found.items():
        metrics[f"{name}_post_per_s"] = round(median(each.load.per_s for each in turns), 1)
        metrics[f"{name}_post_cpu_us"] = round(median(each.cpu_us for each in turns), 1)
    pairs = zip(found["pure"], found["compiled"], strict=True)
    ratios = [compiled.cpu_us / pure.cpu_us for pure, compiled in pairs]
    return {**metrics, "cpu_share": round(median(ratios), 3)}


async def measure_all(points: Sequence[int]) -> None:
    """Print a line for each number of topics."""
    for topics in points:
        with tempfile.TemporaryDirectory(dir=Path()) as directory:
            metrics = await measure(topics, Path(directory))
        sys.stdout.write(f"{json.dumps(metrics)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run_on_uvloop(measure_all([int(each) for each in sys.argv[1:]] or POINTS))
