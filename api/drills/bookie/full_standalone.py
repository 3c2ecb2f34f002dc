"""``fencelog drill full-standalone``: a service whose only disk is full keeps what it acknowledged,
starts again, and goes on by itself when something is deleted.

The disk is a tmpfs. Writers fill it until appends are refused; then the process is killed, a filler
takes the rest of the disk, and the service has to start on it. One of two topics is deleted: its
space has to come back, and with it the appends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import anyio
import httpx

from fencelog.api.client.client import FencelogClient
from fencelog.api.drills.harness.account import Attempt, account, message_value
from fencelog.api.drills.harness.directory import drill_directory
from fencelog.api.drills.harness.load import read_log
from fencelog.api.drills.harness.namespace import small_disk
from fencelog.api.drills.harness.report import DrillReport
from fencelog.api.local_cluster.child_process import ChildProcess
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB

KEPT, DELETED = "drill/kept", "drill/deleted"
WRITERS = 4
MESSAGE_BYTES = 32 * KIB
PAUSE_S = 0.1
FULL_S = 400.0
"""The time for the writers to fill the disk."""

BACK_S = 180.0
"""The time for a deletion to give its space back: garbage collection runs every half minute while a
disk is full."""


@dataclass(frozen=True, slots=True)
class FullStandaloneConfig:
    """The configuration of the drill. ``size_mib``: of the disk; ``keep`` the logs."""

    size_mib: int = 700
    keep: bool = False


@dataclass(slots=True)
class _Writers:
    """The writers' attempts at the kept topic, and the codes with which appends were refused."""

    attempts: list[Attempt] = field(default_factory=list)
    refusals: set[ErrorCode] = field(default_factory=set)
    sequences: list[count[int]] = field(default_factory=lambda: [count() for _ in range(WRITERS)])

    async def fill(self, client: FencelogClient, writer: int) -> None:
        """Append to both topics in turn until an append is refused for want of space."""
        for sequence in self.sequences[writer]:
            value = message_value(writer, sequence, size=MESSAGE_BYTES)
            if not await self.append(client, KEPT, writer, sequence, value):
                return
            if not await self.append(client, DELETED, writer, sequence, value):
                return

    async def append(
        self, client: FencelogClient, topic: str, writer: int, sequence: int, value: bytes
    ) -> bool:
        """Append one message; return False if there is no space for it."""
        try:
            appended = await client.append(topic, value)
        except FencelogError as error:
            if error.code.effects is Effects.NONE:
                self.refusals.add(error.code)
                await anyio.sleep(PAUSE_S)
                return error.code is not ErrorCode.OUT_OF_SPACE
            offset = None
        else:
            offset = appended.offset
        if topic == KEPT:
            self.attempts.append(Attempt(writer, sequence, 1, offset))
        return True


async def full_standalone_drill(config: FullStandaloneConfig) -> DrillReport:
    """Run the drill; the process has to be in a mount namespace of its own. Raises FencelogError
    when it cannot be run."""
    with drill_directory(keep=config.keep) as directory:
        disk = directory / "small-disk"
        with small_disk(disk, config.size_mib):
            report = DrillReport("full-standalone")
            writers = _Writers()
            log: Sequence[bytes] = ()
            process = await _start(directory, disk)
            try:
                log = await _fill(process, writers, report)
                await process.kill()
                taken = await anyio.to_thread.run_sync(_take_rest, disk)
                report.notes.append(f"a filler took the last {taken:,} bytes of the disk")
                process = await _start(directory, disk)
                report.interrupted(await _make_space(process, writers))
                log = await _values(process)
            except TimeoutError:
                report.expect(False, "the service took too long")
            finally:
                await process.stop()
            report.account = account(writers.attempts, log)
            report.notes.append(f"refusals: {', '.join(sorted(c.slug for c in writers.refusals))}")
    return report


async def _start(directory: Path, disk: Path) -> ChildProcess:
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(disk / "data")]
    return await ChildProcess.start("standalone", command, log=directory / "standalone.log")


def _client(process: ChildProcess) -> FencelogClient:
    return FencelogClient(process.announcement["http"])


async def _fill(process: ChildProcess, writers: _Writers, report: DrillReport) -> Sequence[bytes]:
    """Fill the disk; return what the kept topic holds, read while the disk is full."""
    async with _client(process) as client:
        for topic in (KEPT, DELETED):
            await client.create_topic(topic)
        with anyio.fail_after(FULL_S):
            # Garbage collection and trimmed journal files may give space back once or twice.
            while not writers.refusals or await _is_ready(process):
                async with anyio.create_task_group() as group:
                    for writer in range(WRITERS):
                        group.start_soon(writers.fill, client, writer)
        report.expect(process.is_running, "the process ended when its disk was full")
    log = await _values(process)
    report.expect(
        account(writers.attempts, log).is_clean, "not all could be read while it was full"
    )
    return log


def _take_rest(disk: Path) -> int:
    """Write a file until the disk is full; return its size."""
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (1024 * KIB, 4 * KIB):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
        return file.tell()


async def _make_space(process: ChildProcess, writers: _Writers) -> float:
    """Delete a topic, and append to the other one as soon as it is possible; return after how many
    milliseconds it was."""
    begin_s = anyio.current_time()
    async with _client(process) as client:
        with anyio.fail_after(BACK_S):
            await client.delete_topic(DELETED)
            while not await _is_ready(process):  # noqa: ASYNC110 - the state of another process
                await anyio.sleep(PAUSE_S)
            value = message_value(WRITERS, 0, size=MESSAGE_BYTES)
            while not await writers.append(client, KEPT, WRITERS, 0, value):
                pass
    return (anyio.current_time() - begin_s) * 1000


async def _values(process: ChildProcess) -> Sequence[bytes]:
    """Return every message of the kept topic, by offset."""
    return await read_log([process.announcement["http"]], KEPT, 0)


async def _is_ready(process: ChildProcess) -> bool:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        return (await http.get(f"{process.announcement['http']}/readyz")).is_success
