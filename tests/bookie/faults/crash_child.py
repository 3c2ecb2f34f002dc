"""A bookie under load, to be killed: prints every promise it makes, one line each.

python crash_child.py DATA_DIR FIRST_LEDGER
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.host import SystemHost

ENTRIES = 20
WINDOW = 8


def run_of(ledger_id: int, first: int) -> bytes:
    payloads = [f"{ledger_id}/{first + i}|".encode().ljust(1000, b".") for i in range(ENTRIES)]
    return build_run(ledger_id, first, payloads, lac=first - 1, length_before=first * 1000)


def promise(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def load_ledger(bookie: Bookie, ledger_id: int) -> None:
    """Pipelined adds until the ledger has 100 runs, then a fence."""
    slots = asyncio.Semaphore(WINDOW)

    def answered(first: int, error: FencelogError | None) -> None:
        slots.release()
        if error is None:
            promise("added", ledger_id, first)

    for first in range(0, 100 * ENTRIES, ENTRIES):
        await slots.acquire()
        bookie.add(run_of(ledger_id, first), recovery=False, on_reply=partial(answered, first))
    await bookie.read_lac(ledger_id, fence=True)
    promise("fenced", ledger_id, 0)


async def main(data_dir: str, first_ledger: int) -> None:
    config = BookieConfig(Path(data_dir), write_cache_bytes=3_000_000)
    bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
    promise("ready", bookie.incarnation, 0)
    ledger_id = first_ledger
    while True:
        await asyncio.gather(*(load_ledger(bookie, ledger_id + i) for i in range(4)))
        ledger_id += 4


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
