"""The append of a byte stream's lines to a topic: reading ahead, one appender per partition."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from fencelog.api.client import FencelogClient
from fencelog.api.client.retry import Pause
from fencelog.api.client.tasks import task_group
from fencelog.api.console import bytes_in
from fencelog.api.routing.partitioner import partition_of_key
from fencelog.api.streams.appender import PartitionAppender
from fencelog.api.streams.exactly_once_stream import ExactlyOnceStream
from fencelog.api.streams.line_batches import CHUNK_BYTES, MAX_LINES, LineBatch, LineBatcher
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError

Appender = PartitionAppender | ExactlyOnceStream


@dataclass(frozen=True, slots=True)
class AppendOptions:
    """The options of ``fencelog append``: see its help. ``topic`` is ``namespace/name``."""

    topic: str
    server: str
    key: str | None = None
    partition: int | None = None
    resume: bool = False
    producer_id: str | None = None
    producer_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """The result. ``appended`` in words; ``interrupted``: by SIGINT, before the end of the
    input. ``left_out``: the lines before others that are appended which are not, in words."""

    appended: str
    interrupted: bool
    left_out: str = ""


async def append_lines(
    options: AppendOptions, file: Path, *, on_progress: Callable[[int], None]
) -> Summary:
    """Append a file's lines (``-``: stdin's), and return what was appended.

    One partition keeps the order of the lines. Where batches go to all partitions in turn, each has
    one request in flight. SIGINT lets those end and begins no others: cancelling one makes its
    outcome unknown, as the next SIGINT does. A batch that waits because of the topic's rate is not
    appended then. ``on_progress`` is called with the bytes of each batch that is durable. Raises
    FencelogError, whose detail names the lines that may have been appended, and those that were
    left out before others, and OSError of a file that cannot be opened.
    """
    name = "stdin" if str(file) == "-" else str(file)
    async with contextlib.AsyncExitStack() as stack:
        source = stack.enter_context(_opened(file))
        client = await stack.enter_async_context(FencelogClient(options.server))
        pauses = _Pauses()
        appenders = await _appenders(client, options, pauses.take)
        batches = _batches(source, name, options.key)
        feed = _Feed(batches, appenders, on_progress, pauses, name)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, feed.interrupt)
        stack.callback(loop.remove_signal_handler, signal.SIGINT)
        await feed.run()
        if feed.error is not None:
            raise _where(feed.error, feed, name)
        return Summary(_in_words(appenders), feed.interrupted, _left_out(feed, name))


async def _appenders(
    client: FencelogClient, options: AppendOptions, pause: Pause
) -> Sequence[Appender]:
    count = (await client.topic(options.topic))["partitions"]
    if options.producer_id is not None:
        return [_exactly_once_stream(client, options, options.producer_id, count, pause)]
    # The partition is known at the first append already, in case that its answer is lost.
    partitions: list[int | None] = [
        _definite_partition(options, count) if options.resume else options.partition
    ]
    if options.partition is None and options.key is None:
        partitions = list(range(count))
    return [
        PartitionAppender(
            client,
            options.topic,
            partition=partition,
            key=options.key,
            resume=options.resume,
            pause=pause,
        )
        for partition in partitions
    ]


def _exactly_once_stream(
    client: FencelogClient,
    options: AppendOptions,
    producer_id: str,
    partitions: int,
    pause: Pause,
) -> ExactlyOnceStream:
    """Create the stream. Sequences count in one partition, so the partition must be definite."""
    partition = _definite_partition(options, partitions)
    if partition is None and partitions > 1:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"{options.topic} has {partitions} partitions: give --partition or --key with "
            "--producer-id",
        )
    return ExactlyOnceStream(
        client,
        options.topic,
        producer_id,
        partition=partition or 0,
        epoch=options.producer_epoch,
        key=options.key,
        pause=pause,
    )


def _definite_partition(options: AppendOptions, partitions: int) -> int | None:
    """Return the partition that the options name, by its number or by the key."""
    if options.partition is None and options.key is not None:
        return partition_of_key(options.key.encode(), partitions)
    return options.partition


class _Pauses:
    """The pauses that the topic's rate asks for, until they are ended: they may take hours, and
    nothing is in flight meanwhile."""

    def __init__(self) -> None:
        self._ended = anyio.Event()

    def end(self) -> None:
        self._ended.set()

    async def take(self, pause_s: float) -> bool:
        """Wait, and tell whether pauses are still taken."""
        with anyio.move_on_after(pause_s):
            await self._ended.wait()
        return not self._ended.is_set()


class _Feed:
    """A stream that deals batches out to the appenders. Once it is stopped no appender begins
    another batch; the one that it has in flight ends."""

    def __init__(
        self,
        batches: AsyncIterator[LineBatch],
        appenders: Sequence[Appender],
        on_progress: Callable[[int], None],
        pauses: _Pauses,
        name: str,
    ) -> None:
        self._name = name
        self._batches = batches
        self._appenders = appenders
        self._pauses = pauses
        self._on_progress = on_progress
        self._reading = anyio.CancelScope()
        self._in_flight: set[anyio.CancelScope] = set()
        self._stopped = False
        self.error: FencelogError | None = None
        self.interrupted = False
        self.unknown: list[LineBatch] = []
        self.refused: list[LineBatch] = []
        """The batches that were dealt out and are certainly not appended."""
        self.last_line = 0
        """The last line that is appended, or may be."""

    @property
    def acknowledged(self) -> int:
        return sum(appender.acknowledged for appender in self._appenders)

    async def run(self) -> None:
        read, waiting = anyio.create_memory_object_stream[LineBatch](max_buffer_size=1)
        async with task_group() as group, waiting:
            group.start_soon(self._read_ahead, read)
            for appender in self._appenders:
                group.start_soon(self._run_appender, appender, waiting.clone())

    def interrupt(self) -> None:
        """Let what is in flight end; cancel it at the second time."""
        if self.interrupted:
            for scope in self._in_flight:
                scope.cancel()
        self.interrupted = True
        self._stop()

    def _stop(self) -> None:
        self._stopped = True
        self._reading.cancel()
        self._pauses.end()

    async def _read_ahead(self, read: MemoryObjectSendStream[LineBatch]) -> None:
        with read, self._reading:
            try:
                async for batch in self._batches:
                    await read.send(batch)
            except FencelogError as error:
                self._fail(error)  # what was read before it is appended all the same
            except OSError as error:
                detail = f"{self._name} cannot be read further: {error.strerror}"
                self._fail(FencelogError(ErrorCode.BAD_REQUEST, detail))

    async def _run_appender(
        self, appender: Appender, waiting: MemoryObjectReceiveStream[LineBatch]
    ) -> None:
        with waiting:
            async for batch in waiting:
                if self._stopped:
                    self.refused.append(batch)
                else:
                    await self._append(appender, batch)

    async def _append(self, appender: Appender, batch: LineBatch) -> None:
        scope = anyio.CancelScope()
        self._in_flight.add(scope)
        try:
            with scope:
                await appender.append(batch.lines)
            if scope.cancelled_caught:
                raise FencelogError(ErrorCode.APPEND_UNKNOWN, "interrupted before its answer")
        except FencelogError as error:
            is_unknown = error.code.effects is Effects.MAYBE
            (self.unknown if is_unknown else self.refused).append(batch)
            if is_unknown:
                self.last_line = max(self.last_line, batch.last_line)
            if self._stopped and error.code is ErrorCode.RATE_LIMITED:
                return  # its pause was ended: it is not begun any more
            self._fail(error)
            self._stop()
        else:
            self.last_line = max(self.last_line, batch.last_line)
            self._on_progress(batch.size)
        finally:
            self._in_flight.discard(scope)

    def _fail(self, error: FencelogError) -> None:
        """Remember the first error, or the first of unknown outcome: it decides the exit code."""
        known = self.error is not None and self.error.code.effects is Effects.MAYBE
        if self.error is None or (error.code.effects is Effects.MAYBE and not known):
            self.error = error


async def _batches(source: BinaryIO, name: str, key: str | None) -> AsyncIterator[LineBatch]:
    # Every message carries its key, so a long one leaves space for fewer messages in a body.
    max_lines = MAX_LINES if not key else max(1, min(MAX_LINES, CHUNK_BYTES // len(key.encode())))
    batcher = LineBatcher(name, max_lines=max_lines)
    async for chunk in _chunks(source):
        for batch in batcher.feed(chunk):
            yield batch
    for batch in batcher.finish():
        yield batch


async def _chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """Yield chunks as they come, from a pipe or terminal without blocking the loop; a regular file
    does not block for long."""
    file = source.fileno()
    mode = os.fstat(file).st_mode
    may_block = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(file)
    while True:
        if may_block:
            await anyio.wait_readable(file)
        chunk = os.read(file, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield bytes_in()
    else:
        with file.open("rb", buffering=0) as source:
            yield source


def _where(error: FencelogError, feed: _Feed, name: str) -> FencelogError:
    detail = f"{error.detail}; {feed.acknowledged:,} messages are appended"
    for batch in feed.unknown:
        detail += f"; lines {batch.first_line}-{batch.last_line} of {name} may be or not"
    if left_out := _left_out(feed, name):
        detail += f"; {left_out}"
    return FencelogError(error.code, detail, **error.extra)


def _left_out(feed: _Feed, name: str) -> str:
    """Return which lines are not appended although later ones are, or may be: the batches of
    another partition went on. Empty if all are appended up to the last one."""
    gaps = sorted(
        (batch.first_line, batch.last_line)
        for batch in feed.refused
        if batch.first_line < feed.last_line
    )
    if not gaps:
        return ""
    lines = ", ".join(f"{first}-{last}" for first, last in gaps)
    return f"lines {lines} of {name} are not, nor is what follows line {feed.last_line}"


def _in_words(appenders: Sequence[Appender]) -> str:
    total = sum(appender.acknowledged for appender in appenders)
    parts = [
        f"partition {appender.partition} up to offset {appender.end - 1}"
        for appender in appenders
        if appender.end is not None and appender.acknowledged
    ]
    skipped = sum(
        appender.skipped for appender in appenders if isinstance(appender, ExactlyOnceStream)
    )
    if skipped:
        parts.append(f"{skipped:,} were there")
    return f"{total:,} messages" + (f" ({', '.join(parts)})" if parts else "")
