"""The verdicts of the oracles of deliveries and ledger lists on histories made by hand."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.broker.ledger_list.codec import encode_ledger_list
from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed, Segment
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster
from fencelog.ledgers.record_batch import Message
from tests.sim.metadata.watch import MetadataWatch
from tests.sim.oracle.history import History
from tests.sim.oracle.list_watch import LedgerListWatch
from tests.sim.oracle.log_history import LogHistory
from tests.sim.oracle.state_watch import DurableCursor
from tests.sim.oracle.subscription_history import Given, SubscriptionHistory

PATH = "/logs/topic/0"


@dataclass(eq=False)
class Owner:
    """An instance that nobody runs."""

    epoch: int
    earliest_offset: int = 0


class Deliveries:
    """A subscription whose owner is of epoch 1, unless said otherwise. What is acknowledged is
    durable at once, unless said otherwise."""

    def __init__(self, kind: str) -> None:
        info = SubscriptionInfo("s", "00", SubscriptionConfig(type=kind))
        self.seen = SubscriptionHistory(LogHistory(History(), 0), info)
        self.state = self.seen.log.state
        self.state.on_acked = lambda subscription_id, offsets: self.seen.check_acked(offsets)
        self.durable = self.state._cursors["00"] = DurableCursor(0)
        self.owners: dict[int, Owner] = {}

    def owner(self, epoch: int) -> Owner:
        if epoch not in self.owners:
            self.state.openings[epoch] = {"00": self.durable.copy()}
            self.owners[epoch] = Owner(epoch)
            self.seen.opened(self.owners[epoch], 0)
        return self.owners[epoch]

    def pull(self, consumer: str, *offsets: int, at_s: float, epoch: int = 1) -> None:
        messages = [
            PulledMessage(offset, 0, Message(b"%d" % offset, b"key%d" % (offset % 2)), ack_id, 1)
            for offset in offsets
            for ack_id in [f"{offset} of {consumer} at {at_s}"]
        ]
        self.seen.given.update({each.ack_id: Given(each.offset, 0) for each in messages})
        owner = self.owner(epoch)
        self.seen.handed_out(
            messages,
            consumer,
            owner=owner,
            seeks=self.seen.views[owner].seeks,
            began_s=at_s,
            now_s=at_s + 0.01,
            lease_s=1.0,
        )

    def ack(self, *offsets: int, at_s: float, epoch: int = 1, stale: tuple[int, ...] = ()) -> None:
        owner = self.owner(epoch)
        ask = self.seen.acknowledging(offsets, owner, at_s)
        for offset in offsets:
            if offset not in stale:
                self.durable.add(offset, offset + 1)
        self.seen.acknowledged(ask, stale, owner)

    def seek(self, offset: int, *, epoch: int = 1) -> None:
        seek = self.seen.seeking(offset, self.owner(epoch))
        self.durable = DurableCursor(offset, self.durable.generation + 1)
        self.state._cursors["00"] = self.durable
        self.seen.sought(seek, offset)

    @property
    def violations(self) -> list[str]:
        return self.seen.log.history.violations


def test_leases_that_end_and_new_owners_are_right() -> None:
    one = Deliveries("shared")
    one.pull("a", 0, 1, at_s=0, epoch=0)
    one.pull("a", 0, 1, at_s=0)
    one.ack(0, at_s=0.5)
    one.pull("b", 1, at_s=1.1)
    one.pull("a", 1, at_s=1.2, epoch=2)
    one.pull("a", 0, at_s=1.3, epoch=0)  # it does not know of the epochs since
    assert one.violations == []
    assert one.durable.acked_to == 1


def test_a_pull_that_was_given_up_keeps_nothing() -> None:
    one = Deliveries("shared")
    owner = one.owner(1)
    one.pull("a", 0, at_s=0)
    view = one.seen.views[owner]
    view.pulling["b"] += 1
    one.seen.check_leases({0: "a", 1: "b"}, owner)
    assert one.violations == []
    view.pulling["b"] -= 1
    one.seen.check_leases({0: "a", 1: "b"}, owner)
    assert "1 is kept for b, which was not given it" in one.violations[0]


def test_a_message_of_unknown_age_stays_with_its_consumer() -> None:
    """Its time to live may be over for all the oracle knows, until somebody is told its age."""
    one = Deliveries("shared")
    owner = one.owner(1)
    may_be_over = [True]
    one.seen.lawful.append(lambda offset: may_be_over[0])
    one.pull("a", 0, at_s=0)
    one.pull("a", at_s=0.1)
    may_be_over[0] = False
    one.seen.check_leases({0: "a"}, owner)
    assert one.violations == []


def test_a_message_that_was_trimmed_may_stay_with_its_consumer_for_a_while() -> None:
    """Retention may take it while a pull is under way: the owner forgets its lease afterwards."""
    one = Deliveries("failover")
    owner = one.owner(1)
    one.pull("a", 0, 1, at_s=0)
    owner.earliest_offset = 2
    one.pull("a", 2, at_s=0.1)
    one.seen.check_leases({1: "a", 2: "a"}, owner)
    assert one.violations == []


def test_what_is_with_somebody_or_acknowledged_does_not_come_again() -> None:
    twice, again, later = Deliveries("shared"), Deliveries("shared"), Deliveries("shared")
    twice.pull("a", 0, at_s=0)
    twice.pull("b", 0, at_s=0.9)
    assert "0 is with a, and with b" in twice.violations[0]
    for one, epoch in ((again, 1), (later, 2)):
        one.pull("a", 0, at_s=0)
        one.ack(0, at_s=0.1)
        one.pull("a", 0, at_s=0.2, epoch=epoch)
        assert "0 was acknowledged, and is handed out again" in one.violations[0]


def test_an_id_of_another_delivery_changes_nothing_of_who_has_the_message() -> None:
    one = Deliveries("shared")
    one.pull("a", 0, at_s=0)
    one.pull("b", 0, at_s=1.1)
    assert one.seen.named(["0 of a at 0", "0 of b at 1.1"], one.owner(1), 2.2) == [0, 0]
    assert one.seen.named(["0 of b at 1.1"], one.owner(1), 1.2) == [0]
    assert one.violations == []
    assert one.seen.named(["0 of a at 0"], one.owner(1), 1.2) == [0]
    assert "0 is with b, and another id changes that" in one.violations[0]
    twice = Deliveries("shared")
    twice.pull("a", 0, 0, at_s=0)
    assert "handed out twice at once: [0, 0]" in twice.violations[0]


def test_keys_and_order() -> None:
    keys, holders, order = Deliveries("key_shared"), Deliveries("failover"), Deliveries("exclusive")
    keys.pull("a", 0, at_s=0)
    keys.pull("b", 1, at_s=0.1)
    assert keys.violations == []
    keys.pull("b", 2, at_s=0.2)
    assert "2 of b'key0' goes to b" in keys.violations[0]
    holders.pull("a", 0, at_s=0)
    holders.pull("b", 1, at_s=0.5)
    assert "1 goes to b while {'a'} hold messages" in holders.violations[0]
    order.pull("a", 1, at_s=0)
    assert "1 is handed out before 0" in order.violations[0]


def test_what_is_acknowledged_during_a_pull_is_with_nobody_after_it() -> None:
    one, earlier = Deliveries("key_shared"), Deliveries("key_shared")
    one.ack(0, at_s=0.05)
    one.pull("a", 0, 1, at_s=0)
    one.pull("b", 2, at_s=0.1)
    assert one.violations == []
    one.pull("b", 3, at_s=0.2)
    assert "3 of b'key1' goes to b" in one.violations[0]
    earlier.ack(0, at_s=0.05)
    earlier.pull("a", 0, at_s=0.06)
    assert "0 was acknowledged, and is handed out again" in earlier.violations[0]


def test_what_may_still_be_leased_is_passed_over_and_nothing_longer() -> None:
    one = Deliveries("exclusive")
    one.pull("a", 0, at_s=0)
    one.pull("a", 1, at_s=1.005)  # the lease of 0 ended between 1.0 and 1.01
    assert one.violations == []
    one.pull("a", 2, at_s=1.5)
    assert "2 is handed out before 0" in one.violations[0]


def test_what_was_refused_or_is_not_durable_has_to_come_again() -> None:
    refused, lost = Deliveries("exclusive"), Deliveries("exclusive")
    refused.pull("a", 0, 1, at_s=0)
    refused.ack(0, 1, at_s=0.1, stale=(0,))
    assert refused.violations == []
    refused.pull("a", 2, at_s=1.5)
    assert "2 is handed out before 0" in refused.violations[0]
    lost.pull("a", 0, at_s=0)
    lost.seen.acknowledging([0], lost.owner(1), 0.1)  # nobody knows what became of it
    lost.pull("a", 1, at_s=1.2)
    assert lost.violations == []
    lost.pull("a", 1, at_s=1.3, epoch=2)
    assert "1 is handed out before 0" in lost.violations[0]


def test_what_is_confirmed_is_durable_and_what_is_durable_was_asked_for() -> None:
    early, much = Deliveries("shared"), Deliveries("shared")
    early.pull("a", 0, at_s=0)
    early.seen.acknowledged(early.seen.acknowledging([0], early.owner(1), 0.1), (), early.owner(1))
    assert "acks of [0] are confirmed, and not durable" in early.violations[0]
    much.pull("a", 0, 1, at_s=0)
    much.ack(0, at_s=0.1)
    much.seen.check_acked([0])
    assert much.violations == []
    much.seen.check_acked([0, 1])
    assert "1 counts as acknowledged, and nobody has asked for it" in much.violations[0]


def test_a_seek_back_lets_all_come_again_and_asks_for_it() -> None:
    one = Deliveries("shared")
    one.pull("a", 0, 1, 2, at_s=0)
    one.ack(0, 1, 2, at_s=0.1)
    one.seen.check_trimmed(3)
    one.seek(1)
    assert one.seen.outdates(0, one.owner(1))
    one.pull("a", 1, 2, at_s=0.2)
    one.seen.check_trimmed(1)
    assert one.violations == []
    one.seen.check_trimmed(2)
    assert "trimmed to 2, 1 is not acknowledged durably" in one.violations[0]
    one.seen.check_acked([1])
    assert "1 counts as acknowledged" in one.violations[1]


def test_a_tail_does_not_go_back_within_an_instance() -> None:
    log, owner = LogHistory(History(), 0), Owner(1)
    log.begun(1, 2)
    log.tail_shown(5, log.floor_of(owner, 1), owner)
    log.tail_shown(5, log.floor_of(owner, 1), owner)
    log.tail_shown(3, log.floor_of(Owner(1), 1), Owner(1))
    assert log.history.violations == []
    log.tail_shown(4, log.floor_of(owner, 1), owner)
    assert "a tail of 4 is shown, the same had told 5" in log.history.violations[0]
    log.tail_shown(1, log.floor_of(Owner(1), 1), owner)
    assert "a tail of 1 is shown, the same had told 2" in log.history.violations[1]


def test_definite_answers_of_who_was_replaced_are_seen() -> None:
    log = LogHistory(History(), 0)
    log.begun(1, 2)
    log.denied(3, log.known_end)
    assert log.history.violations == []
    log.denied(2, log.known_end)
    assert "2 is denied, the log was known to reach 2" in log.history.violations[0]
    one = Deliveries("shared")
    one.pull("a", 0, at_s=0, epoch=2)
    ack_ids = list(one.seen.given)
    one.seen.given = {ack_id: Given(0, 0, 2) for ack_id in ack_ids}
    one.seen.called_stale(ack_ids, one.owner(2))
    assert one.violations == []
    one.seen.called_stale(ack_ids, one.owner(1))
    assert "epoch 1 calls 0 of 2 stale" in one.violations[0]


def test_who_was_replaced_turns_nobody_away_for_others() -> None:
    busy = FencelogError(ErrorCode.SUBSCRIPTION_BUSY, "another one")
    full = FencelogError(ErrorCode.LIMIT_REACHED, "too many")
    gone = FencelogError(ErrorCode.NO_OWNER, "who knows")
    one = Deliveries("exclusive")
    for error in (busy, full, gone):
        one.seen.turned_away(error, one.owner(2), 2)
    one.seen.turned_away(gone, one.owner(1), 2)
    assert one.violations == []
    for error in (busy, full):
        one.seen.turned_away(error, one.owner(1), 2)
    assert [text.split(": ")[0] for text in one.violations] == ["invariant 25"] * 2


class Lists:
    """A list of ledgers that is changed without any broker."""

    def __init__(self) -> None:
        self.history = History()
        self.tree = MemoryCluster()
        MetadataWatch(self.history, self.tree)
        self.watch = LedgerListWatch(self.history, self.tree, [LogHistory(self.history, 0)])
        for path in ("/logs", "/logs/topic"):
            self.tree.create(path, b"")
        self._changes = 0
        self._version = self.tree.create(PATH, encode_ledger_list(LedgerList()))

    def change(self, *segments: Segment, epoch: int = 1) -> list[str]:
        """The violations that this adds."""
        known = len(self.history.violations)
        ledger_list = LedgerList(epoch=epoch, token=str(self._changes), segments=segments)
        self._version = self.tree.set(PATH, encode_ledger_list(ledger_list), self._version)
        self._changes += 1
        return self.history.violations[known:]


def test_lists_of_ledgers() -> None:
    first, second, third = Segment(1, 0, 0), Segment(2, 0, None), Segment(3, 0, None)
    sealed = Sealed(entries=1, messages=1, size=1, last_publish_us=0, sealed_us=0)
    lists = Lists()
    assert lists.change(first) == []
    assert lists.change(first, second) == []
    assert "ledgers [1] are not sealed" in lists.change(first, second, third)[0]
    assert "ledger 3 was dropped, and not proved empty" in lists.change(first, second)[0]
    gap = lists.change(Segment(1, 0, 0, sealed=sealed), second)
    assert "a gap before ledger 2" in gap[0]
    assert "ledger 1 is listed, and not there" in gap[1]
    again = lists.change(Segment(1, 0, 0), Segment(2, 0, 1), epoch=3)
    assert any("epoch 3 follows 1" in text for text in again)
    assert any("sealed ledger 1 was changed" in text for text in again)
    assert any("ledgers [1] are open" in text for text in again)
