"""The verdicts of the oracle of settings, which come and go, on histories made by hand."""

from __future__ import annotations

from typing import Any

from fencelog.broker.ledger_list.ledger_list import Sealed, Segment
from fencelog.broker.registry.topic_node import TopicConfig
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import pack_entry
from tests.sim.oracle.cursors.settings_history import (
    EVICTED,
    EXPIRED,
    LATE_US,
    SettingsHistory,
    most_bytes_from,
)
from tests.sim.oracle.history import History, WrittenLedger
from tests.sim.oracle.incarnations import AdminLog

MS = 1_000


class Set:
    """A log of ten messages, one a millisecond, in two ledgers, and its settings."""

    def __init__(self) -> None:
        self.at_ms = 10
        self.log = AdminLog(History(), 0)
        self.settings = self.log.settings = SettingsHistory(lambda: self.at_ms * MS)
        self.log.times = {offset: offset * MS for offset in range(10)}
        self.log.known_end = 10
        sealed = Sealed(entries=6, messages=6, size=1, last_publish_us=0, sealed_us=0)
        self.log.segments = (Segment(1, 0, 0, sealed), Segment(2, 0, None))
        for ledger_id, count in ((1, 7), (2, 4)):  # of the first, one is behind its end
            ledger = self.log.history.ledgers[ledger_id] = WrittenLedger(
                ledger_id, Replication(3, 3, 2)
            )
            ledger.payloads += [
                pack_entry(b"x", count=1, first_number=number, publish_time_us=0)
                for number in range(count)
            ]

    def set(self, **overrides: Any) -> None:
        self.settings.became(TopicConfig(1, overrides))

    def why(self, offset: int) -> str | None:
        return self.settings.why_acknowledged(self.log, self.log.segments, offset)

    def refused(self) -> list[str]:
        """The violations after an append was refused for a quota."""
        self.log.check_refusal(FencelogError(ErrorCode.BACKLOG_QUOTA_EXCEEDED, "full"))
        return self.log.history.violations


def test_bytes_are_spread_over_the_messages_of_a_ledger() -> None:
    one = Set()
    size = len(one.log.history.ledgers[1].payloads[0])
    found = [most_bytes_from(one.log, one.log.segments, offset) for offset in (0, 5, 6, 9, 10)]
    assert found == [10 * size, 5 * size, 4 * size, size, 0]


def test_a_message_counts_as_acknowledged_by_a_setting_that_was_in_force() -> None:
    one = Set()
    one.set()
    assert {one.why(offset) for offset in range(10)} == {None}
    one.set(ttl_ms=4)
    assert [one.why(offset) for offset in (5, 6)] == [EXPIRED, None]
    assert one.why(11) == EXPIRED  # it is not there
    del one.log.times[6]
    assert one.why(6) == EXPIRED  # as its entry says
    one.set()
    one.at_ms = 12
    assert [one.why(offset) for offset in (7, 8)] == [EXPIRED, None]  # not every owner has heard
    one.at_ms = 10 + LATE_US // MS
    one.log.times[20] = one.at_ms * MS
    one.at_ms += 10_000
    assert one.why(20) is None


def test_a_quota_evicts_what_is_over_it() -> None:
    one = Set()
    size = len(one.log.history.ledgers[1].payloads[0])
    one.set(backlog_quota_bytes=4 * size, backlog_action="refuse")
    assert one.why(0) is None
    one.set(backlog_quota_bytes=4 * size, backlog_action="evict")
    assert [one.why(offset) for offset in (5, 6)] == [EVICTED, None]
    aged = Set()
    aged.set(backlog_quota_ms=4, backlog_action="evict")
    assert [aged.why(offset) for offset in (5, 6)] == [EVICTED, None]


def test_an_append_is_refused_for_a_backlog_that_may_be_there() -> None:
    def judged(*, is_subscribed: bool = True, **overrides: Any) -> list[str]:
        one = Set()
        one.set(**overrides)
        if is_subscribed:
            one.log.cursor("a", "s")
        return one.refused()

    assert judged(backlog_quota_bytes=10, backlog_action="hold") == []
    assert judged(backlog_quota_ms=5, backlog_action="refuse") == []
    for wrong in (
        judged(backlog_quota_bytes=10, backlog_action="refuse", is_subscribed=False),
        judged(backlog_quota_bytes=10_000, backlog_action="refuse"),
        judged(backlog_quota_ms=15, backlog_action="refuse"),
        judged(backlog_quota_bytes=10, backlog_action="evict"),
        judged(),
    ):
        assert "refused for a quota, and no backlog is over one" in wrong[0]


def test_what_is_expired_is_counted() -> None:
    one = Set()
    one.set(ttl_ms=4)
    cursor = one.log.cursor("a", "s")
    cursor.protect(0)
    cursor.acknowledging([0])
    one.log.state.on_acked("a", [0, 1, 2])
    assert one.log.counts[EXPIRED] == 2
    assert (cursor.needed(4), cursor.needed(9)) == (4, 6)
    one.log.state.on_acked("a", [6])
    assert "[6] are acknowledged for s, nobody has asked" in one.log.history.violations[0]
