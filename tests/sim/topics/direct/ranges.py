"""The answer of an owner to a reader that reads from bookies, judged in the broker's process at the
moment of the answer (invariants 20 and 21).

An answer that the owner has *confirmed* lacks nothing that anybody was told of before the request.
Any other one has what this instance has told itself. Both have every message from the offset that
was asked for up to their end, and no ledger before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, read_entry_header
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.record_batch import decode_batch
from fencelog.spark_connector.planning.segments import (
    LedgerSegment,
    PartitionSegments,
    parse_segments,
)
from tests.sim.oracle.log_history import LogHistory, payload_of

ENDS_ONLY = 1 << 62
"""An offset that no log reaches, for a reader that wants to know the end alone, as streams do."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for ranges, as the parameters of ``PartitionLog.segments``."""

    from_offset: int = 0
    confirmed: bool = False
    refresh: int | None = None


EVERYTHING = Asked()


async def read_directly(log: LogHistory, instance: PartitionLog, asked: Asked = EVERYTHING) -> None:
    """Read as a reader that has the ranges from the owner, and the entries from bookies."""
    judge = Judge(log, instance, asked)
    answer = await instance.segments(
        asked.from_offset, confirmed=asked.confirmed, refresh=asked.refresh
    )
    judge.answered(answer)


class Judge:
    """One request: what was known when it was made, and the verdict on its answer."""

    def __init__(self, log: LogHistory, instance: Any, asked: Asked) -> None:
        """``instance``: its ``epoch``, ``topic_id`` and ``earliest_offset`` are all that matters
        here."""
        self._log = log
        self._instance = instance
        self._asked = asked
        self._floor = log.floor_of(instance, instance.epoch)
        self._known_end = log.known_end
        self._start = instance.earliest_offset
        self._known_start = log.known_start
        self._versions = len(self._metadata())

    def answered(self, answer: dict[str, Any]) -> None:
        log, asked = self._log, self._asked
        log.counts["direct reads"] += 1
        log.counts["confirmed ranges"] += asked.confirmed
        try:
            ranges = parse_segments("sim", answer, from_offset=asked.from_offset)
        except FencelogError as error:
            log.violate(21, f"{asked}: {error.detail}")
            return
        if (ranges.topic_id, ranges.partition) != (self._instance.topic_id, log.partition):
            log.violate(21, f"ranges of {ranges.topic_id}/{ranges.partition} were answered")
        self._check_bounds(ranges)
        for number, segment in enumerate(ranges.segments):
            self._read(segment, max(ranges.earliest_offset, asked.from_offset), is_first=not number)
        if asked.confirmed and asked.refresh is not None:
            self._check_refreshed(ranges)

    def _check_bounds(self, ranges: PartitionSegments) -> None:
        """Check where the log begins and ends, and that ranges cover what was asked for."""
        log, asked, start, end = self._log, self._asked, ranges.earliest_offset, ranges.end_offset
        log.begin_shown(start, self._instance.epoch)
        log.tail_shown(end, self._floor, self._instance)
        if start < self._start:
            log.violate(20, f"ranges begin at {start}, the same had told {self._start}")
        if asked.confirmed and end < self._known_end:
            log.violate(21, f"{end} is confirmed, the log was known to reach {self._known_end}")
        if asked.confirmed and start < self._known_start:
            log.violate(20, f"ranges begin at {start}, {self._known_start} was told before")
        wanted = max(start, asked.from_offset)
        position = ranges.segments[0].base_offset if ranges.segments else end
        if position > wanted:
            log.violate(21, f"ranges from {wanted} begin at {position}")
        for segment in ranges.segments:
            if segment.base_offset != position:
                log.violate(21, f"ranges: a gap from {position} to {segment.base_offset}")
            position = segment.end_offset
            # A ledger of which all was trimmed is named until it has left the list.
            if position <= asked.from_offset:
                log.violate(21, f"ranges from {wanted} have a ledger that ends at {position}")
        if ranges.segments and position != end:
            log.violate(21, f"ranges end at {position}, the log at {end}")
        is_inside = ranges.segments and ranges.segments[0].base_offset < start
        log.counts["direct reads of a trimmed log"] += bool(is_inside)
        log.counts["ranges from an offset"] += bool(ranges.segments and asked.from_offset > start)

    def _read(self, segment: LedgerSegment, wanted: int, *, is_first: bool) -> None:
        """Read the entries of one ledger, as its writer sent them."""
        log, ledger_id, last = self._log, segment.ledger.ledger_id, segment.last_entry
        ledger = log.history.ledgers[ledger_id]
        if ledger_id not in log.listed:
            log.violate(21, f"ranges name ledger {ledger_id}, which is on no list")
        durable = max(ledger.confirmed, self._closed_at(ledger_id))
        if last > durable:
            log.violate(
                21, f"ranges have entry {last} of ledger {ledger_id}, {durable} is the last"
            )
            return
        log.counts["ranges within a ledger"] += segment.first_entry > 0
        if segment.first_entry and not is_first:
            log.violate(21, f"ledger {ledger_id} is left out up to entry {segment.first_entry}")
        position: int | None = None
        for payload in ledger.payloads[segment.first_entry : last + 1]:
            header = read_entry_header(payload)
            begin = segment.base_offset + header.first_number
            if position is None and begin > max(wanted, segment.base_offset):
                log.violate(21, f"ranges from {wanted} begin with an entry of {begin}")
            if position not in (None, begin):
                log.violate(21, f"ledger {ledger_id} has {begin} where {position} was next")
            position = begin
            if header.kind == KIND_MESSAGES:
                messages = decode_batch(payload[header.header_bytes :])
                time_us = segment.publish_time_us
                time_us = header.publish_time_us if time_us is None else time_us
                log.published(position, len(messages), time_us)
                log.seen(position, tuple(map(payload_of, messages)), "read directly")
                log.counts["ranges from within a batch"] += begin < wanted < begin + len(messages)
                position += len(messages)
        if position != segment.end_offset:
            log.violate(
                21,
                f"ledger {ledger_id} up to entry {last} ends at {position}, "
                f"not at {segment.end_offset}",
            )

    def _closed_at(self, ledger_id: int) -> int:
        """Return the last entry of a ledger as it was closed, also if it was deleted since."""
        history = self._log.history
        metadata = history.latest(ledger_id)
        told, _ = history.ends.get(ledger_id, (-1, 0))
        return told if metadata is None else max(told, metadata.last_entry_id)

    def _check_refreshed(self, ranges: PartitionSegments) -> None:
        """Check that the metadata of the ledger that was asked for are not those of before the
        request: a look at the list is behind all that the store has. A ledger that the owner writes
        is not read: its writer has the latest that let it write."""
        known = self._metadata()
        for segment in ranges.segments:
            if segment.ledger.ledger_id == self._asked.refresh and segment.ledger.is_closed:
                self._log.counts["ranges with new metadata"] += 1
                if known and segment.ledger not in since(known, self._versions):
                    self._log.violate(
                        21, f"{self._asked}: {segment.ledger} is older, it was {known[-1]}"
                    )

    def _metadata(self) -> list[LedgerMetadata]:
        """Return the versions of the ledger that is to be read anew; none where it was deleted."""
        refresh = self._asked.refresh
        return [] if refresh is None else self._log.history.metadata.get(refresh, [])


def since(versions: list[LedgerMetadata], count: int) -> list[LedgerMetadata]:
    """Return what stood in the store since it had so many versions: the last of these, and later
    ones."""
    return versions[max(0, count - 1) :]
