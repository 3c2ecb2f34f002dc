"""The answers of an owner about its log: reads, its tail, offsets by time.

Noted in the broker's process, at the moment of the answer. An instance that has acknowledged a
message, or shown it, never shows a lower tail afterwards; one that has been replaced may show less
than others have.
"""

from __future__ import annotations

from fencelog.broker.broker import Broker
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ReadLimits, ReadResult
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.oracle.log_history import LogHistory
from tests.sim.topics.brokers import TOPIC
from tests.sim.topics.direct.ranges import read_directly

READ_BYTES = 1 << 16
WAIT_MS = 200


def look_at_tail(log: LogHistory, instance: PartitionLog) -> None:
    """Record the tail that the instance would show now, and where it would begin."""
    log.begin_shown(instance.earliest_offset, instance.epoch)
    log.tail_shown(instance.tail_offset, log.floor_of(instance, instance.epoch), instance)


async def read_some(log: LogHistory, offset: int, max_messages: int, broker: Broker) -> ReadResult:
    instance = await broker.partition(TOPIC, log.partition)
    limits = ReadLimits(max_messages=max_messages, max_bytes=READ_BYTES, wait_ms=WAIT_MS)
    return await read_at(log, instance, offset, limits)


async def read_at(
    log: LogHistory, instance: PartitionLog, offset: int, limits: ReadLimits
) -> ReadResult:
    """Read from an instance of the log's owner, and judge the tail that it shows. The messages are
    judged where they arrive, by ``note_read``."""
    floor, known_end = log.floor_of(instance, instance.epoch), log.known_end
    try:
        result = await instance.read(offset, limits)
    except FencelogError as error:
        if error.code is ErrorCode.OFFSET_BEYOND_TAIL:
            log.tail_shown(int(error.extra["tail_offset"]), floor, instance)
            log.denied(offset, known_end)
        raise
    log.tail_shown(result.tail_offset, floor, instance)
    return result


async def look_up(log: LogHistory, instance: PartitionLog, time_us: int) -> None:
    """Look for the first offset at or after a time."""
    floor = log.floor_of(instance, instance.epoch)
    found = await instance.offset_for_time(time_us)
    log.counts["times looked up"] += 1
    earliest, times = instance.earliest_offset, log.times
    if found > earliest and times.get(found - 1, time_us - 1) >= time_us:
        log.violate(21, f"time {time_us} is at {found}, {found - 1} is of {times[found - 1]}")
    if found < floor and times.get(found, time_us) < time_us:
        log.violate(21, f"time {time_us} is at {found}, which is of {times[found]}")
    if found == instance.tail_offset:
        log.tail_shown(found, floor, instance)
    elif not earliest <= found < instance.tail_offset:
        log.violate(21, f"time {time_us} is at {found}, the log has {earliest} and more")


async def look_around(log: LogHistory, time_us: int | None, broker: Broker) -> None:
    """One of these, as if by chance: by time where there is one."""
    instance = await broker.partition(TOPIC, log.partition)
    if time_us is None:
        await read_directly(log, instance)
    else:
        await look_up(log, instance, time_us)
