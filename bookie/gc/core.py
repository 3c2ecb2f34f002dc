"""The decisions of garbage collection: which ledgers and entry logs to remove or compact. Pure.

Every choice is checked again before it is carried out: ledgers in the metadata, right before they
are removed (``gc/ledgers.py``); runs in the index, within the call that moves them
(``Index.repoint``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

# -- ledgers -------------------------------------------------------------------------------------


class Reason(Enum):
    """The reason for which a ledger need not be here."""

    DELETED = auto()
    OVER_REPLICATED = auto()


Garbage = tuple[int, Reason]
"""A ledger that need not be here, and why."""


@dataclass(frozen=True, slots=True)
class LedgerChoice:
    """Ids of ledgers, ascending, all of them yet to be verified."""

    deleted: tuple[int, ...]
    """The ledgers that have had no metadata for the grace time."""
    ahead: tuple[int, ...]
    """The ledgers without metadata whose ids were never given, by the same metadata: it is older
    than they are. They stay."""
    over_replicated: tuple[int, ...]
    """The ledgers that other bookies have held for the grace time."""
    since_ms: Mapping[Garbage, int]
    """The time since when each ledger is deleted or over-replicated: the input of the next
    choice."""


def is_over_replicated(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Tell whether a bookie with entries of this ledger need not keep them: the ledger is closed,
    and no fragment names the bookie."""
    named = any(bookie_id in fragment.bookies for fragment in metadata.fragments)
    return metadata.is_closed and not named


def choose_ledgers(
    local: Mapping[int, bool],
    listed: Mapping[int, bool],
    *,
    last_given_id: int,
    since_ms: Mapping[Garbage, int],
    now_ms: int,
    grace_ms: int,
    grace_of_deleted: bool = True,
) -> LedgerChoice:
    """Choose the ledgers to remove: those that have been garbage for the grace time, for one and
    the same reason. A ledger that is listed again in the meantime is forgotten.

    ``local``: the ledgers known here before the listing began, and whether entries of them are
    here. ``listed``: those of them that a complete listing has, and whether they are
    over-replicated. ``last_given_id``: the last id that any ledger may have, by the same metadata.
    ``since_ms``: the field of the previous choice. ``grace_of_deleted``: False: deleted ledgers go
    without the grace time.
    """
    gone = sorted(local.keys() - listed.keys())
    garbage = [(ledger_id, Reason.DELETED) for ledger_id in gone if ledger_id <= last_given_id]
    garbage += [
        (ledger_id, Reason.OVER_REPLICATED)
        for ledger_id, has_entries in sorted(local.items())
        if has_entries and listed.get(ledger_id, False)
    ]
    since = {each: since_ms.get(each, now_ms) for each in garbage}

    def due(why: Reason, grace_ms: int) -> tuple[int, ...]:
        return tuple(i for (i, is_), at in since.items() if is_ is why and now_ms - at >= grace_ms)

    return LedgerChoice(
        due(Reason.DELETED, grace_ms if grace_of_deleted else 0),
        tuple(ledger_id for ledger_id in gone if ledger_id > last_given_id),
        due(Reason.OVER_REPLICATED, grace_ms),
        since,
    )


# -- entry logs ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogFile:
    """An entry log that is not written to any more."""

    file_id: int
    size: int
    """Size of the file."""
    record_bytes: int
    """Bytes that its records take, or took before some were removed."""
    live_bytes: int
    """Bytes of those records that the index points to."""

    @property
    def share(self) -> float:
        """Return the share of the records that is live; 1 for a file that has none."""
        return self.live_bytes / self.record_bytes if self.record_bytes > 0 else 1.0


def dead_files(files: Iterable[LogFile]) -> tuple[LogFile, ...]:
    """Return the files that the index does not point to."""
    return tuple(file for file in files if not file.live_bytes)


def sparse_files(files: Iterable[LogFile], below: float) -> tuple[LogFile, ...]:
    """Return the files to be compacted, of which less than a share ``below`` is live, but more than
    nothing. The lowest share comes first, which frees the most space per byte written."""
    sparse = (file for file in files if file.live_bytes and file.share < below)
    return tuple(sorted(sparse, key=lambda file: (file.share, file.file_id)))


def next_round(
    files: Iterable[LogFile], *, free_bytes: int, spare_bytes: int, most_bytes: int
) -> tuple[LogFile, ...]:
    """Choose which of the files, in their order, to compact into one new file of about
    ``most_bytes``; a single file may be larger. Choose none if no file leaves ``spare_bytes`` free
    while the old and the new file exist."""
    chosen: list[LogFile] = []
    total = 0
    for file in files:
        needed = total + file.live_bytes
        if needed + spare_bytes <= free_bytes and (not chosen or needed <= most_bytes):
            chosen.append(file)
            total = needed
    return tuple(chosen)


# -- the index -----------------------------------------------------------------------------------


def id_ranges(removed: Iterable[int], kept: Iterable[int], most: int) -> list[tuple[int, int]]:
    """Return ranges of ledger ids, both ends included, that hold all ids of ``removed`` and none of
    ``kept``; a single range from end to end where there would be more than ``most``."""
    is_kept = dict.fromkeys(kept, True) | dict.fromkeys(removed, False)
    ranges: list[tuple[int, int]] = []
    joins = False
    for ledger_id in sorted(is_kept):
        if is_kept[ledger_id]:
            joins = False
        elif joins:
            ranges[-1] = (ranges[-1][0], ledger_id)
        else:
            ranges.append((ledger_id, ledger_id))
            joins = True
    return ranges if len(ranges) <= most else [(ranges[0][0], ranges[-1][1])]
