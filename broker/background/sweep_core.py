"""The decision which ledgers no longer belong to any topic. Decisions on values, about one ledger
at a time.

A ledger of a topic log is tagged with the log and the epoch that it was created in. Two things
prove that no list will ever hold it:

* the log's list has a higher epoch, and does not hold it: an owner lists only what it created
  itself, and the previous owners cannot change the list any more. (A ledger of the current epoch
  may be about to be listed; one of the next is a takeover's, before its compare-and-set.)
* the topic is gone for good: ids are never used again.

A ledger that was made for a committer (``commits.pending_core``) names no epoch until an owner is
about to list it. It is garbage if it was withdrawn, or was not committed in time, unless the
present owner has claimed it; and it is withdrawn before it is deleted, so that an owner which
claims it meanwhile either finds that, or keeps the ledger.

Any other ledger is left alone, whatever it looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.withdrawal import is_withdrawn
from fencelog.broker.limits import PENDING_LEDGER_S


@dataclass(frozen=True, slots=True)
class Tag:
    """The log and the epoch of a ledger. ``epoch``: None for a pending ledger of a committer."""

    topic_id: str
    partition: int
    epoch: int | None
    is_committers: bool = False
    is_withdrawn: bool = False


def tag_of(properties: Mapping[str, str]) -> Tag | None:
    """Return the tag of a ledger; None if it is not one of a topic's log."""
    topic_id, slash, partition = properties.get("log", "").partition("/")
    epoch, is_committers = properties.get("epoch", ""), "committer" in properties
    if not (topic_id and slash and _is_number(partition)):
        return None
    if is_committers:
        number = int(epoch) if _is_number(epoch) else None
        return Tag(topic_id, int(partition), number, True, is_withdrawn(properties))
    return Tag(topic_id, int(partition), int(epoch)) if _is_number(epoch) else None


def is_garbage(
    tag: Tag,
    ledger_id: int,
    ledger_list: LedgerList | None,
    *,
    topic_is_gone: bool,
    age_s: float,
    grace_s: float,
    pending_s: float = PENDING_LEDGER_S,
) -> bool:
    """Tell whether a ledger can be deleted. It was read first, then the ``ledger_list`` (None:
    there is none), then the registry; ``topic_is_gone``: no topic has the id. ``age_s``: the time
    since it was created; ``pending_s``: the time in which a pending ledger has to be committed."""
    if ledger_list is not None and not ledger_list.deleted:
        if ledger_id in ledger_list.ledgers:
            return False
        if tag.is_withdrawn:
            return True
        if tag.is_committers and age_s < pending_s:
            return False  # the present owner may get the commit again that a former one has begun
        return tag.epoch is None or tag.epoch < ledger_list.epoch
    return topic_is_gone and age_s >= grace_s


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
