"""``fencelog drill full-disk``: a bookie whose disk is full refuses adds until it has space.

Its disk is a tmpfs, most of it taken by a filler. Writers fill the rest until the bookie refuses
adds; they have to go on with another one, and it has to show all that it acknowledged. Then the
filler is deleted, and the bookie has to take adds again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from fencelog.api.client.tasks import task_group
from fencelog.api.drills.bookie.acks import OwnCopies
from fencelog.api.drills.bookie.bookie import (
    BOOKIES,
    BookieDrill,
    BookieReport,
    bookie_drill,
)
from fencelog.api.drills.bookie.load import BurstLoad, LedgerLoad
from fencelog.api.drills.harness.directory import drill_directory
from fencelog.api.drills.harness.namespace import small_disk
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.limits import MIB

VICTIM_NUMBER = BOOKIES + 1
VICTIM = f"bookie-{VICTIM_NUMBER}"
FILLER_PART = 0.87
LOAD = BurstLoad(entry_bytes=4096, burst=50, pause_s=0.02, exclude=("bookie-3", "bookie-4"))
"""The load. The victim is in every first ensemble, and two other bookies can replace it. The load
is slower than a disk: a bookie checks its free space periodically, and a small disk is full
soon."""

FULL_S = 120.0
"""The time for the load to fill the disk."""

WHILE_FULL_S = 2.0
BACK_S = 120.0
"""The time for a bookie to notice that it has space: it checks its disk periodically."""

CLEAR_REFUSALS = frozenset({ErrorCode.READ_ONLY, ErrorCode.OUT_OF_SPACE})


@dataclass(frozen=True, slots=True)
class FullDiskConfig:
    """The configuration of the drill. ``size_mib``: of the disk; ``keep`` the data and logs, but
    for those on the disk itself."""

    size_mib: int = 1024
    keep: bool = False


@dataclass(slots=True)
class _Seen:
    """The observations of the drill. ``full_after_s``, ``back_after_s``: None where it did not
    happen. ``acknowledged_while_full`` by the ledgers, ``own_while_full`` by the victim, ``again``
    by the victim at the end."""

    full_after_s: float | None = None
    acknowledged_while_full: int = 0
    own_while_full: OwnCopies = field(default_factory=OwnCopies)
    ended: bool = False
    back_after_s: float | None = None
    again: int = 0


async def full_disk_drill(config: FullDiskConfig) -> BookieReport:
    """Run the drill; the process has to be in a mount namespace of its own. Raises FencelogError
    when it cannot be run."""
    with drill_directory(keep=config.keep) as directory:
        disk = directory / "small-disk"
        with small_disk(disk, config.size_mib):
            filler = disk / "filler"
            _fill(filler, int(config.size_mib * FILLER_PART) * MIB)
            async with bookie_drill(directory) as drill:
                _put_on(disk, directory / VICTIM)
                victim = await drill.cluster.start_bookie(VICTIM_NUMBER, read_only_at=0.95)
                await drill.until(lambda: VICTIM in drill.bookies.available(), BACK_S)
                writers = drill.writers(LOAD)
                seen = await _fill_and_make_space(drill, victim, writers, filler.unlink)
                report = await drill.report("full-disk", writers, LOAD, _metrics(seen))
                _judge(report, drill.acks[VICTIM].refusals, seen)
    report.say_where(directory, kept=config.keep)
    return report


def _put_on(disk: Path, data_dir: Path) -> None:
    (disk / "data").mkdir()
    data_dir.symlink_to(disk / "data")


def _fill(filler: Path, size: int) -> None:
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


async def _fill_and_make_space(
    drill: BookieDrill,
    victim: ChildProcess,
    writers: Sequence[LedgerLoad],
    make_space: Callable[[], None],
) -> _Seen:
    seen = _Seen()
    acks = drill.acks[VICTIM]

    def refuses() -> bool:
        return bool(acks.refusals) or VICTIM not in drill.bookies.available()

    is_over = anyio.Event()
    async with task_group() as group:
        for writer in writers:
            group.start_soon(writer.run, is_over.is_set)
        seen.full_after_s = await drill.until(refuses, FULL_S)
        before = sum(writer.acknowledged for writer in writers)
        await anyio.sleep(WHILE_FULL_S)
        seen.acknowledged_while_full = sum(writer.acknowledged for writer in writers) - before
        is_over.set()
    seen.ended = not victim.is_running
    if not seen.ended:
        seen.own_while_full = await drill.own_copies(victim, LOAD)
    make_space()
    if seen.ended:
        await drill.restart(victim)
    seen.back_after_s = await drill.until(lambda: VICTIM in drill.bookies.available(), BACK_S)
    before = acks.acknowledged
    await _write_again(writers[0])
    seen.again = acks.acknowledged - before
    return seen


async def _write_again(writer: LedgerLoad) -> None:
    """Write some bursts to a new ledger."""
    goal = writer.acknowledged + 10 * LOAD.burst
    await writer.run(lambda: writer.acknowledged >= goal)


def _metrics(seen: _Seen) -> dict[str, float | None]:
    return {
        "full_after_s": seen.full_after_s,
        "acknowledged_while_full": seen.acknowledged_while_full,
        "own_copies_read_while_full": seen.own_while_full.read,
        "writable_after_s": seen.back_after_s,
        "acknowledged_again": seen.again,
    }


def _judge(report: BookieReport, refusals: Mapping[ErrorCode, int], seen: _Seen) -> None:
    """Check the expectations of the drill, besides that nothing was lost."""
    told = ", ".join(f"{code.slug} {count}" for code, count in refusals.items())
    report.notes.append(f"answers of {VICTIM} to adds, but for acknowledgements: {told or 'none'}")
    own = seen.own_while_full
    report.expect(seen.full_after_s is not None, "the bookie refused nothing: is its disk full?")
    report.expect(not seen.ended, "the bookie ended when its disk was full")
    report.expect(refusals.keys() <= CLEAR_REFUSALS, "the bookie answered with another error")
    report.expect(seen.acknowledged_while_full > 0, "nothing was acknowledged while it was full")
    served = own.read > 0 and own.is_clean and not own.unknown
    report.expect(served, "the bookie did not show everything while it was full")
    report.expect(seen.back_after_s is not None, "the bookie did not come back when it had space")
    report.expect(seen.again > 0, "the bookie took no adds when it had space again")
