"""What the oracles of deliveries and of lists of ledgers say to histories made by hand."""

from __future__ import annotations

from broker_history import LogHistory
from chain_watch import ChainWatch
from history import History
from metadata_watch import MetadataWatch
from subscription_history import SubscriptionHistory

from fencelog.broker.chain import Chain, Sealed, Segment
from fencelog.broker.chain_codec import encode_chain
from fencelog.broker.subscription_answers import PulledMessage
from fencelog.broker.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.metadata_memory import MemoryCluster
from fencelog.ledgers.record_batch import Message

PATH = "/logs/topic/0"


class Deliveries:
    """A subscription whose owner is "k1" in epoch 1, unless said otherwise."""

    def __init__(self, kind: str) -> None:
        info = SubscriptionInfo("s", "00", SubscriptionConfig(type=kind))
        self.seen = SubscriptionHistory(LogHistory(History(), 0), info)
        self.seen.is_open = True

    def pull(
        self, consumer: str, *offsets: int, at_s: float, owner: str = "k1", epoch: int = 1
    ) -> None:
        messages = [
            PulledMessage(offset, 0, Message(b"%d" % offset, b"key%d" % (offset % 2)), "", 1)
            for offset in offsets
        ]
        self.seen.handed_out(
            messages,
            consumer,
            instance=owner,
            epoch=epoch,
            began_s=at_s,
            now_s=at_s,
            lease_s=1.0,
        )

    def ack(self, *offsets: int, at_s: float, epoch: int = 1) -> None:
        self.seen.acknowledging(offsets)
        self.seen.acknowledged(offsets, epoch, at_s)

    @property
    def violations(self) -> list[str]:
        return self.seen.log.history.violations


def test_leases_that_end_and_new_owners_are_right() -> None:
    one = Deliveries("shared")
    one.pull("a", 0, 1, at_s=0)
    one.ack(0, at_s=0.5)
    one.pull("b", 1, at_s=1.1)
    one.pull("a", 1, at_s=1.2, owner="k2", epoch=2)
    one.pull("a", 0, at_s=1.3, owner="k0", epoch=0)  # it does not know of the epochs since
    assert one.violations == []
    assert one.seen.needed == 1


def test_what_is_with_somebody_or_acknowledged_does_not_come_again() -> None:
    twice, again, later = Deliveries("shared"), Deliveries("shared"), Deliveries("shared")
    twice.pull("a", 0, at_s=0)
    twice.pull("b", 0, at_s=0.9)
    assert "0 is with a, and with b" in twice.violations[0]
    for one, epoch in ((again, 1), (later, 2)):
        one.pull("a", 0, at_s=0)
        one.ack(0, at_s=0.1)
        one.pull("a", 0, at_s=0.2, owner=f"k{epoch}", epoch=epoch)
        assert "0 was acknowledged, and is handed out again" in one.violations[0]


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


def test_a_seek_back_lets_all_come_again_and_asks_for_it() -> None:
    one = Deliveries("shared")
    one.pull("a", 0, 1, 2, at_s=0)
    one.ack(0, 1, 2, at_s=0.1)
    assert one.seen.needed == 3
    before = one.seen.seeking(1)
    one.seen.sought(one.seen.seeks_begun, 1, before)
    assert one.seen.needed == 1
    one.pull("a", 1, 2, at_s=0.2)
    one.seen.check_trimmed(1)
    assert one.violations == []
    one.seen.check_trimmed(2)
    assert "trimmed to 2, nobody acknowledged 1" in one.violations[0]


class Lists:
    """A list of ledgers that is changed without any broker."""

    def __init__(self) -> None:
        self.history = History()
        self.tree = MemoryCluster()
        MetadataWatch(self.history, self.tree)
        self.watch = ChainWatch(self.history, self.tree, [LogHistory(self.history, 0)])
        for path in ("/logs", "/logs/topic"):
            self.tree.create(path, b"")
        self._changes = 0
        self.tree.create(PATH, encode_chain(Chain()))

    def change(self, *segments: Segment, epoch: int = 1) -> list[str]:
        """The violations that this adds."""
        known = len(self.history.violations)
        chain = Chain(epoch=epoch, token=str(self._changes), segments=segments)
        self.tree.set(PATH, encode_chain(chain), self._changes)
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
