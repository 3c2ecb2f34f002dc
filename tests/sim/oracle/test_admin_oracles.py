"""The verdicts of the administration oracles on histories made by hand: incarnations, who may
append, of compacted views. Of cursors: ``oracle/cursors/test_cursor_oracles.py``."""

from __future__ import annotations

from dataclasses import replace

from fencelog.broker.append.conditions import NO_CONDITIONS, AppendConditions
from fencelog.broker.ledger_list.codec import encode_ledger_list
from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed, Segment
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.registry.subscription_registry import RegisteredSubscription, encode_registered
from fencelog.broker.registry.topic_node import TopicConfig, TopicInfo, encode_topic
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange, producer_digest
from fencelog.ledgers.metastore.memory import MemoryCluster
from tests.sim.admin.edge import check_view
from tests.sim.oracle.access_history import AccessHistory, Change, Held
from tests.sim.oracle.cursors.settings_history import LATE_US, SettingsHistory
from tests.sim.oracle.durable_access import DurableAccess
from tests.sim.oracle.history import History
from tests.sim.oracle.incarnation_lists import IncarnationLedgerLists
from tests.sim.oracle.incarnations import TOPIC_PATH, AdminLog, Incarnations
from tests.sim.oracle.log_history import payload_of
from tests.sim.plan.admin_draw import draw_admin_plan, is_administered
from tests.sim.plan.admin_plan import STEPS
from tests.sim.plan.topic_forwards import CUT_ANSWERS, HTTP_TARGETS
from tests.sim.plan.topic_plan import TOPIC_TARGETS
from tests.sim.topics.brokers import TOPIC

CHANGES = ({"roll_entries": 2}, {"retention_bytes": 1})


class Registry:
    """A tree that is changed without any broker."""

    def __init__(self) -> None:
        self.history = History()
        self.tree = MemoryCluster()
        self.seen = Incarnations(self.history, self.tree, CHANGES)
        self.ledger_lists = IncarnationLedgerLists(self.history, self.tree, self.seen)
        for path in ("/topics", f"/topics/{TOPIC.namespace}", "/logs", "/subscriptions"):
            self.tree.create(path, b"")

    def make(self, topic_id: str, partitions: int = 1, **settings: int) -> None:
        self.tree.create(TOPIC_PATH, self._node(topic_id, partitions, settings))
        for path in (f"/logs/{topic_id}", f"/subscriptions/{topic_id}"):
            self.tree.create(path, b"")

    def change(self, topic_id: str, partitions: int = 1, **settings: int) -> list[str]:
        """The violations that this adds."""
        known = len(self.history.violations)
        version = self.tree.get(TOPIC_PATH).version
        self.tree.set(TOPIC_PATH, self._node(topic_id, partitions, settings), version)
        return self.history.violations[known:]

    def delete(self) -> None:
        self.tree.delete(TOPIC_PATH, self.tree.get(TOPIC_PATH).version)

    def list(self, topic_id: str, ledger_list: LedgerList) -> list[str]:
        """Write a partition's list of ledgers."""
        known = len(self.history.violations)
        path = f"/logs/{topic_id}/0"
        if (topic_id, 0) not in self.ledger_lists.by_key:
            self.tree.create(path, encode_ledger_list(ledger_list))
        else:
            self.tree.set(path, encode_ledger_list(ledger_list), self.tree.get(path).version)
        return self.history.violations[known:]

    def _node(self, topic_id: str, partitions: int, settings: dict[str, int]) -> bytes:
        return encode_topic(TopicInfo(TOPIC, topic_id, TopicConfig(partitions, settings), 0))


def test_a_topic_that_is_deleted_made_anew_and_grows_is_right() -> None:
    registry = Registry()
    registry.make("one")
    assert registry.change("one", roll_entries=2) == []
    registry.delete()
    registry.make("two")
    assert registry.change("two", 2) == []
    assert registry.change("two", 2, retention_bytes=1) == []
    assert [log.partition for log in registry.seen.living_logs] == [0, 1]
    assert registry.history.violations == []


def test_an_id_that_comes_back_is_seen() -> None:
    registry = Registry()
    registry.make("one")
    registry.delete()
    registry.make("two")
    back = registry.change("one", roll_entries=2)
    assert "two became one by a set" in back[0]
    assert "topic one was deleted, and is back" in back[1]


def test_what_is_confirmed_of_a_topic_is_not_older_than_the_request() -> None:
    registry = Registry()
    states, seen = registry.seen.states, registry.seen
    registry.make("one")
    before = TopicInfo(TOPIC, "one", TopicConfig(1, {}), 0)
    registry.change("one", roll_entries=2)
    after = TopicInfo(TOPIC, "one", TopicConfig(1, {"roll_entries": 2}), 0)
    seen.check_confirmed(before, len(states) - 1)
    seen.check_confirmed(after, len(states))
    registry.delete()
    seen.check_confirmed(after, len(states) - 1)
    seen.check_confirmed(None, len(states))
    assert registry.history.violations == []
    seen.check_confirmed(after, len(states))
    seen.check_confirmed(None, 1)
    seen.check_confirmed(before, 3)
    assert len(registry.history.violations) == 2


def test_lost_settings_and_partitions_are_seen() -> None:
    registry = Registry()
    registry.make("one", 2, roll_entries=2)
    assert "became" in registry.change("one", 2, retention_bytes=1)[0]
    assert "2 partitions became 1" in registry.change("one", 1, retention_bytes=1)[0]
    info = TopicInfo(TOPIC, "one", TopicConfig(2, {"roll_entries": 9}), 0)
    registry.seen.check_stood(info)
    assert "never had" in registry.history.violations[-1]


def test_a_subscription_needs_all_of_a_partition_that_comes_later() -> None:
    registry = Registry()
    registry.make("one")
    info = SubscriptionInfo("s", "00", SubscriptionConfig(), "latest")
    node = encode_registered(RegisteredSubscription(info, 1, 0))
    registry.tree.create("/subscriptions/one/s", node)
    registry.change("one", 2)
    first, second = registry.seen.living_logs
    first.trimmed(5)
    assert registry.history.violations == []
    second.trimmed(1)
    assert "trimmed to 1, s has to see 0" in registry.history.violations[0]
    path = "/subscriptions/one/s"
    registry.tree.delete(path, registry.tree.get(path).version)
    second.trimmed(2)
    assert len(registry.history.violations) == 1


def test_a_partition_that_is_heard_of_late_owes_nothing_to_what_was_deleted() -> None:
    """A creator that was slower than a deleter is confirmed: there need be no cursor any more."""
    registry = Registry()
    registry.make("one", 2)
    path = "/subscriptions/one/s"
    info = SubscriptionInfo("s", "00", SubscriptionConfig(), "earliest")
    registry.tree.create(path, encode_registered(RegisteredSubscription(info, 2, 0)))
    assert not registry.seen.log("one", 0).cursor("00", "s").is_dropped
    registry.tree.delete(path, registry.tree.get(path).version)
    for partition in range(2):
        cursor = registry.seen.log("one", partition).cursor("00", "s")
        cursor.protect(0)
        assert cursor.is_dropped
        assert cursor.needed(3) is None
    assert not registry.seen.log("one", 1).cursor("01", "s").is_dropped


def test_lists_of_topics_that_are_gone() -> None:
    registry = Registry()
    registry.make("one")
    begun = LedgerList(epoch=1, token="a", segments=(Segment(1, 0, 0, epoch=1),))
    registry.list("one", LedgerList())
    registry.list("one", replace(begun, token="b"))
    assert "is marked deleted, and its topic is not" in registry.list("one", begun.as_deleted())[0]
    late = Registry()
    late.make("one")
    late.delete()
    assert late.list("one", LedgerList()) == []
    assert "it is taken over" in late.list("one", begun)[-1]
    assert late.list("one", replace(begun, token="c").as_deleted()) == []
    assert "after it was marked" in late.list("one", replace(begun, token="d"))[0]


def test_what_has_ended_stays_so() -> None:
    sealed = Sealed(entries=1, messages=1, size=1, last_publish_us=0, sealed_us=0)
    open_, closed = Segment(1, 0, 0, epoch=1), Segment(1, 0, 0, sealed, epoch=1)
    lists = Registry()
    lists.make("one")
    lists.list("one", LedgerList(epoch=1, segments=(open_,)))
    ended = lists.list("one", LedgerList(epoch=1, token="a", segments=(open_,), terminated=True))
    assert any("it has ended, and ledgers [1] are not sealed" in text for text in ended)
    lists.list("one", LedgerList(epoch=1, token="b", segments=(closed,), terminated=True))
    on = LedgerList(epoch=1, token="c", segments=(closed, Segment(2, 0, 1, epoch=1)))
    again = lists.list("one", on)
    assert any("it had ended, and goes on" in text for text in again)
    assert any("it had ended, and got a ledger" in text for text in again)


# -- who may append --------------------------------------------------------------------------------

P, Q = b"p" * 16, b"q" * 16


def claimed(
    access: AccessHistory,
    producer: bytes,
    given: int,
    at_s: float,
    *,
    owner: int = 1,
    tail: int = 0,
) -> str | None:
    change = access.holder.begin(Held(producer, None), owner, at_s)
    wrong = access.claimed(change, producer, given)
    access.holder.confirmed(change, at_s + 0.5, tail=tail)
    return wrong


def by(producer: bytes, epoch: int) -> AppendConditions:
    return AppendConditions(SequenceRange(1, RANGE_SEQUENCE, producer, epoch, 0))


def test_who_holds_the_partition_may_append_and_nobody_else() -> None:
    access = AccessHistory()
    assert access.appended(NO_CONDITIONS, 0, 0.0, 0.5) is None
    assert claimed(access, P, 1, 1.0, tail=1) is None
    assert access.appended(by(P, 1), 1, 2.0, 2.1) is None
    assert access.appended(NO_CONDITIONS, 0, 0.9, 2.0) is None  # written before it
    assert access.appended(NO_CONDITIONS, 2, 2.0, 2.1) is not None
    assert access.appended(NO_CONDITIONS, 2, 0.9, 2.1) is not None  # begun before, written after
    assert access.appended(by(P, 2), 2, 2.0, 2.1) is not None
    release = access.holder.begin(None, 1, 3.0)
    assert access.appended(NO_CONDITIONS, 2, 3.1, 3.2) is None  # it may have been released
    access.holder.confirmed(release, 3.5, tail=3)
    assert access.appended(NO_CONDITIONS, 3, 4.0, 4.1) is None


def test_who_was_followed_is_shut_out_for_good_and_epochs_grow() -> None:
    access = AccessHistory()
    claimed(access, P, 1, 1.0)
    assert claimed(access, Q, 2, 2.0) is None
    access.holder.confirmed(access.holder.begin(None, 1, 3.0), 3.5, tail=0)
    assert access.appended(by(Q, 2), 0, 4.0, 4.1) is None
    assert "was shut out" in str(access.appended(by(P, 1), 0, 4.0, 4.1))
    assert "gives epoch 2 after one that gave 2" in str(claimed(access, P, 2, 5.0))


def test_tokens_and_changes_of_unknown_outcome() -> None:
    access = AccessHistory()
    unknown: Change = access.token.begin("a", 1, 1.0)
    access.token.unknown(unknown, 1.5)
    for token in (None, "a"):
        assert access.appended(AppendConditions(fencing_token=token), 0, 2.0, 2.1) is None
    refused = access.token.begin("b", 1, 2.0)
    access.token.refused(refused)
    assert access.appended(AppendConditions(fencing_token="b"), 0, 2.5, 2.6) is not None
    access.token.confirmed(access.token.begin("c", 2, 3.0), 3.5, tail=0)
    assert access.newest_token() == "c"
    assert access.appended(AppendConditions(fencing_token="c"), 0, 4.0, 4.1) is None
    assert "which is over" in str(access.appended(AppendConditions(fencing_token="a"), 0, 4.0, 4.1))


def test_refusals_of_who_may_append_are_seen() -> None:
    access = AccessHistory()
    by_token = FencelogError(ErrorCode.PRECONDITION_FAILED, "another token")
    by_claim = FencelogError(ErrorCode.PRODUCER_FENCED, "another epoch", epoch=1)
    a, b = (AppendConditions(fencing_token=token) for token in "ab")
    assert access.refused(a, by_token, 0.0, 0.1) is None
    assert "was the partition's" in str(access.refused(NO_CONDITIONS, by_token, 0.0, 0.1))
    offset = FencelogError(ErrorCode.PRECONDITION_FAILED, "another offset", next_offset=1)
    assert access.refused(NO_CONDITIONS, offset, 0.0, 0.1) is None
    access.token.confirmed(access.token.begin("a", 1, 1.0), 1.5, tail=0)
    assert access.refused(a, by_token, 1.2, 1.6) is None  # refused before it was there
    assert access.refused(a, by_token, 1.6, 1.7) is not None
    access.token.begin("b", 2, 2.0)
    for conditions in (a, b):  # which of the two it is nobody knows
        assert access.refused(conditions, by_token, 2.1, 2.2) is None
    claimed(access, P, 1, 3.0)
    assert "which held the partition" in str(access.refused(by(P, 1), by_claim, 4.0, 4.1))
    assert access.refused(by(P, 2), by_claim, 4.0, 4.1) is None
    assert access.refused(NO_CONDITIONS, by_claim, 4.0, 4.1) is None
    access.holder.begin(Held(P, None), 2, 5.0)
    assert access.refused(by(P, 1), by_claim, 5.1, 5.2) is None


def test_what_was_confirmed_is_durable() -> None:
    access, name = AccessHistory(), "p"
    nobody = DurableAccess()
    assert access.check_durable(nobody) is None
    digest = producer_digest(name.encode())
    asked = access.holder.begin(Held(digest, None), 1, 1.0)
    for durable in (nobody, DurableAccess(holder=(name, 1))):
        assert access.check_durable(durable) is None
    access.claimed(asked, digest, 1)
    access.holder.confirmed(asked, 1.5, tail=0)
    for lacking in (nobody, DurableAccess(holder=(name, 2)), DurableAccess(holder=("q", 1))):
        assert "this is over" in str(access.check_durable(lacking))
    held = DurableAccess(holder=(name, 1))
    assert access.check_durable(held) is None
    access.token.begin("a", 1, 2.0)
    fenced = replace(held, token="a")
    assert access.check_durable(held) is access.check_durable(fenced) is None
    access.token.confirmed(access.token.changes[-1], 2.5, tail=0)
    assert "token is durably None" in str(access.check_durable(held))
    late = access.token.begin("b", 1, 2.1)  # beside the other
    assert access.check_durable(replace(held, token="b")) is None
    access.token.refused(late)
    assert access.check_durable(replace(held, token="b")) is not None


def test_a_state_ledger_that_forgets_who_is_shut_out_is_seen() -> None:
    previous = DurableAccess()
    for event in (["claimed", "p", 1], ["claimed", "q", 2], ["released", "q", 2]):
        previous.apply(event)
    assert (previous.holder, previous.given, previous.lowest) == (None, 2, {"p": 2, "q": 2})
    now = DurableAccess()
    now.apply(["lowest_epoch", "p", 2])
    assert list(now.forgotten(previous)) == [
        "epoch 2 was given",
        "q may not append below epoch 2",
    ]
    now.apply(["given_epoch", 2])
    now.apply(["lowest_epoch", "q", 2])
    assert list(now.forgotten(previous)) == []
    now.apply(["claimed", "p", 3])
    assert list(now.forgotten(previous)) == []


# -- views, plans ----------------------------------------------------------------------------------


def test_a_view_is_the_newest_of_every_key_and_all_without_one() -> None:
    def view(*offsets: int, horizon: int = 4) -> list[str]:
        log = AdminLog(History(), 0)
        for offset, key in enumerate((b"k", None, b"k", b"j", b"k")):
            log.new(b"%d" % offset, is_batch=False, key=key)
            log.seen(offset, (b"%d" % offset,), "read")
        check_view(log, {offset: b"%d" % offset for offset in offsets}, horizon)
        return log.history.violations

    assert view(1, 2, 3) == []
    assert view(1, 3, 4, horizon=5) == []
    assert "1 has no key" in view(2, 3)[0]
    assert "has {b'j': 3}" in view(1, 3)[0]
    assert "has 0 and 2 of b'k'" in view(0, 1, 2, 3)[0]
    strange = AdminLog(History(), 0)
    check_view(strange, {0: b"?"}, 1)
    assert "which nobody sent" in strange.history.violations[0]


def test_a_view_shows_a_removal_once() -> None:
    def view(*offsets: int, previous: int = 0, is_told: bool = True) -> list[str]:
        log = AdminLog(History(), 0)
        for offset, removes in enumerate((False, True)):
            sent = log.new(b"%d" % offset, is_batch=False, key=b"k")
            sent.removes, sent.attempts = removes, 1
            if is_told or not removes:
                log.seen(offset, sent.payloads, "read")
        check_view(log, {offset: b"%d" % offset for offset in offsets}, 2, previous)
        return log.history.violations

    assert view(1) == view(1, previous=1) == view(previous=2) == []
    assert view(is_told=False, previous=2) == []
    assert "has {}, newest are {b'k': 1}" in view(previous=1)[0]
    assert "has {b'k': 1}, newest are {}" in view(1, previous=2)[0]
    assert "has {b'k': 0}" in view(0, previous=2)[0]


def test_a_view_lacks_only_what_was_lost_to_it() -> None:
    def view(*offsets: int, lost: tuple[int, ...] = ()) -> list[str]:
        log = AdminLog(History(), 0)
        for offset, key in enumerate((b"k", None, b"k", b"j")):
            log.new(b"%d" % offset, is_batch=False, key=key)
            log.seen(offset, (b"%d" % offset,), "read")
        log.lost_to_view.update(lost)
        check_view(log, {offset: b"%d" % offset for offset in offsets}, 4)
        return log.history.violations

    assert view(0, 3, lost=(1, 2)) == view(3, lost=(1, 2)) == []
    assert "1 has no key" in view(0, 3, lost=(2,))[0]
    assert "has {b'k': 0, b'j': 3}" in view(0, 3, lost=(1,))[0]


def test_what_goes_before_the_view_has_it_is_seen_where_one_is_kept_up() -> None:
    now_us = 0
    log = AdminLog(History(), 0)
    log.settings = SettingsHistory(lambda: now_us)
    log.settings.became(TopicConfig(1, {}))
    log.check_gone(2, 1)
    assert log.lost_to_view == {1}
    log.trimmed(2)
    log.settings.became(TopicConfig(1, {"compaction_ms": 100}))
    log.check_gone(3, 2)  # not every owner has heard
    now_us = LATE_US + 1
    log.check_gone(4, 4)
    log.check_gone(1, 0)  # it is gone already
    assert log.history.violations == []
    log.check_gone(4, 3)
    assert "trimmed to 4, the compacted view ends at 3" in log.history.violations[0]
    assert log.lost_to_view == {1, 2, 3}


def test_an_empty_message_is_told_by_its_name() -> None:
    log = AdminLog(History(), 0)
    sent = log.new(b"a", b"b", is_batch=True, key=b"k")
    assert [payload_of(sent.message(payload)) for payload in sent.payloads] == [b"a", b"b"]
    sent.removes = True
    assert [payload_of(sent.message(payload)) for payload in sent.payloads] == [b"a", b"b"]
    assert sent.message(b"a").value == b""


def test_plans_play_every_step_and_faults_that_there_are() -> None:
    seeds = [seed for seed in range(1, 1200) if is_administered(seed)]
    plans = [draw_admin_plan(seed) for seed in seeds]
    assert {step.kind for plan in plans for step in plan.steps} == set(STEPS)
    kinds = {fault.kind for plan in plans for fault in plan.faults}
    assert kinds <= {*TOPIC_TARGETS, *HTTP_TARGETS, CUT_ANSWERS}
    assert len({str(plan) for plan in plans}) == len(plans)
