"""The output of a topic's messages to a byte stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from fencelog.api.client import FencelogClient, Page
from fencelog.api.client.reads import LOG
from fencelog.api.client.retry import retry_not_applied
from fencelog.api.client.tasks import task_group
from fencelog.broker.limits import MAX_READ_MESSAGES
from fencelog.ledgers.record_batch import open_batch

FOLLOW_WAIT_S = 30
"""The time of one long poll; proxies cut idle requests after about a minute."""

JSON_LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class ReadLinesOptions:
    """The options of ``fencelog read``: see its help. ``start``: earliest, latest or an offset;
    ``from_time_us``, if there is one, takes its place."""

    topic: str
    server: str
    partition: int | None = None
    start: str = "earliest"
    follow: bool = False
    limit: int | None = None
    as_json: bool = False
    from_time_us: int | None = None
    view: str = LOG


async def read_lines(options: ReadLinesOptions, out: BinaryIO) -> None:
    """Write messages, each as one line, until the tail (to follow: the end of a terminated topic)
    or the limit.

    All partitions are read one after the other, or to follow them, as messages come. Raises
    FencelogError (TOPIC_NOT_FOUND also if the topic was deleted and another has its name now), and
    BrokenPipeError when ``out`` is closed by its reader.
    """
    async with FencelogClient(options.server) as client:
        topic = await client.topic(options.topic)
        topic_id, partitions = topic["topic_id"], range(topic["partitions"])
        if options.partition is not None:
            partitions = range(options.partition, options.partition + 1)
        output = _Output(out, options.limit)
        if not options.follow:
            for partition in partitions:
                await _copy(client, options, topic_id, partition, output)
            return
        async with task_group() as group:

            async def follow(partition: int) -> None:
                await _copy(client, options, topic_id, partition, output)
                if output.is_full:
                    group.cancel_scope.cancel()

            for partition in partitions:
                group.start_soon(follow, partition)


class _Output:
    """Writes whole lines to a stream, up to a limit."""

    def __init__(self, out: BinaryIO, limit: int | None) -> None:
        self._out = out
        self._left = limit

    @property
    def is_full(self) -> bool:
        return self._left == 0

    @property
    def page_limit(self) -> int:
        """The number of messages worth requesting in one read."""
        return MAX_READ_MESSAGES if self._left is None else min(self._left, MAX_READ_MESSAGES)

    def write(self, lines: list[bytes]) -> None:
        if self._left is not None:
            lines = lines[: self._left]
            self._left -= len(lines)
        if lines:
            self._out.write(b"\n".join(lines) + b"\n")
            self._out.flush()


async def _copy(
    client: FencelogClient,
    options: ReadLinesOptions,
    topic_id: str,
    partition: int,
    output: _Output,
) -> None:
    """Write one partition to the output, page by page, all of the same topic: the offsets of
    another one of that name mean other messages."""
    read = _read_json if options.as_json else _read_values
    start: int | str = int(options.start) if options.start.isdigit() else options.start
    time_us = options.from_time_us
    while not output.is_full:
        lines, page = await retry_not_applied(
            partial(
                read,
                client,
                options.topic,
                partition,
                start,
                max_messages=output.page_limit,
                # A wait whose answer is lost is repeated, and "latest" would be later then.
                wait_s=FOLLOW_WAIT_S if options.follow and start != "latest" else 0,
                view=options.view,
                from_time_us=time_us,
                topic_id=topic_id,
            )
        )
        output.write(lines)
        if page.at_end or (page.at_tail and not options.follow):
            return
        start, time_us = page.next_offset, None


async def _read_values(
    client: FencelogClient, topic: str, partition: int, start: int | str, **limits: Any
) -> tuple[list[bytes], Page]:
    page = await client.read(topic, partition, start, **limits)
    lines: list[bytes] = []
    for frame in page.batches:
        lines += open_batch(frame.batch)[1].values()
    if page.batches:
        del lines[: max(0, page.start_offset - page.batches[0].base_offset)]
    return lines, page


async def _read_json(
    client: FencelogClient, topic: str, partition: int, start: int | str, **limits: Any
) -> tuple[list[bytes], Page]:
    page = await client.read_as(JSON_LINES, topic, partition, start, **limits)
    return page.body.splitlines(), page
