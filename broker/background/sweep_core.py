"""The decision which ledgers no longer belong to any topic. Decisions on values, about one ledger
at a time.

A ledger of a topic log is tagged with the log and the epoch that it was created in. Two things
prove that no list will ever hold it:

* the log's list has a higher epoch, and does not hold it: an owner lists only what it created
  itself, and the previous owners cannot change the list any more. (A ledger of the current epoch
  may be about to be listed; one of the next is a takeover's, before its compare-and-set.)
* the topic is gone for good: ids are never used again.

Any other ledger is left alone, whatever it looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencelog.broker.ledger_list.ledger_list import LedgerList


@dataclass(frozen=True, slots=True)
class Tag:
    """The log and the epoch of a ledger."""

    topic_id: str
    partition: int
    epoch: int


def tag_of(properties: Mapping[str, str]) -> Tag | None:
    """Return the tag of a ledger; None if it is not one of a topic's log."""
    topic_id, slash, partition = properties.get("log", "").partition("/")
    epoch = properties.get("epoch", "")
    if not (topic_id and slash and _is_number(partition) and _is_number(epoch)):
        return None
    return Tag(topic_id, int(partition), int(epoch))


def is_garbage(
    tag: Tag,
    ledger_id: int,
    ledger_list: LedgerList | None,
    *,
    topic_is_gone: bool,
    age_s: float,
    grace_s: float,
) -> bool:
    """Tell whether a ledger can be deleted. It was read first, then the ``ledger_list`` (None:
    there is none), then the registry; ``topic_is_gone``: no topic has the id. ``age_s``: the time
    since it was created."""
    if ledger_list is not None and not ledger_list.deleted:
        return tag.epoch < ledger_list.epoch and ledger_id not in ledger_list.ledgers
    return topic_is_gone and age_s >= grace_s


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
