"""The verdicts on what an owner answers direct readers, on answers made by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fencelog.ledgers.client import Replication
from fencelog.ledgers.format.entry_header import pack_entry
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata, to_json
from fencelog.ledgers.record_batch import encode_values
from tests.sim.oracle.history import History, WrittenLedger
from tests.sim.oracle.incarnations import AdminLog
from tests.sim.plan.admin_draw import draw_admin_plan
from tests.sim.plan.topic_draw import draw_topic_plan
from tests.sim.topics.direct.plan import AT, EVERY
from tests.sim.topics.direct.ranges import ENDS_ONLY, EVERYTHING, Asked, Judge

TIME_US = 7


@dataclass(eq=False)
class Owner:
    """An instance that nobody runs."""

    epoch: int = 1
    earliest_offset: int = 0
    topic_id: str = "one"


class Answers:
    """A log of two ledgers: 1, closed, with offsets 0 to 3 in two batches of two; 2 with 4 to 6, a
    message an entry."""

    def __init__(self) -> None:
        self.log = AdminLog(History(), 0, topic_id="one")
        self.owner = Owner()
        self.log.begun(1, 0)
        self.log.listed = {1, 2}
        self.metadata = {n: self._made(n, sizes) for n, sizes in ((1, (2, 2)), (2, (1, 1, 1)))}
        closed = self.metadata[1].closed(last_entry_id=1, length=1)
        self.metadata[1] = closed
        self.log.history.metadata[1].append(closed)

    def _made(self, ledger_id: int, sizes: tuple[int, ...]) -> LedgerMetadata:
        first, payloads = 0, list[bytes]()
        for size in sizes:
            values = [b"%d/%d" % (ledger_id, first + n) for n in range(size)]
            batch = encode_values(values)
            payloads.append(
                pack_entry(batch, count=size, first_number=first, publish_time_us=TIME_US)
            )
            first += size
        ledger = WrittenLedger(ledger_id, Replication(3, 3, 2), payloads)
        ledger.confirmed = len(payloads) - 1
        self.log.history.ledgers[ledger_id] = ledger
        made = new_metadata(
            ledger_id, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
        )
        self.log.history.metadata[ledger_id] = [made]
        return made

    def segment(self, ledger_id: int, first_entry: int = 0, **changes: Any) -> dict[str, Any]:
        base, messages, last = {1: (0, 4, 1), 2: (4, 3, 2)}[ledger_id]
        return {
            "base_offset": base,
            "messages": messages,
            "first_entry": first_entry,
            "last_entry": last,
            "bytes": 1,
            "ledger": to_json(self.metadata[ledger_id]),
            **changes,
        }

    def judge(self, asked: Asked, *segments: dict[str, Any], **changes: Any) -> list[str]:
        """The violations of this answer."""
        judge = Judge(self.log, self.owner, asked)
        known = len(self.log.history.violations)
        judge.answered(
            {
                "topic_id": "one",
                "partition": 0,
                "earliest_offset": self.owner.earliest_offset,
                "end_offset": 7,
                "segments": list(segments),
                "bookies": {},
                **changes,
            }
        )
        return self.log.history.violations[known:]


def test_plans_have_direct_readers_and_such_as_stray() -> None:
    """A later story at the same place takes the plan of an earlier one."""
    for seed in (place + turn * EVERY for place in AT for turn in range(3)):
        plan = draw_topic_plan(seed)
        assert plan.moves
        assert {one.over_http for one in plan.direct} == {True, False}
        assert {reader.strays for reader in plan.readers} == {True}
        assert any(fault.kind == "believe" for fault in plan.faults)
    assert all(draw_admin_plan(seed).direct for seed in (80, 100, 164, 232, 240))


def test_answers_with_all_that_was_asked_for_are_right() -> None:
    one = Answers()
    assert one.judge(EVERYTHING, one.segment(1), one.segment(2)) == []
    assert one.log.messages == dict(
        enumerate((b"1/0", b"1/1", b"1/2", b"1/3", b"2/0", b"2/1", b"2/2"))
    )
    assert one.judge(Asked(3, confirmed=True), one.segment(1, 1), one.segment(2)) == []
    assert one.judge(Asked(4), one.segment(2)) == []
    assert one.judge(Asked(ENDS_ONLY)) == []
    assert one.judge(Asked(7)) == []
    one.owner.earliest_offset = 3
    assert one.judge(EVERYTHING, one.segment(1), one.segment(2)) == []
    counts = one.log.history.counts
    assert (counts["direct reads"], counts["confirmed ranges"]) == (6, 1)
    assert counts["direct reads of a trimmed log"] == counts["ranges within a ledger"] == 1
    assert counts["ranges from within a batch"] == 2
    one.owner.earliest_offset = 7
    assert one.judge(EVERYTHING, one.segment(2)) == []  # it is written still


def test_ranges_that_lack_something_are_seen() -> None:
    one = Answers()
    assert "cover 4 to 7" in one.judge(Asked(3), one.segment(2))[0]
    assert "cover 0 to 4" in one.judge(EVERYTHING, one.segment(1))[0]
    assert (
        "ranges from 1 begin with an entry of 2"
        in one.judge(Asked(1), one.segment(1, 1), one.segment(2))[0]
    )
    assert (
        "ledger 2 is left out up to entry 1"
        in one.judge(EVERYTHING, one.segment(1), one.segment(2, 1))[0]
    )
    assert (
        "up to entry 1 ends at 6, not at 7" in one.judge(Asked(4), one.segment(2, last_entry=1))[0]
    )


def test_ranges_with_something_else_are_seen() -> None:
    one = Answers()
    assert "have a ledger that ends at 4" in one.judge(Asked(4), one.segment(1), one.segment(2))[0]
    assert "of other/0 were answered" in one.judge(Asked(7), topic_id="other")[0]
    assert (
        "entry 3 of ledger 2, 2 is the last" in one.judge(Asked(4), one.segment(2, last_entry=3))[0]
    )
    one.log.listed = {1}
    assert "ledger 2, which is on no list" in one.judge(Asked(4), one.segment(2))[0]


def test_a_confirmed_answer_lacks_nothing_that_anybody_was_told() -> None:
    one = Answers()
    one.log.known_end = 9
    assert one.judge(Asked(7)) == []
    assert "7 is confirmed, the log was known to reach 9" in one.judge(Asked(7, confirmed=True))[0]
    one.log.known_end, one.log.known_start = 7, 5
    assert one.judge(Asked(7)) == []
    assert "begin at 0, 5 was told before" in one.judge(Asked(7, confirmed=True))[0]
    one.owner.earliest_offset = 5
    assert "begin at 4, the same had told 5" in one.judge(Asked(7), earliest_offset=4)[0]


def test_nothing_is_behind_the_end_of_a_log() -> None:
    one = Answers()
    one.log.ended(6)
    assert "a tail of 7 is shown, it ended at 6" in one.judge(Asked(7))[0]
    one.log.ended(5)
    assert "it ended at 6, and ends at 5" in one.log.history.violations[-2]
    assert "it ended at 5, 6 had been" in one.log.history.violations[-1]


def test_metadata_that_are_older_than_the_request_are_seen() -> None:
    one = Answers()
    old, versions = one.metadata[1], one.log.history.metadata[1]
    moved = replace(old.fragments[0], bookies=("b1", "b2", "b4"))
    new = replace(old, fragments=(moved,))
    asked, rest = Asked(0, confirmed=True, refresh=1), one.segment(2)
    assert one.judge(asked, one.segment(1), rest) == []
    versions.append(new)
    assert "is older, it was" in one.judge(asked, one.segment(1), rest)[0]
    assert one.judge(EVERYTHING, one.segment(1), rest) == []
    assert one.judge(Asked(0, refresh=1), one.segment(1), rest) == []  # from a server that is late
    assert one.judge(asked, one.segment(1, ledger=to_json(new)), rest) == []
    assert one.judge(Asked(0, refresh=99), one.segment(1), rest) == []
    assert one.log.history.counts["ranges with new metadata"] == 3
