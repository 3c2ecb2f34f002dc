"""The demo: real files through a real cluster, and a broker killed in the middle.

Each file goes to its own topic through the command line, is read back through it and compared byte
for byte (up to one final newline, which lines do not carry). While the largest one is appended, the
broker that owns its topic gets SIGKILL. In the end Spark reads the same topics from the bookies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import anyio

from fencelog.api.bench.demo.files import (
    DemoFile,
    choose_files,
    count_lines,
    is_text,
    same_up_to_final_newline,
    too_long_line,
)
from fencelog.api.client import FencelogClient
from fencelog.api.console import EXIT_UNKNOWN
from fencelog.api.drills.harness.topic import owner_url
from fencelog.api.local_cluster.child_process import fencelog_command
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from rich.console import Console

PIECES = 40
"""The number of pieces in which the file that is appended during the kill is written to the
command's stdin."""

PIECE_DELAY_S = 0.05
"""The pause between two pieces, as a log grows; half of the pieces come before the kill."""


@dataclass(slots=True)
class FileOutcome:
    """The outcome of one file. ``spark_lines`` is None when Spark was not asked."""

    file: DemoFile
    lines: int
    append_s: float
    is_same: bool
    spark_lines: int | None = None

    @property
    def is_right(self) -> bool:
        return self.is_same and self.spark_lines in (None, self.lines)


MAX_WORD = 40
"""The number of characters of a word that are printed."""


async def run_demo(logs: Path | None, *, spark: bool) -> bool:
    """Run the demo, print what was done, and tell whether everything was right. Raises
    FencelogError."""
    from rich.console import Console

    console = Console(highlight=False)
    files, is_complete = _acceptable(console, choose_files(logs))
    data_dir = Path(tempfile.mkdtemp(prefix="fencelog-demo-"))
    try:
        console.print(f"starting a cluster for {len(files)} files …")
        async with running_cluster(ClusterConfig(data_dir, http_port=0)) as cluster:
            for process in cluster.processes:
                address = process.announcement.get("http") or process.announcement["address"]
                console.print(f"  {process.name} (pid {process.pid}) at {address}")
            demo = _Demo(cluster, data_dir, console)
            outcomes = [await demo.carry(file, kill_owner=file is files[0]) for file in files]
            words = await demo.count_with_spark(outcomes) if spark else []
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
    _print_outcomes(console, outcomes, words)
    return is_complete and all(outcome.is_right for outcome in outcomes)


def _acceptable(console: Console, files: list[DemoFile]) -> tuple[list[DemoFile], bool]:
    """Return the files whose lines fit into messages, largest first, and whether no text is left
    out.

    Binary files may have no lines at all, so one of them is not missed.
    """
    accepted, is_complete = [], True
    for file in sorted(files, key=lambda file: file.size, reverse=True):
        if (line := too_long_line(file.path)) is None:
            accepted.append(file)
            continue
        console.print(
            f"left out: {file.path}, line {line} is longer than the largest message, "
            f"{MAX_MESSAGE_BYTES:,} bytes",
            soft_wrap=True,
        )
        is_complete = is_complete and not is_text(file.path)
    if not accepted:
        raise FencelogError(ErrorCode.PAYLOAD_TOO_LARGE, "no file is left to append")
    return accepted, is_complete


class _Demo:
    def __init__(self, cluster: Cluster, data_dir: Path, console: Console) -> None:
        self._cluster = cluster
        self._data_dir = data_dir
        self._console = console

    async def carry(self, file: DemoFile, *, kill_owner: bool) -> FileOutcome:
        """Append a file, read it back, and compare."""
        await self._run("topic", "create", file.topic)
        begun = anyio.current_time()
        try:
            if kill_owner:
                await self._append_and_kill(file)
            else:
                await self._run("append", file.topic, str(file.path), "--resume")
        except FencelogError as error:
            raise FencelogError(error.code, f"{file.path}: {error.detail}") from error
        append_s = anyio.current_time() - begun
        back = self._data_dir / "read-back"
        await self._run("read", file.topic, "--partition", "0", stdout=back)
        is_same = same_up_to_final_newline(file.path, back)
        return FileOutcome(file, count_lines(file.path), append_s, is_same)

    async def _append_and_kill(self, file: DemoFile) -> None:
        """Feed a file to ``fencelog append`` piece by piece, and kill the owner half-way."""
        process = await self._start("append", file.topic, "--resume")
        if process.stdin is None:
            raise RuntimeError("the command was started without a pipe")
        piece = max(1, -(-file.size // PIECES))
        with contextlib.suppress(ConnectionError), file.path.open("rb") as source:
            for number in range(PIECES):
                if number == PIECES // 2:
                    await self._kill_owner(file.topic)
                if process.stdin.is_closing():
                    break  # the command has ended; its own words say why
                process.stdin.write(source.read(piece))
                await process.stdin.drain()
                await anyio.sleep(PIECE_DELAY_S)
        process.stdin.close()
        await _finished(process)

    async def _kill_owner(self, topic: str) -> None:
        async with FencelogClient(self._cluster.urls) as client:
            # A file may begin with one long line: the first broker asked owns the partition.
            await client.segments(topic, 0)
            owner = self._cluster.broker_at(await owner_url(client, topic, 0))
        await owner.kill()
        self._console.print(
            f"killed {owner.name} (pid {owner.pid}) in the middle of appending to {topic}"
        )

    async def count_with_spark(self, outcomes: Sequence[FileOutcome]) -> list[list[Any]]:
        """Fill in Spark's line counts, and return the ten most frequent words of the largest
        file."""
        self._console.print("asking Spark …")
        result, log = self._data_dir / "spark.json", self._data_dir / "spark.log"
        topics = [outcome.file.topic for outcome in outcomes]
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fencelog.spark_connector.demo",
                self._cluster.urls[0],
                str(result),
                *topics,
                stdout=output,
                stderr=output,
            )
            await _wait_or_end(process)
        if not result.exists():
            last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
            raise FencelogError(ErrorCode.INTERNAL, f"Spark failed: {' '.join(last)}")
        answer = json.loads(result.read_text())
        for outcome in outcomes:
            outcome.spark_lines = answer["lines"][outcome.file.topic]
        words: list[list[Any]] = answer["words"]
        return words

    async def _run(self, *command: str, stdout: Path | None = None) -> None:
        """Run ``fencelog COMMAND…`` against the cluster to its end. Raises FencelogError when it
        fails."""
        if stdout is None:
            await _finished(await self._start(*command))
            return
        with stdout.open("wb") as output:
            await _finished(await self._start(*command, stdout=output))

    async def _start(
        self, *command: str, stdout: BinaryIO | None = None
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *fencelog_command(*command, "--server", ",".join(self._cluster.urls)),
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout or asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )


async def _finished(process: asyncio.subprocess.Process) -> None:
    """Wait for a command. Raises FencelogError with the command's own message when it failed."""
    complaint = await process.stderr.read() if process.stderr else b""
    code = await _wait_or_end(process)
    if code:
        words = complaint.decode("utf-8", "replace").strip().removeprefix("fencelog: ")
        unknown = code == EXIT_UNKNOWN
        kind = ErrorCode.APPEND_UNKNOWN if unknown else ErrorCode.BAD_REQUEST
        raise FencelogError(kind, words or f"exit code {code}")


async def _wait_or_end(process: asyncio.subprocess.Process) -> int:
    """Wait for a process; the process does not outlive a cancellation."""
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise


def _print_outcomes(
    console: Console, outcomes: Sequence[FileOutcome], words: Sequence[Sequence[Any]]
) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("topic", "bytes", "lines", "append s", "read back", "Spark lines"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    for outcome in outcomes:
        table.add_row(
            outcome.file.topic,
            f"{outcome.file.size:,}",
            f"{outcome.lines:,}",
            f"{outcome.append_s:.2f}",
            "same" if outcome.is_same else "DIFFERENT",
            "-" if outcome.spark_lines is None else f"{outcome.spark_lines:,}",
        )
    console.print(table)
    if words:
        counted = ", ".join(f"{shorten_word(word)} {count:,}" for word, count in words)
        heading = f"most frequent words of {outcomes[0].file.topic}"
        console.print(f"{heading}: {counted}", soft_wrap=True)
    right = all(outcome.is_right for outcome in outcomes)
    console.print("every line came back as it was" if right else "SOMETHING IS NOT AS IT WAS")


def shorten_word(word: str) -> str:
    """Shorten a word so that it fits into a line: a file without spaces is one word."""
    return word if len(word) <= MAX_WORD else f"{word[: MAX_WORD - 1]}…"
