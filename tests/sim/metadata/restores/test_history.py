"""Histories of restores as part of the suite, and the oracle's idea of a log that went back."""

from __future__ import annotations

import os
import time

import pytest

from fencelog.broker.append.pending import AppendResult
from fencelog.broker.ledger_list.codec import encode_ledger_list
from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed, Segment
from fencelog.ledgers.metastore.memory import MemoryCluster
from tests.sim.kinds import RESTORES
from tests.sim.metadata.restores.plan import draw_restore_plan
from tests.sim.metadata.restores.rolled_back import kept_end, rolled_back
from tests.sim.metadata.restores.tree import back_up
from tests.sim.oracle.history import History
from tests.sim.oracle.log_history import LogHistory, Sent
from tests.sim.run_sim import Budget, RunStats, describe, play_within, say

BUDGET = Budget(at_least=12, cpu_s=10, wall_s=600)
THOROUGH = Budget(at_least=25, cpu_s=25, wall_s=600)
BUDGETS = [BUDGET, pytest.param(THOROUGH, marks=pytest.mark.thorough)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("budget", BUDGETS, ids=["some", "many"])
def test_no_history_of_restores_violates_an_invariant(
    capsys: pytest.CaptureFixture[str], budget: Budget
) -> None:
    stats, started = RunStats(RESTORES), time.monotonic()
    for result in play_within(RESTORES, budget, jobs=os.cpu_count() or 1):
        stats.add(result)
    with capsys.disabled():
        say(["", *stats.lines(time.monotonic() - started)])
    failures = ["\n".join(describe(RESTORES, result, shrink=False)) for result in stats.failed]
    assert failures == []
    assert stats.counts["restores"] == stats.passed >= budget.at_least
    for what in ("messages kept by a restore", "messages lost by a restore", "duplicates"):
        assert stats.counts[what] > 0, f"in no history: {what}"


def test_a_seed_of_restores_gives_one_trace() -> None:
    first, second = RESTORES.run_seed(5), RESTORES.run_seed(5)
    assert (first.digest, first.counts, first.fired) == (
        second.digest,
        second.counts,
        second.fired,
    )


def test_plans_of_restores_differ() -> None:
    assert len({str(draw_restore_plan(seed)) for seed in range(1, 100)}) == 99


def acknowledged(log: LogHistory, name: bytes, offset: int) -> Sent:
    sent = log.new(name, is_batch=False)
    log.attempted(sent)
    log.acknowledged(sent, AppendResult(0, offset, 1, 0), "k1", 1)
    return sent


def test_what_is_behind_the_ledgers_of_the_backup_may_be_appended_anew() -> None:
    """And nothing else: what stays is where it was, once."""
    log, tree = LogHistory(History(), 0), MemoryCluster()
    log.begun(1, 0)
    kept, lost = (acknowledged(log, name, at) for at, name in enumerate((b"kept", b"lost")))
    listed = LedgerList(epoch=1, segments=(Segment(7, 0, 0, Sealed(1, 1, 9, 0, 0), 1),))
    tree.create("/logs/t/0", encode_ledger_list(listed))
    assert kept_end(log.history, listed) == 1
    after = rolled_back(log, back_up(tree))
    assert (kept.offset, kept.is_certain) == (0, True)
    assert (lost.offset, lost.is_certain, lost.may_be_there) == (None, False, True)
    after.seen(1, (b"lost",), "read")
    assert after.history.violations == []
    after.seen(2, (b"kept",), "read")
    assert "b'kept' is at 2, and at 0" in after.history.violations[0]
    after.begun(2, 0)
    assert "0 was acknowledged" in after.history.violations[1]


def test_a_backup_does_not_change_with_the_tree() -> None:
    tree = MemoryCluster()
    version = tree.create("/a/b", b"then", owner=tree.new_session())
    backup = back_up(tree)
    tree.set("/a/b", b"now", version)
    tree.create("/a/c", b"")
    assert (backup.value("/a/b"), backup.value("/a/c")) == (b"then", None)
    assert backup.nodes["/a"].children == {"b"}
