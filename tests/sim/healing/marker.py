"""Wrong marks: any bookie of any ledger, for any reason. Workers have to look themselves."""

from __future__ import annotations

from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.bookie.replication.store import Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import FencelogError
from tests.sim.engine.host import SimHost
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.oracle.history import History


async def mark_at_random(
    cluster: Cluster, history: History, random: Random, session: Session, *, may_leave: bool
) -> None:
    """Mark a ledger. ``may_leave``: some bookie may be marked as one that is to leave."""
    ledgers = sorted(history.metadata)
    if not ledgers:
        return
    ledger_id = random.choice(ledgers)
    fragment = random.choice(history.metadata[ledger_id][-1].fragments)
    why = random.choice([cause for cause in Cause if cause is not Cause.BALANCE])
    told = [causes for (i, _), causes in history.causes.items() if i == ledger_id]
    is_told = any(why.value in causes for causes in told)
    if why is Cause.DECOMMISSION and (is_told or not may_leave):
        return  # no bookie that is to leave is a target: there might be none left
    bookie = random.choice(fragment.bookies)
    history.marked_at_random.add((ledger_id, bookie))
    host = SimHost(cluster.engine, session.process.machine)
    try:
        await UnderReplicatedLedgers(session.store).mark(
            ledger_id, missing=[bookie], why=why, now_us=host.now_us()
        )
    except FencelogError as error:
        history.counts[f"marker: {error.code.slug}"] += 1
