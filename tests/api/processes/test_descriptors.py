"""The limit of file descriptors is raised, and connections leave those that files need."""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fencelog.api.processes import descriptors
from fencelog.api.processes.bookie_main import BookieProcessConfig, bookie_process
from fencelog.api.processes.descriptors import (
    KEPT_FOR_PROCESS,
    KEPT_FOR_SHARD,
    ConnectionLimits,
    connection_limits,
)
from fencelog.api.server.limits import MAX_CONNECTIONS
from fencelog.bookie.config import BookieConfig
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.limits import BOOKIE_MAX_CONNECTIONS

SERVICE = """
import contextlib, json, resource
from fencelog.api.processes.lifecycle import Running, run_on_uvloop, run_service

resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))

@contextlib.asynccontextmanager
async def service():
    print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
    raise SystemExit
    yield

run_on_uvloop(run_service(service(), print_addresses=print))
"""


def limited(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    """Let this process seem to have a limit."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, soft))


def used(limits: ConnectionLimits, *, http: bool, shards: list[int]) -> int:
    """Return the descriptors that a process takes at most."""
    files = KEPT_FOR_PROCESS + KEPT_FOR_SHARD * sum(shards)
    return http * limits.http + len(shards) * limits.bookie + files


@pytest.mark.processes
@pytest.mark.parametrize(("soft", "hard"), [(256, 900), (900, 900)])
def test_a_service_has_the_descriptors_that_it_may_have(soft: int, hard: int) -> None:
    program = SERVICE.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(done.stdout) == [900, 900]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, resource.RLIM_INFINITY), (descriptors.ENOUGH, resource.RLIM_INFINITY)),
        ((200_000, resource.RLIM_INFINITY), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
        ((1024, 524_288), (524_288, 524_288)),
        ((4096, 4096), None),
    ],
)
def test_it_is_raised_where_that_helps(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: tuple[int, int] | None
) -> None:
    given: list[tuple[int, int]] = []

    def refused(which: int, limits: tuple[int, int]) -> None:
        given.append(limits)
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: before)
    monkeypatch.setattr(resource, "setrlimit", refused)
    descriptors.raise_descriptor_limit()
    assert given == ([] if after is None else [after])


@pytest.mark.parametrize("soft", [resource.RLIM_INFINITY, 65_536])
def test_documented_limits_hold_where_there_are_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, soft: int
) -> None:
    limited(monkeypatch, soft)
    limits = connection_limits([1, 1, 1], http=True)
    assert limits == ConnectionLimits(MAX_CONNECTIONS, BOOKIE_MAX_CONNECTIONS)
    assert not caplog.records


@pytest.mark.parametrize("soft", [2048, 4096, 20_000])
@pytest.mark.parametrize(
    ("http", "shards"), [(True, [1, 1, 1]), (True, []), (False, [1]), (False, [3])]
)
def test_connections_leave_what_files_need(
    monkeypatch: pytest.MonkeyPatch, soft: int, http: bool, shards: list[int]
) -> None:
    limited(monkeypatch, soft)
    limits = connection_limits(shards, http=http)
    assert used(limits, http=http, shards=shards) <= soft
    assert limits.http >= (soft // 16 if http else 1)
    assert limits.bookie >= (soft // 32 if shards else 1)


def test_a_limit_that_hardly_matters_is_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limited(monkeypatch, 20_000)
    assert MAX_CONNECTIONS // 2 < connection_limits([1, 1, 1], http=True).http < MAX_CONNECTIONS
    assert not caplog.records


def test_a_lower_limit_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limited(monkeypatch, 1024)
    limits = connection_limits([1, 1, 1], http=True)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert f"{limits.http} connections over HTTP" in text
    assert f"{limits.bookie} connections to each bookie" in text
    assert limits.http + 3 * limits.bookie <= 1024 // 4


async def test_a_bookie_process_keeps_to_its_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[int] = []
    make = BookieServer.__init__

    def noted(self: BookieServer, *args: object, max_connections: int = 0, **more: object) -> None:
        given.append(max_connections)
        make(self, *args, max_connections=max_connections, **more)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(BookieServer, "__init__", noted)
    limited(monkeypatch, 1024)
    config = BookieProcessConfig("memory:", BookieConfig(tmp_path / "b"), listen="127.0.0.1:0")
    async with bookie_process(config):
        assert given == [1024 - KEPT_FOR_PROCESS - KEPT_FOR_SHARD]
