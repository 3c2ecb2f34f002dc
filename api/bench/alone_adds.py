"""The cost of adds that are alone in their ledger, in an embedded bookie.

With messages spread over many topics each add is a run of one entry in a ledger of its own, as
here. The cost is the CPU time of the whole process: event loop, journal and flush.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import anyio

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.server.local import LocalBookieClient
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import Run, build_run, run_of
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.limits import KIB
from fencelog.ledgers.rpc.bookie_port import BookieClient

LEDGERS = 1000
WINDOW = 64
"""The adds on their way: each of so many connections waits for one."""

PAYLOAD_BYTES = 1 * KIB


async def measure_alone_adds(directory: Path, adds: int) -> float:
    """Return the CPU microseconds of an add of 1 KiB. Raises FencelogError."""
    config = BookieConfig(data_dir=directory)
    bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
    try:
        client = LocalBookieClient(bookie)
        await _add_all(client, _runs(0, LEDGERS))
        runs = _runs(1, adds)
        before_s = _cpu_s()
        await _add_all(client, runs)
        return (_cpu_s() - before_s) / adds * 1e6
    finally:
        await bookie.close()


def _runs(first_entry_id: int, count: int) -> list[Run]:
    """Return runs of one entry, ledger after ledger."""
    payload = [bytes(PAYLOAD_BYTES)]
    runs: list[Run] = []
    for number in range(count):
        entry_id = first_entry_id + number // LEDGERS
        before = entry_id * PAYLOAD_BYTES
        ledger_id = 1 + number % LEDGERS
        run = build_run(ledger_id, entry_id, payload, lac=entry_id - 1, length_before=before)
        runs.append(run_of(run))
    return runs


async def _add_all(client: BookieClient, runs: Sequence[Run]) -> None:
    """Add runs, WINDOW of them at a time, and as many again as were answered in a turn of the
    loop."""
    waiting, on_way = iter(runs), 0
    answered = anyio.Event()
    errors: list[FencelogError] = []

    def on_replies(tokens: Sequence[Run], error: FencelogError | None) -> None:
        nonlocal on_way
        on_way -= len(tokens)
        answered.set()
        if error is not None:
            errors.append(error)

    while not errors:
        if part := list(islice(waiting, WINDOW - on_way)):
            on_way += len(part)
            client.add_many(part, part, incarnation=None, on_replies=on_replies)
        elif not on_way:
            return
        answered = anyio.Event()
        await answered.wait()
    raise errors[0]


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
