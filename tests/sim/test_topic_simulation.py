"""Histories of topics as part of the suite: many of them, and that they can be trusted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencelog.broker.append.pending import AppendResult
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.kinds import TOPICS
from tests.sim.oracle.history import History
from tests.sim.oracle.log_history import LogHistory
from tests.sim.plan.topic_draw import draw_topic_plan
from tests.sim.run_sim import Budget, RunStats, describe, play_within, say

AIMED = (80, 136, 148, 256)
"""Histories in which readers ask for ranges of a log that is trimmed or ended, quotas that
operators change keep appends out, messages go before the compacted view has them, and
acknowledgements are refused."""

BUDGET = Budget(at_least=40, cpu_s=15, wall_s=900, rare_up_to=420, also=AIMED)
"""Half a minute on two idle cores. Every kind of fault has its turn."""

THOROUGH = Budget(at_least=150, cpu_s=50, wall_s=900, rare_up_to=420, also=AIMED)

PLAYED = (
    *("takeovers", "rolls", "append: append_unknown", "append: no_owner", "duplicates"),
    *("reads", "direct reads", "times looked up", "views read", "limbo cleared"),
    *("confirmed ranges", "ranges from an offset", "ranges within a ledger"),
    *("ranges with new metadata", "ranges asked of previous owners", "bookies replaced"),
    *("ranges over HTTP", "ranges over links", "topics confirmed"),
    *(
        "direct reads of a trimmed log",
        "ranges from within a batch",
        "direct reads of an ended log",
    ),
    *("times looked up in a trimmed log", "times looked up in an ended log", "offsets denied"),
    *(
        "seeks",
        "trims",
        "redeliveries",
        "messages given back unused",
        "messages given back by name",
    ),
    *("dead letters", "replayed", "quotas checked", "commits", "commits repeated", "claims"),
    *("commit by any broker", "abort by any broker", "create-ledger by any broker"),
    *("commits in doubt", "last commits asked for"),
    *("posts answered", "forwards at once", "calls answered", "subscriptions made"),
    *("topics deleted", "topics grown", "trimmed by hand", "step: settings", "step: compact"),
    *("redeliveries to groups", "acknowledgements refused", "messages expired"),
    *("messages evicted", "appends over quota"),
    *("producers refused as forgotten", "producers began again", "keys lost to a view"),
)
"""What the histories that are played in any case must contain: a feature that no plan reaches any
more would go unnoticed until a mutant's seed fails to show it."""

BUDGETS = [BUDGET, pytest.param(THOROUGH, marks=pytest.mark.thorough)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("budget", BUDGETS, ids=["some", "many"])
def test_no_history_of_topics_violates_an_invariant(
    capsys: pytest.CaptureFixture[str], budget: Budget
) -> None:
    stats, surely, started = RunStats(TOPICS), RunStats(TOPICS), time.monotonic()
    certain = set(budget.certain(TOPICS))
    for result in play_within(TOPICS, budget, jobs=os.cpu_count() or 1):
        stats.add(result)
        if result.seed in certain:
            surely.add(result)
    with capsys.disabled():
        say(["", *stats.lines(time.monotonic() - started)])
    failures = ["\n".join(describe(TOPICS, result, shrink=False)) for result in stats.failed]
    assert failures == []
    assert surely.passed == len(certain)
    missing = set(TOPICS.faults) - surely.kinds.keys()
    assert not missing, f"faults that never happened: {sorted(missing)}"
    missing = {event for event in PLAYED if not surely.counts[event]}
    assert not missing, f"in no history: {sorted(missing)}"


@pytest.mark.parametrize("seed", [2, 13])
def test_a_seed_of_topics_gives_one_trace(seed: int) -> None:
    first, second = TOPICS.run_seed(seed), TOPICS.run_seed(seed)
    assert (first.digest, first.counts, first.fired) == (
        second.digest,
        second.counts,
        second.fired,
    )


@pytest.mark.parametrize("seed", [7, 1007])
def test_another_interpreter_gives_the_same_trace_of_topics(seed: int) -> None:
    play = "from tests.sim.topics.runner import run_topic_seed"
    code = f"{play}; print(run_topic_seed({seed}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == TOPICS.run_seed(seed).digest


def test_plans_of_topics_differ() -> None:
    assert len({str(draw_topic_plan(seed)) for seed in range(1, 200)}) == 199


class Log:
    """A history made by hand: what the oracle says to it."""

    def __init__(self) -> None:
        self.log = LogHistory(History(), 0)
        self.log.begun(1, 0)

    def ack(self, name: bytes, offset: int, *, owner: str = "k1", epoch: int = 1) -> None:
        sent = self.log.new(name, is_batch=False)
        self.log.attempted(sent)
        self.log.acknowledged(sent, AppendResult(0, offset, 1, 0), owner, epoch)

    @property
    def violations(self) -> list[str]:
        return self.log.history.violations


def test_one_owner_in_order_is_right() -> None:
    one = Log()
    one.ack(b"a", 0)
    one.ack(b"b", 1)
    one.log.begun(2, 2)
    one.ack(b"c", 2, owner="k2", epoch=2)
    one.log.seen(1, (b"b", b"c"), "read")
    one.log.check_whole(0, 3, [1, 1, 2])
    assert one.violations == []


def test_what_an_oracle_of_logs_sees() -> None:
    two_owners, above, lost, other, twice = Log(), Log(), Log(), Log(), Log()
    two_owners.ack(b"a", 0)
    two_owners.ack(b"b", 1, owner="k2")
    assert "two instances" in two_owners.violations[0]
    above.log.begun(2, 0)
    above.ack(b"a", 0)
    assert "a later one begins below" in above.violations[0]
    lost.ack(b"a", 0)
    lost.log.begun(2, 0)
    assert "was acknowledged" in lost.violations[0]
    other.ack(b"a", 0)
    other.log.seen(0, (b"b",), "read")
    assert "offset 0 has b'b', had b'a'" in other.violations[0]
    twice.ack(b"a", 0)
    twice.log.seen(1, (b"a",), "read")
    assert "b'a' is at 1, and at 0" in twice.violations[0]


def test_an_append_comes_after_what_was_known_before_it_began() -> None:
    one = Log()
    early = one.log.new(b"early", is_batch=False)
    one.ack(b"a", 0)
    late = one.log.new(b"late", is_batch=False)
    assert (early.floor, late.floor) == (0, 1)
    for sent in (early, late):
        one.log.attempted(sent)
    one.log.seen(0, (b"a",), "read")
    one.log.refused(early, FencelogError(ErrorCode.NO_OWNER, "gone"))
    one.log.refused(late, FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows"))
    assert (early.may_be_there, late.may_be_there) == (False, True)
    one.log.seen(1, (b"early",), "read")
    one.log.check_whole(0, 2, [5, 4])
    assert "a publish time goes back" in one.violations[0]
    assert "b'early' at 1 was refused" in one.violations[1]
