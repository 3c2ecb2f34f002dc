"""A ledger that is written elsewhere, until it is in a log or never can be. Decisions on values.

Its properties say where it stands, and each step is a compare-and-set of its metadata:

* *pending*: made for a log and a committer; it names no epoch;
* *claimed*: an owner is about to list it, and names its own epoch. Only the owner of that epoch can
  list it: every other one has another list;
* *withdrawn*: it joins no log any more, so it can be deleted, unless a list names it: one that
  joined a log is withdrawn before it is trimmed, for its committer may repeat the batch.

A claim and a withdrawal exclude each other, whoever makes them and however late: one of them finds
what the other has written. A withdrawal of a claimed ledger is allowed to those who know that the
owner of that epoch cannot list it any more.
"""

from __future__ import annotations

from fencelog.broker.ledger_list.ledger_list import Sealed
from fencelog.broker.ledger_list.withdrawal import (
    Properties,
    is_withdrawn,
    withdrawn_properties,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, EntryHeader
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata


def claimed(metadata: LedgerMetadata, *, log: str, committer: str, epoch: int) -> Properties:
    """Return the properties of a ledger that the owner of ``epoch`` is about to list. They are
    written even where they are the same: what was read may be older than a withdrawal.

    Raises BAD_REQUEST (the ledger was made for another log or committer), LEDGER_NOT_FOUND (it is
    withdrawn), NO_OWNER (a later owner has claimed it)."""
    _check_made_for(metadata, log, committer)
    if is_withdrawn(metadata.properties):
        raise FencelogError(
            ErrorCode.LEDGER_NOT_FOUND, f"ledger {metadata.ledger_id} was withdrawn"
        )
    _check_epoch(metadata, epoch)
    return {**metadata.properties, "epoch": str(epoch)}


def withdrawn(
    metadata: LedgerMetadata, *, log: str, committer: str, epoch: int
) -> Properties | None:
    """Return the properties of a ledger that the owner of ``epoch`` gives up, which has not listed
    it; None: it is withdrawn already. Raises BAD_REQUEST, NO_OWNER (a later owner may list it)."""
    _check_made_for(metadata, log, committer)
    _check_epoch(metadata, epoch)
    return withdrawn_properties(metadata)


def facts_of(
    metadata: LedgerMetadata, last: EntryHeader | None, *, messages: int, now_us: int
) -> Sealed:
    """Return the facts of a closed ledger for the list. ``last``: the header of its last entry;
    ``messages``: as many as its writer was acknowledged.

    The publish time is that of the commit, not known yet. Raises BAD_REQUEST for a ledger that
    holds something else.
    """
    found = 0 if last is None else last.next_number
    if last is None or found != messages or last.kind != KIND_MESSAGES:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"ledger {metadata.ledger_id} holds {found} messages, {messages} were to be committed",
        )
    if last.range_count or last.previous_range_entry >= 0:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"ledger {metadata.ledger_id} names producers, whose order the log cannot know",
        )
    return Sealed(
        entries=metadata.last_entry_id + 1,
        messages=messages,
        size=metadata.length,
        last_publish_us=0,
        sealed_us=now_us,
    )


def _check_made_for(metadata: LedgerMetadata, log: str, committer: str) -> None:
    properties = metadata.properties
    if (properties.get("log"), properties.get("committer")) != (log, committer):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"ledger {metadata.ledger_id} was not made for this partition and {committer}",
        )


def _check_epoch(metadata: LedgerMetadata, epoch: int) -> None:
    """Check that no owner of a higher epoch has claimed the ledger."""
    if int(metadata.properties.get("epoch", -1)) > epoch:
        raise FencelogError(
            ErrorCode.NO_OWNER,
            f"ledger {metadata.ledger_id} was claimed by a later owner of the partition",
        )
