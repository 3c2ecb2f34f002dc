"""``fencelog bench start``: from the start of a standalone service to what it does first."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from fencelog.api.bench.harness.load import encode_request
from fencelog.api.bench.http import (
    LoadedService,
    append_request,
    call,
    create_topic,
    single_posts,
    standalone,
)

Steps = dict[str, float]


async def measure_start(directory: Path, times: int) -> dict[str, float]:
    """Measure so many starts on a new directory, and as many on one that has a topic. Return the
    medians of the time up to each step, and of the CPU time that the service had used by then."""
    new, again = [], []
    for number in range(times):
        new.append(await _start(directory / str(number), is_new=True))
        again.append(await _start(directory / str(number), is_new=False))
    return _medians("new", new) | _medians("again", again)


async def _start(data: Path, *, is_new: bool) -> Steps:
    steps: Steps = {}
    begin_s = time.perf_counter()

    def done(step: str, service: LoadedService) -> None:
        steps[f"{step}_ms"] = (time.perf_counter() - begin_s) * 1e3
        steps[f"{step}_cpu_ms"] = service.cpu_s() * 1e3

    post = single_posts()
    async with standalone(data) as service:
        done("announced", service)
        await call(service.url, encode_request("GET", service.url, "/readyz"), 200)
        done("ready", service)
        if is_new:
            await create_topic(service.url, post.topic)
            done("topic", service)
        await call(service.url, append_request(service.url, post), 201)
        done("append", service)
        await call(service.url, encode_request("GET", service.url, "/v1/topics"), 200)
        done("list", service)
    return steps


def _medians(name: str, starts: list[Steps]) -> dict[str, float]:
    return {f"{name}_{step}": median(measured[step] for measured in starts) for step in starts[0]}
