"""The answers of an owner about its log: reads, its tail, offsets by time, ranges for direct
readers.

Noted in the broker's process, at the moment of the answer. An instance that has acknowledged a
message, or shown it, never shows a lower tail afterwards; one that has been replaced may show less
than others have.
"""

from __future__ import annotations

from typing import Any

from fencelog.broker.broker import Broker
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import ReadLimits, ReadResult
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, read_entry_header
from fencelog.ledgers.record_batch import decode_batch
from tests.sim.oracle.log_history import LogHistory, payload_of
from tests.sim.topics.brokers import TOPIC

READ_BYTES = 1 << 16
WAIT_MS = 200


def look_at_tail(log: LogHistory, instance: PartitionLog) -> None:
    """Record the tail that the instance would show now, and where it would begin."""
    log.begin_shown(instance.earliest_offset, instance.epoch)
    log.tail_shown(instance.tail_offset, log.floor_of(instance, instance.epoch), instance)


async def read_some(log: LogHistory, offset: int, max_messages: int, broker: Broker) -> ReadResult:
    instance = await broker.partition(TOPIC, log.partition)
    floor, known_end = log.floor_of(instance, instance.epoch), log.known_end
    try:
        result = await instance.read(
            offset, ReadLimits(max_messages=max_messages, max_bytes=READ_BYTES, wait_ms=WAIT_MS)
        )
    except FencelogError as error:
        if error.code is ErrorCode.OFFSET_BEYOND_TAIL:
            log.tail_shown(int(error.extra["tail_offset"]), floor, instance)
            log.denied(offset, known_end)
        raise
    log.tail_shown(result.tail_offset, floor, instance)
    return result


async def look_up(log: LogHistory, time_us: int, broker: Broker) -> None:
    """The first offset at or after a time."""
    instance = await broker.partition(TOPIC, log.partition)
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


async def read_directly(log: LogHistory, instance: PartitionLog) -> None:
    """Read as a reader that has the ranges from the owner, and the entries from bookies."""
    floor = log.floor_of(instance, instance.epoch)
    answer = await instance.segments()
    log.counts["direct reads"] += 1
    end, position = int(answer["end_offset"]), int(answer["earliest_offset"])
    log.tail_shown(end, floor, instance)
    for segment in answer["segments"]:
        base, messages = int(segment["base_offset"]), int(segment["messages"])
        if base > position:
            log.violate(21, f"ranges: a gap from {position} to {base}")
        position = base + messages
        _read_range(log, segment, position)
    if position != end:
        log.violate(21, f"ranges end at {position}, the log at {end}")


def _read_range(log: LogHistory, segment: dict[str, Any], end: int) -> None:
    """The entries of one ledger, as its writer sent them."""
    ledger_id, last = int(segment["ledger"]["ledger_id"]), int(segment["last_entry"])
    ledger = log.history.ledgers[ledger_id]
    if ledger_id not in log.listed:
        log.violate(21, f"ranges name ledger {ledger_id}, which is on no list")
    metadata = log.history.latest(ledger_id)
    durable = max(ledger.confirmed, metadata.last_entry_id if metadata is not None else -1)
    if last > durable:
        log.violate(21, f"ranges have entry {last} of ledger {ledger_id}, {durable} is the last")
        return
    position = int(segment["base_offset"])
    for payload in ledger.payloads[int(segment["first_entry"]) : last + 1]:
        header = read_entry_header(payload)
        if header.kind == KIND_MESSAGES:
            messages = decode_batch(payload[header.header_bytes :])
            time_us = int(segment.get("publish_time", header.publish_time_us))
            log.published(position, len(messages), time_us)
            log.seen(position, tuple(map(payload_of, messages)), "read directly")
            position += len(messages)
    if position != end:
        log.violate(21, f"ledger {ledger_id} up to entry {last} ends at {position}, not at {end}")


async def look_around(log: LogHistory, time_us: int | None, broker: Broker) -> None:
    """One of these, as if by chance: by time where there is one."""
    if time_us is None:
        await read_directly(log, await broker.partition(TOPIC, log.partition))
    else:
        await look_up(log, time_us, broker)
