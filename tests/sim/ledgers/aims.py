"""The targets of a scene's faults that are known only once there is a ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.sim.oracle.history import History
from tests.sim.plan.plan import Fault


def aimed(fault: Fault, history: History, bookies: Iterable[str]) -> Fault | None:
    """Aim at the bookies that are now known to be the members it names: ``m1`` is the first one of
    the first ledger, as that was created; and at those that are none, ``s1`` the first one. None:
    there is no such bookie, or no ledger any more."""
    parts = fault.target.split(">")
    if not any(part[0] in "ms" and part[1:].isdigit() for part in parts):
        return fault
    versions = history.metadata.get(min(history.metadata, default=-1))
    if not versions:
        return None
    members = versions[0].fragments[0].bookies
    spares = [bookie for bookie in bookies if bookie not in members]
    named = {f"m{number}": bookie for number, bookie in enumerate(members, start=1)}
    named |= {f"s{number}": bookie for number, bookie in enumerate(spares, start=1)}
    if any(part[0] in "ms" and part[1:].isdigit() and part not in named for part in parts):
        return None
    return replace(fault, target=">".join(named.get(part, part) for part in parts))
