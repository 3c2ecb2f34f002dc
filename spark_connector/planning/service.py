"""The requests to the service, once per query: topics, segments and offsets by time. Runs on
Spark's driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from fencelog.api.client import FencelogClient
from fencelog.api.client.reads import COMPACTED
from fencelog.api.client.retry import retry_idempotent
from fencelog.api.client.tasks import map_concurrently
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.bounds import TimeOffset, TimeOffsets, times_wanted
from fencelog.spark_connector.planning.filters import ALL_ROWS, RowFilter
from fencelog.spark_connector.planning.first_contact import servers_that_answer
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.segments import (
    DELETED,
    PartitionSegments,
    check_one_topic_each,
    parse_segments,
)

MAX_CONCURRENT_REQUESTS = 16
"""The partitions asked at the same time, without a connection for each of a thousand."""

ANSWER_S = 60.0
"""The time for which a service is asked again that answers: a takeover, or an owner that was
replaced, which notices that within 35 s and knows too little until then."""


@dataclass(frozen=True, slots=True)
class TopicRanges:
    """The answers of the service: every partition in order of topic and number, and the offsets of
    the times that the options and filters name."""

    partitions: list[PartitionSegments]
    times: TimeOffsets


async def reached(options: ReadOptions) -> ReadOptions:
    """Return the options with a server in front that answers. Raises NO_OWNER within seconds."""
    try:
        return replace(options, servers=await servers_that_answer(options.servers))
    except FencelogError as error:
        raise located(error, options) from error


async def fetch(options: ReadOptions, rows: RowFilter = ALL_ROWS) -> TopicRanges:
    """Ask for the segments of every partition of the wanted topics, also of those without wanted
    rows: what is wrong with the options is the same error whatever the filters of a query. They
    hold everything that was acknowledged before. Refused and unanswered requests are repeated.

    Raises FencelogError: TOPIC_NOT_FOUND (also for a pattern that matches none), NO_OWNER (also
    when no server can be reached), ….
    """
    async with FencelogClient(options.servers) as client:
        try:
            return await retry_idempotent(
                lambda: fetch_with(client, options, rows), timeout_s=ANSWER_S
            )
        except FencelogError as error:
            raise located(error, options) from error


async def fetch_with(
    client: FencelogClient, options: ReadOptions, rows: RowFilter = ALL_ROWS
) -> TopicRanges:
    """Ask as ``fetch`` does; errors do not name the service."""
    places = await partitions_of(client, options, confirmed=True)

    async def ask(place: tuple[str, int]) -> PartitionSegments:
        topic, partition = place
        try:
            answer = await client.segments(topic, partition, confirmed=True)
        except FencelogError as error:
            if error.code in DELETED:  # it was there just now
                raise FencelogError(ErrorCode.READ_UNKNOWN, error.detail) from error
            raise
        return parse_segments(topic, answer)

    async def ask_time(key: tuple[str, int, int]) -> TimeOffset:
        topic, partition, time_us = key
        if options.is_compacted:  # the view keeps messages that were trimmed from the log
            page = await client.read(
                topic, partition, 0, view=COMPACTED, from_time_us=time_us, max_messages=1
            )
            offset, tail = page.start_offset, page.tail_offset
        else:
            found = await client.partition_offsets(*key)
            offset, tail = int(found["offset"]), int(found["tail_offset"])
        if offset == tail < ends[topic, partition]:  # a broker that was replaced
            raise FencelogError(
                ErrorCode.READ_UNKNOWN,
                f"partition {partition} of {topic} has offsets up to {ends[topic, partition]}, the "
                f"broker that was asked for the offset of a time knows those up to {tail}",
            )
        return TimeOffset(offset, offset < tail)

    keys = [
        (*place, time_us)
        for place in places
        for time_us in times_wanted(options, *place) | rows.times_wanted(*place)
    ]
    answers = await map_concurrently(ask, places, limit=MAX_CONCURRENT_REQUESTS)
    check_one_topic_each(answers)
    ends = {(answer.topic, answer.partition): answer.end_offset for answer in answers}
    # Later than the ends: then what a time in the future excludes lies beyond them.
    offsets = await map_concurrently(ask_time, keys, limit=MAX_CONCURRENT_REQUESTS)
    return TopicRanges(answers, dict(zip(keys, offsets, strict=True)))


async def partitions_of(
    client: FencelogClient, options: ReadOptions, *, confirmed: bool = False
) -> list[tuple[str, int]]:
    """Return every partition of the wanted topics, in order. ``confirmed``: also those that a
    broker does not know yet, since its server of the metadata store lags behind."""
    if options.topics_pattern is None:
        ask = partial(client.topic, confirmed=confirmed)
        topics = await map_concurrently(ask, options.topics, limit=MAX_CONCURRENT_REQUESTS)
        named = list(zip(options.topics, topics, strict=True))
    else:
        named = [
            (name, topic)
            for topic in await client.topics(confirmed=confirmed)
            if options.selects(name := f"{topic['namespace']}/{topic['topic']}")
        ]
        if not named:
            raise FencelogError(ErrorCode.TOPIC_NOT_FOUND, "there is no such topic")
    return [(name, number) for name, topic in named for number in range(int(topic["partitions"]))]


def located(error: FencelogError, options: ReadOptions) -> FencelogError:
    """Return the same error, naming the topics and the service: Spark shows nothing but its
    text."""
    code: ErrorCode = error.code
    where = f"reading {options.what} from {','.join(options.servers)}"
    return FencelogError(code, f"{where}: {error.detail}", **error.extra)
