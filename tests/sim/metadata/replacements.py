"""Changes of ledger metadata by replication workers, checked as they happen (rule 11)."""

from __future__ import annotations

from dataclasses import replace

from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from tests.sim.oracle.history import History, write_set_of

NEEDED = {"lost_bookie", "decommission", "placement", "balance"}
"""The causes for which a bookie that has everything may be replaced."""


def replaced_fragment(before: LedgerMetadata, now: LedgerMetadata) -> int | None:
    """Return the number of the fragment in which bookies were replaced; None if that is not the
    whole change. A writer replaces bookies in the last fragment of a ledger that is open."""
    firsts = [fragment.first_entry_id for fragment in before.fragments]
    if firsts != [fragment.first_entry_id for fragment in now.fragments]:
        return None
    changed = [n for n in range(len(firsts)) if before.fragments[n] != now.fragments[n]]
    if len(changed) != 1 or replace(now, fragments=before.fragments) != before:
        return None
    is_last = changed[0] == len(firsts) - 1
    return None if is_last and not before.is_closed else changed[0]


def check_replacement(
    history: History, before: LedgerMetadata, now: LedgerMetadata, at: int
) -> None:
    """Check that one bookie was replaced in a fragment that gets no more entries, for a reason, by
    one that has been given all entries that belong there, as they are everywhere."""
    history.counts["bookies replaced"] += 1
    ledger_id, old, new = now.ledger_id, before.fragments[at], now.fragments[at]
    if now.state is LedgerState.IN_RECOVERY:
        history.violate(11, f"ledger {ledger_id} was changed during its recovery")
    pairs = [pair for pair in zip(old.bookies, new.bookies, strict=False) if pair[0] != pair[1]]
    if len(pairs) != 1 or len(set(new.bookies)) != now.ensemble_size:
        history.violate(4, f"ledger {ledger_id}: {old} became {new}")
        return
    ((lost, target),) = pairs
    history.moved_to.add((ledger_id, target))
    following = now.fragments[at + 1].first_entry_id if at + 1 < len(now.fragments) else None
    last = now.last_entry_id if following is None else following - 1
    share = [n for n in range(new.first_entry_id, last + 1) if target in write_set_of(now, n)]
    for entry_id in share:
        _check_copy(history, now, entry_id, target)
    _check_reason(history, ledger_id, lost, share)


def _check_copy(history: History, now: LedgerMetadata, entry_id: int, target: str) -> None:
    entry = (now.ledger_id, entry_id)
    memory = history.bookie(target)
    if not memory.has_shown(entry):
        history.violate(
            11, f"ledger {entry[0]} names {target} for entry {entry_id}, which it never had"
        )
    digest = memory.entries.get(entry)
    for bookie in write_set_of(now, entry_id):
        other = history.bookie(bookie).entries.get(entry)
        if digest is not None and other not in (None, digest):
            history.violate(5, f"{target} has other bytes of entry {entry} than {bookie}")


def _check_reason(history: History, ledger_id: int, lost: str, share: list[int]) -> None:
    """Check that a bookie that has everything was not replaced because it could not be asked."""
    memory = history.bookie(lost)
    has_all = all((ledger_id, entry_id) in memory.entries for entry_id in share)
    causes = history.causes.get((ledger_id, lost), set())
    if has_all and not memory.is_damaged and not causes & NEEDED:
        history.violate(11, f"ledger {ledger_id}: {lost} has all, and was replaced for {causes}")
