"""The entries of a ledger that a bookie should hold, lacks, and may copy from others. Pure.

The functions work by runs and fragments, never entry by entry where E = Qw. Of a striped ledger a
bookie has Qw consecutive entries out of every E; these are yielded one group after the other, as
the caller takes them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from fencelog.bookie.format.runs import Range
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import MAX_ENTRY_ID, Availability
from fencelog.ledgers.format.digest import digest_size
from fencelog.ledgers.format.run import ENTRY_HEADER
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import MAX_READ_RANGES, MAX_RUN_ENTRIES, TARGET_RUN_BYTES
from fencelog.ledgers.quorum import write_set

FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 300.0
"""Pauses before a ledger that cannot be repaired now is tried again; each is twice the previous
one. The cause may be a bookie that restarts, or one that is down for hours."""


class LimboStatus(Enum):
    """The state of a ledger in limbo by its metadata, which decides how it is repaired."""

    NOT_MEMBER = "stranger"
    """No fragment names the bookie (any more): the metadata does not tell which entries it should
    hold, so it cannot answer "no", and others have the entries."""
    UNCLOSED = "unclosed"
    """The end of the ledger is not known: it has to be recovered first."""
    CLOSED = "closed"


def limbo_status(metadata: LedgerMetadata, bookie_id: str) -> LimboStatus:
    if not any(bookie_id in fragment.bookies for fragment in metadata.fragments):
        return LimboStatus.NOT_MEMBER
    return LimboStatus.CLOSED if metadata.is_closed else LimboStatus.UNCLOSED


def wanted_ranges(
    metadata: LedgerMetadata, bookie_id: str, first: int, last: int
) -> Iterator[Range]:
    """Yield the entries out of ``first`` … ``last``, up to the end of a closed ledger, that belong
    on the bookie by metadata: ascending, apart from one another, each within one fragment."""
    if metadata.is_closed:
        last = min(last, metadata.last_entry_id)
    for low, high, bookies in _fragments(metadata):
        if bookie_id not in bookies or high < first:
            continue
        if low > last:
            break
        share = _share(metadata, bookies.index(bookie_id), max(low, first), min(high, last))
        yield from share


def _fragments(metadata: LedgerMetadata) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield the first and last entry of each fragment, and its bookies. The last one has no end."""
    fragments = metadata.fragments
    for number, fragment in enumerate(fragments, start=1):
        end = fragments[number].first_entry_id - 1 if number < len(fragments) else MAX_ENTRY_ID
        yield fragment.first_entry_id, end, fragment.bookies


def _share(metadata: LedgerMetadata, index: int, low: int, high: int) -> Iterator[Range]:
    """Yield the entries among ``low`` … ``high`` of a fragment that the bookie at ``index`` has
    (rule 1)."""
    size, copies = metadata.ensemble_size, metadata.write_quorum
    if size == copies:
        yield low, high
        return
    # The bookie has entry i if (index - i) mod E < Qw: Qw in a row, the last at index mod E.
    begin = low - (low - (index - copies + 1)) % size
    for start in range(begin, high + 1, size):
        if start + copies > low:
            yield max(start, low), min(start + copies - 1, high)


@dataclass(frozen=True, slots=True)
class CopyRange:
    """Entries that the same ``sources`` have, to be asked in this order."""

    first: int
    last: int
    sources: tuple[str, ...]


def copy_ranges(
    metadata: LedgerMetadata, bookie_id: str, entries: Range, *, spread: bool = False
) -> Iterator[CopyRange]:
    """Yield the bookies that ``bookie_id`` may ask for entries, whether the entries belong on it or
    not: about as many at a time as one read returns, of a striped ledger one. The first source
    rotates by ledger; with ``spread`` from one range to the next as well, so that all sources are
    read."""
    first, last = entries
    size, copies = metadata.ensemble_size, metadata.write_quorum
    step = entries_of_read(metadata) if size == copies else 1
    period = step if size == copies else size
    for low, high, bookies in _fragments(metadata):
        for begin in range(max(low, first), min(high, last) + 1, step):
            members = write_set(begin, ensemble_size=size, write_quorum=copies)
            others = [bookies[i] for i in sorted(members) if bookies[i] != bookie_id]
            turns = metadata.ledger_id + (begin // period if spread else 0)
            turn = turns % len(others) if others else 0
            yield CopyRange(
                begin, min(begin + step - 1, high, last), (*others[turn:], *others[:turn])
            )


def entries_of_read(metadata: LedgerMetadata, most_bytes: int = TARGET_RUN_BYTES) -> int:
    """Return how many entries the writer puts into a full run, by the average size of a closed
    ledger's: where entries are alike and the writer was busy, a read is one stored run, which the
    bookie returns as it is. ``most_bytes``: of a smaller read."""
    if not metadata.is_closed or metadata.last_entry_id < 0:
        return MAX_RUN_ENTRIES
    average = metadata.length // (metadata.last_entry_id + 1)
    average += ENTRY_HEADER.size + digest_size(metadata.digest_type)
    return min(max(1, min(most_bytes, TARGET_RUN_BYTES) // average), MAX_RUN_ENTRIES)


def batches(ranges: Iterable[CopyRange], most_entries: int) -> Iterator[tuple[CopyRange, ...]]:
    """Yield ranges that are read together: as many as have so many entries, at least one."""
    batch: list[CopyRange] = []
    count = 0
    for part in ranges:
        entries = part.last - part.first + 1
        if batch and (count + entries > most_entries or len(batch) == MAX_READ_RANGES):
            yield tuple(batch)
            batch, count = [], 0
        batch.append(part)
        count += entries
    if batch:
        yield tuple(batch)


def still_missing(parts: Iterable[CopyRange], got: Iterable[Range]) -> list[CopyRange]:
    """Return what of the parts of one batch none of the ranges ``got`` holds."""
    there = {entry_id for first, last in got for entry_id in range(first, last + 1)}
    missing: list[CopyRange] = []
    for part in parts:
        first = part.first
        for entry_id in range(part.first, part.last + 2):
            if entry_id in there or entry_id > part.last:
                if first < entry_id:
                    missing.append(CopyRange(first, entry_id - 1, part.sources))
                first = entry_id + 1
    return missing


def by_source(
    parts: Iterable[CopyRange], *, resting: Container[str], turn: int = 0
) -> dict[str, list[Range]]:
    """Return the entries to ask each bookie for: of the sources that do not rest, the first one, or
    at another ``turn`` the next; entries in a row come from the same one where that has them."""
    asked: dict[str, list[Range]] = {}
    before, source = -1, ""
    for part in parts:
        awake = [bookie for bookie in part.sources if bookie not in resting]
        if not awake:
            continue
        if part.first != before + 1 or source not in awake:
            source = awake[turn % len(awake)]
        ranges = asked.setdefault(source, [])
        if ranges and ranges[-1][1] == part.first - 1:
            ranges[-1] = (ranges[-1][0], part.last)
        else:
            ranges.append((part.first, part.last))
        before = part.last
    return asked


def missing_copy_ranges(
    metadata: LedgerMetadata, bookie_id: str, wanted: Iterable[Range], held: Availability
) -> Iterator[CopyRange]:
    """Yield the ranges to be copied: the entries of the ranges ``wanted`` that are not ``held``."""
    for entries in held.missing_from(wanted):
        yield from copy_ranges(metadata, bookie_id, entries)


class MissingReason(Enum):
    """The reason why there is no copy of an entry."""

    LOST = "lost"
    """The whole write set answers that the entry is not there: no bookie has it, although it was
    acknowledged or rewritten at Qa of them."""
    IN_LIMBO = "in_limbo"
    """No bookie has the entry, and some may have lost it: no action here will restore it."""
    UNREACHED = "unreached"
    """Some bookie could not be asked, or could not tell: to be tried again."""


def missing_reason(failed: Mapping[str, FencelogError]) -> MissingReason:
    """Return the reason. ``failed``: the answer of each other member of the write set."""
    codes = [error.code for error in failed.values() if not error.code.is_negative]
    if not codes:
        return MissingReason.LOST
    in_limbo = all(code is ErrorCode.LEDGER_IN_LIMBO for code in codes)
    return MissingReason.IN_LIMBO if in_limbo else MissingReason.UNREACHED


def pause_s(attempts: int) -> float:
    """Return the pause after so many attempts, at least one, that did not succeed."""
    return min(FIRST_PAUSE_S * float(1 << min(attempts - 1, 30)), LAST_PAUSE_S)
