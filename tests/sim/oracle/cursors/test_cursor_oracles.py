"""The verdicts of the oracle of cursors in histories of administration, on histories made by
hand."""

from __future__ import annotations

import json
from typing import Any

from fencelog.broker.registry.subscription_config import Start, SubscriptionConfig, SubscriptionInfo
from fencelog.broker.registry.subscription_registry import RegisteredSubscription
from fencelog.ledgers.client import Replication
from fencelog.ledgers.format.entry_header import KIND_STATE, pack_entry
from tests.sim.admin.ending import drain
from tests.sim.oracle.cursors.cursor_history import CursorHistory
from tests.sim.oracle.history import History, WrittenLedger
from tests.sim.oracle.incarnations import AdminLog
from tests.sim.oracle.state_watch import DurableCursor


def test_what_is_trimmed_by_an_acknowledgement_that_is_not_durable_is_seen() -> None:
    log = AdminLog(History(), 0)
    log.state._cursors["b"] = DurableCursor(2, 0)
    cursor = log.cursor("b", "s")
    cursor.protect(0)
    cursor.acknowledging(range(4))  # of unknown outcome
    log.trimmed(2)
    assert log.history.violations == []
    log.trimmed(3)
    assert "20: /0: trimmed to 3, s has acked to 2" in log.history.violations[0]
    cursor.drop()
    log.trimmed(4)
    assert len(log.history.violations) == 1


def test_a_cursor_sees_all_from_where_it_began() -> None:
    cursor = CursorHistory("s")
    assert (cursor.needed(3), cursor.missed(3, None, ())) == (None, [])
    cursor.protect(1)
    cursor.protect(9)  # promised is promised
    assert (cursor.needed(3), cursor.missed(3, None, ())) == (1, [1, 2])
    assert cursor.handed_out([1, 2], 1, 0.0) == []
    assert cursor.missed(3, None, ()) == []
    cursor.since.clear()
    assert cursor.missed(3, DurableCursor(2), ()) == cursor.missed(3, None, [1]) == [2]
    first, second = cursor.acknowledging([1, 2]), cursor.acknowledging([2])
    assert (cursor.needed(3), cursor.possible) == (3, {1, 2})
    cursor.refused([1, 2], first)
    assert (cursor.needed(3), cursor.possible, cursor.passed(3)) == (1, {2}, [1])
    cursor.refused([2], second)
    assert cursor.unasked([1, 2]) == [1, 2]
    cursor.acknowledged_at([1], 2, 5.0)
    assert cursor.not_durable([1], DurableCursor(1)) == cursor.not_durable([1], None) == [1]
    assert cursor.handed_out([1], 2, 6.0) == [1]
    assert cursor.handed_out([1], 1, 6.0) == []  # an owner that does not know of it
    assert cursor.handed_out([1], 2, 4.0) == []
    cursor.drop()
    assert (cursor.needed(3), cursor.missed(9, None, ()), cursor.unasked([1])) == (None, [], [])
    assert cursor.handed_out([1], 2, 6.0) == []  # opened once more, by a registry that lags


class Stated:
    """A log with one subscription, whose state ledger is written by hand."""

    def __init__(self, start: Start = "earliest", partitions: int = 1) -> None:
        self.log = AdminLog(History(), 0)
        info = SubscriptionInfo("s", "b", SubscriptionConfig(), start)
        self.log.registered["b"] = RegisteredSubscription(info, partitions, 0)
        self.ledger = WrittenLedger(5, Replication(3, 3, 2))
        self.log.history.ledgers[5] = self.ledger
        self.log.state.listed(5)

    def writes(self, *events: list[Any]) -> list[str]:
        """The violations so far."""
        body = b"\n".join(json.dumps(event).encode() for event in events)
        entry = pack_entry(
            body, count=len(events), first_number=0, publish_time_us=0, kind=KIND_STATE
        )
        self.ledger.payloads.append(entry)
        self.ledger.confirmed += 1
        self.log.state.cursors()
        return self.log.history.violations


def test_what_becomes_durable_without_a_request_is_seen() -> None:
    one = Stated()
    cursor = one.log.cursor("b")
    assert cursor.name == "s"
    cursor.acknowledging([0, 1])
    assert one.writes(["cursor", "b", 0, 0, 0], ["ack", "b", [[0, 2]]]) == []
    assert cursor.begin == 0
    cursor.refused([2], cursor.acknowledging([2]))
    assert "[2] are acknowledged for s, nobody has asked" in one.writes(["ack", "b", [[1, 3]]])[0]
    cursor.drop()
    assert len(one.writes(["ack", "b", [[3, 9]]])) == 1


def test_a_cursor_that_is_opened_too_far_is_seen() -> None:
    promised = Stated()
    promised.log.cursor("b").protect(1)
    promised.log.cursor("b").acknowledging([1])
    (wrong,) = promised.writes(["cursor", "b", 3, 0, 0])
    assert "s is opened at 3, it has to see [2]" in wrong
    early = Stated()
    early.log.start_offset = 2
    assert early.writes(["cursor", "b", 3, 0, 0]) == []  # it may be about to be trimmed
    early.log.check_begun()
    assert "s began at 3, nobody acknowledged [2]" in early.log.history.violations[0]
    early.log.history.violations.clear()
    early.log.trimmed(3)
    early.log.check_begun()
    late = Stated("latest")
    late.writes(["cursor", "b", 3, 0, 0])
    late.log.check_begun()
    assert early.log.history.violations == late.log.history.violations == []
    added = Stated("latest", partitions=0)  # the partition came later
    added.writes(["cursor", "b", 3, 0, 0])
    added.log.check_begun()
    assert "s began at 3" in added.log.history.violations[0]


def test_a_new_state_ledger_acknowledges_nothing_by_itself() -> None:
    one = Stated()
    one.writes(["cursor", "b", 0, 0, 0])
    one.ledger = WrittenLedger(6, Replication(3, 3, 2))
    one.log.history.ledgers[6] = one.ledger
    one.writes(["cursor", "b", 1, 0, 0], ["ack", "b", [[3, 4]]], ["cursor", "c", 0, 0, 0])
    one.log.state.listed(6)
    assert "[0, 3] are acknowledged for s" in one.log.history.violations[0]
    assert one.log.cursors["c"].begin == 0


class Drained:
    """A subscription at its end, with a state log made by hand. ``gives``: the offsets that each
    request gets and acknowledges, one after the other; ``durably``: to here at last."""

    def __init__(self, gives: list[list[int]], durably: int, end: int) -> None:
        self.history = History()
        self.log = AdminLog(self.history, 0, topic_id="one")
        self.log.known_end = end
        self.cursor = self.log.cursor("00", "s")
        self.cursor.protect(0)
        self.durable = DurableCursor(0)
        self._gives, self._durably = list(gives), durably

    async def end(self) -> list[str]:
        await drain(self.log, self.cursor, lambda: self.durable, self._consume, self._has_backlog)
        return self.history.violations

    async def _consume(self) -> int:
        offsets = self._gives.pop(0) if self._gives else []
        self.cursor.handed_out(offsets, 1, 0.0)
        self.cursor.acknowledging(offsets)
        return len(offsets)

    async def _has_backlog(self) -> bool:
        self.durable.add(0, self._durably)
        return False


async def test_what_was_never_acknowledged_comes_again() -> None:
    right = Drained([[0, 1], [2]], durably=3, end=3)
    right.cursor.handed_out(range(3), 1, 0.0)
    assert await right.end() == []
    left = Drained([[0, 1]], durably=3, end=3)
    left.cursor.handed_out(range(3), 1, 0.0)  # and never acknowledged
    assert "s has not seen [2] again, and has all" in (await left.end())[0]
    refused = Drained([[0, 1]], durably=3, end=3)
    refused.cursor.refused([2], refused.cursor.acknowledging([2]))
    assert "s has not seen [2] again, and has all" in (await refused.end())[0]


async def test_what_was_perhaps_acknowledged_need_not_come_again() -> None:
    unknown = Drained([[0, 1]], durably=3, end=3)
    unknown.cursor.acknowledging([2])
    assert await unknown.end() == []
    before = Drained([[1], [2]], durably=3, end=3)
    before.durable.add(0, 1)
    assert await before.end() == []
    lawful = Drained([[0, 1]], durably=3, end=3)
    lawful.cursor.lawful = lambda offset: offset == 2
    assert await lawful.end() == []


def test_a_cursor_that_is_dropped_without_a_deletion_is_seen() -> None:
    log = AdminLog(History(), 0)
    log.state._cursors["00"] = DurableCursor(0)
    log.state._cursors["01"] = DurableCursor(0)
    log.state.may_be_dropped.add("01")
    for subscription_id in ("01", "00", "00"):
        log.state._apply(["cursor_dropped", subscription_id])
    (violation,) = log.history.violations
    assert "cursor 00 is dropped, its subscription is not deleted" in violation
