"""The bookie check: ledgers that name a lost bookie are marked."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from fencelog.bookie.auditor.registered import read_bookies
from fencelog.bookie.auditor.scan import bookies_of, scan_ledgers
from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import MetadataStore

_log = logging.getLogger(__name__)

_LEDGERS_PER_LOOK = 256
"""The ledgers that are marked between two looks at the registrations."""


@dataclass(slots=True)
class BookieCheck:
    """The result of a bookie check. ``named``: how many ledgers name each bookie; ``lost``: the
    bookies whose ledgers are all marked, since they were lost at every look."""

    ledgers: int = 0
    marked: int = 0
    named: Counter[str] = field(default_factory=Counter)
    unreadable: list[int] = field(default_factory=list)
    lost: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        return {
            "ledgers": self.ledgers,
            "marked": self.marked,
            "lost_bookies": sorted(self.lost),
            "unreadable": len(self.unreadable),
        }


async def check_bookies(
    store: MetadataStore, *, host: Host, lost: Callable[[], Collection[str]]
) -> BookieCheck:
    """Scan all metadata and mark the ledgers that name a bookie that is lost. ``lost`` returns
    these; it is called, and compared with the registrations of that moment, again and again, since
    a bookie that is back must cost no copy. Raises FencelogError: METADATA_UNAVAILABLE,
    METADATA_UNKNOWN, CORRUPT; some ledgers may be marked then.
    """
    marks, result = UnderReplicatedLedgers(store), BookieCheck()
    gone = await _still_lost(store, lost)
    result.lost = gone
    due = _LEDGERS_PER_LOOK
    async for metadata in scan_ledgers(store, unreadable=result.unreadable):
        members = bookies_of(metadata)
        result.ledgers += 1
        result.named.update(members)
        missing = members & gone
        if not missing:
            continue
        if due == 0:
            gone, due = await _still_lost(store, lost), _LEDGERS_PER_LOOK
            result.lost &= gone
            missing = members & gone
            if not missing:
                continue
        due -= 1
        ledger_id, now_us = metadata.ledger_id, host.now_us()
        try:
            await marks.mark(
                ledger_id, missing=sorted(missing), why=Cause.LOST_BOOKIE, now_us=now_us
            )
        except FencelogError as error:
            if error.code is not ErrorCode.CORRUPT:
                raise
            _log.error("ledger %d is not marked: %s", ledger_id, error.detail)
            continue
        result.marked += 1
    for ledger_id in result.unreadable:
        _log.error("the metadata of ledger %d cannot be read: its bookies are unknown", ledger_id)
    return result


async def _still_lost(store: MetadataStore, lost: Callable[[], Collection[str]]) -> frozenset[str]:
    candidates = frozenset(lost())
    if not candidates:
        return candidates
    return candidates - (await read_bookies(store)).registered.keys()
