"""The incarnations of the one topic of a history, as the metadata store has them: the oracle of its
registry.

All that is known of a log hangs below the topic's id, as in the brokers. So nothing of a previous
incarnation can be taken for the present one's: what an append, a read or a cursor is about is asked
of the instance that answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fencelog.broker.background.sweep import LOCK_PATH
from fencelog.broker.ledger_list.ledger_list import Segment
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.broker.registry.namespaces import TOPICS_PATH
from fencelog.broker.registry.subscription_registry import (
    SUBSCRIPTIONS_PATH,
    RegisteredSubscription,
    decode_registered,
)
from fencelog.broker.registry.topic_node import TopicConfig, TopicInfo, decode_topic
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster
from tests.sim.oracle.access_history import AccessHistory
from tests.sim.oracle.cursors.cursor_history import CursorHistory
from tests.sim.oracle.cursors.settings_history import SettingsHistory
from tests.sim.oracle.history import History
from tests.sim.oracle.limits.producer_bounds import ProducerBounds
from tests.sim.oracle.log_history import LogHistory
from tests.sim.topics.brokers import TOPIC

TOPIC_PATH = f"{TOPICS_PATH}/{TOPIC.namespace}/{TOPIC.topic}"


@dataclass(slots=True)
class AdminLog(LogHistory):
    """One partition of one incarnation."""

    topic_id: str = ""
    access: AccessHistory = field(default_factory=AccessHistory)
    cursors: dict[str, CursorHistory] = field(default_factory=dict)
    """Cursors by subscription id."""
    end: int | None = None
    """The end of the log, if it was terminated."""
    horizons: dict[int, int] = field(default_factory=dict)
    """The previous view's horizon, by the horizon of a compacted view."""
    registered: dict[str, RegisteredSubscription] = field(default_factory=dict)
    """All subscriptions that the topic has ever had, by id."""
    not_begun: dict[str, int] = field(default_factory=dict)
    """Where cursors were opened that had to begin where the log does, and it began lower."""
    settings: SettingsHistory = field(default_factory=lambda: SettingsHistory(lambda: 0))
    segments: tuple[Segment, ...] = ()
    """Its ledgers, as the list has them."""
    lost_to_view: set[int] = field(default_factory=set)
    """Messages that went before the compacted view had them."""

    def __post_init__(self) -> None:
        LogHistory.__post_init__(self)
        self.state.on_acked, self.state.on_opened = self._acked, self._opened

    def violate(self, invariant: int, text: str) -> None:
        self.history.violate(invariant, f"{self.topic_id[:4]}/{self.partition}: {text}")

    def trimmed(self, offset: int) -> None:
        durable = self.state.cursors()
        for subscription_id, cursor in self.cursors.items():
            needed = cursor.needed(offset)
            if needed is not None and offset > needed:
                self.violate(20, f"trimmed to {offset}, {cursor.name} has to see {needed}")
            if subscription_id in durable and not cursor.is_dropped:
                acked_to = durable[subscription_id].acked_to
                if offset > acked_to:  # what was asked is no acknowledgement yet
                    self.violate(20, f"trimmed to {offset}, {cursor.name} has acked to {acked_to}")
        self.counts["trims"] += 1
        self.start_offset = offset

    def _acked(self, subscription_id: str, offsets: list[int]) -> None:
        """Check that what has become durably acknowledged was so by a request (18)."""
        cursor = self.cursor(subscription_id)
        if wrong := cursor.unasked(offsets):
            self.violate(18, f"{wrong[:5]} are acknowledged for {cursor.name}, nobody has asked")
        for offset in offsets:
            why = None if cursor.asked.get(offset) else self._why_lawful(offset)
            if why is not None:
                self.counts[why] += 1
                cursor.ended.add(offset)

    def _opened(self, subscription_id: str, offset: int) -> None:
        """Check that a cursor which has become durable leaves nothing out (18)."""
        cursor = self.cursor(subscription_id)
        if cursor.is_dropped:
            return
        if wrong := cursor.passed(offset):
            self.violate(18, f"{cursor.name} is opened at {offset}, it has to see {wrong[:5]}")
        if self._begins_with_log(subscription_id) and offset > self.start_offset:
            self.not_begun[subscription_id] = offset  # it may be about to be trimmed
        cursor.protect(offset)

    def _begins_with_log(self, subscription_id: str) -> bool:
        registered = self.registered.get(subscription_id)
        return registered is not None and (
            registered.info.start == "earliest" or registered.partitions <= self.partition
        )

    def check_begun(self) -> None:
        """Check, once nothing is on its way, that cursors which had to begin where the log does
        left nothing of it out (18)."""
        for subscription_id, offset in self.not_begun.items():
            cursor = self.cursor(subscription_id)
            if wrong := cursor.unasked(range(self.start_offset, offset)):
                self.violate(18, f"{cursor.name} began at {offset}, nobody acknowledged {wrong}")

    def check_memory(self, subscription_id: str, instance: PartitionLog) -> None:
        """Check that an owner counts nothing as acknowledged that nobody may have (18)."""
        cursor, tables = self.cursor(subscription_id), instance.subscriptions
        found = tables._cursors.find(subscription_id)
        if found is None or cursor.begin is None:
            return
        first = max(cursor.begin, instance.earliest_offset)
        acked = [offset for offset in range(first, found.acks.end) if offset in found.acks]
        if wrong := cursor.unasked(acked):
            self.violate(18, f"{wrong[:5]} count as acknowledged for {cursor.name}")

    def check_gone(self, start: int, horizon: int) -> None:
        """Check, before it begins there, that it loses nothing that a view which is kept up does
        not have: that ends at the horizon (24)."""
        gone = range(max(horizon, self.start_offset), start)
        if gone and not self.settings.may_lack_view:
            self.violate(24, f"trimmed to {start}, the compacted view ends at {horizon}")
        self.lost_to_view.update(gone)

    def _why_lawful(self, offset: int) -> str | None:
        return self.settings.why_acknowledged(self, self.segments, offset)

    def _is_lawful(self, offset: int) -> bool:
        return self._why_lawful(offset) is not None

    def check_refusal(self, error: FencelogError) -> None:
        """Check that an append was kept out by a quota only if a backlog may be over it (27)."""
        if error.code is not ErrorCode.BACKLOG_QUOTA_EXCEEDED:
            return
        self.counts["appends over quota"] += 1
        if not (self.cursors and self.settings.may_refuse(self, self.segments)):
            self.violate(27, "an append is refused for a quota, and no backlog is over one")

    def tail_shown(self, tail: int, floor: int, instance: object) -> None:
        if self.end is not None and tail > self.end:
            self.violate(24, f"a tail of {tail} is shown, it ended at {self.end}")
        LogHistory.tail_shown(self, tail, floor, instance)

    def ended(self, end: int) -> None:
        """Record that the list, or an answer, says that the log ends there for good."""
        if self.end not in (None, end):
            self.violate(24, f"it ended at {self.end}, and ends at {end}")
        if self.known_end > end:
            self.violate(
                24, f"it ended at {end}, {self.known_end - 1} had been acknowledged or read"
            )
        self.end = end
        self.known_end = max(self.known_end, end)

    def check_access(self) -> None:
        """Check the durable access of the current topic; the lists of others are not followed."""
        wrong = self.access.check_durable(self.state.access())
        if wrong is not None:
            self.violate(25, wrong)

    def cursor(self, subscription_id: str, name: str = "") -> CursorHistory:
        if subscription_id not in self.cursors:
            if not name and subscription_id in self.registered:
                name = self.registered[subscription_id].info.name
            cursor = self.cursors[subscription_id] = CursorHistory(name or subscription_id)
            cursor.lawful = self._is_lawful
            if subscription_id in self.state.may_be_dropped:
                cursor.drop()  # before anything was noted of this partition
        return self.cursors[subscription_id]


@dataclass(slots=True)
class Incarnation:
    """``configs``: what its node has said, in order."""

    topic_id: str
    partitions: int
    configs: list[TopicConfig] = field(default_factory=list)
    subscriptions: dict[str, RegisteredSubscription] = field(default_factory=dict)
    """Registered subscriptions by name."""
    dropped: set[str] = field(default_factory=set)
    """Ids of those that were."""


class Incarnations:
    """Made before anything is created."""

    def __init__(
        self,
        history: History,
        cluster: MemoryCluster,
        changes: Sequence[Mapping[str, Any]] = (),
        now_us: Callable[[], int] = lambda: 0,
        *,
        forgets: bool = False,
    ) -> None:
        """``changes``: of settings, each of which somebody may make; ``now_us``: the brokers'
        clocks; ``forgets``: partitions may forget producers."""
        self._now_us = now_us
        self._forgets = forgets
        self._settings: dict[str, SettingsHistory] = {}
        self.changes = changes
        self.history = history
        self._cluster = cluster
        self.all: dict[str, Incarnation] = {}
        self.living: Incarnation | None = None
        self.states: list[tuple[str, TopicConfig] | None] = [None]
        """The topic's id and settings, or that there is none, in the order of the changes."""
        self._ended: set[str] = set()
        self.logs: dict[tuple[str, int], AdminLog] = {}
        self._registered: dict[str, dict[str, RegisteredSubscription]] = {}
        cluster.subscribe(self._changed)

    def has_had_subscriptions(self, topic_id: str) -> bool:
        """Tell whether anything of the topic was ever registered that may hold messages back."""
        incarnation = self.all[topic_id]
        return bool(incarnation.subscriptions or incarnation.dropped)

    def log(self, topic_id: str, partition: int) -> AdminLog:
        key = (topic_id, partition)
        if key not in self.logs:
            log = self.logs[key] = AdminLog(self.history, partition, topic_id=topic_id)
            log.registered = self._registered.setdefault(topic_id, {})
            settings = log.settings = self._settings_of(topic_id)
            if self._forgets:
                log.producer_limit = ProducerBounds(
                    0, log.violate, [], lambda: settings.least_producers, self._count
                )
            if topic_id in self.all:
                log.state.may_be_dropped |= self.all[topic_id].dropped
        return self.logs[key]

    def _settings_of(self, topic_id: str) -> SettingsHistory:
        return self._settings.setdefault(topic_id, SettingsHistory(self._now_us))

    def has_quota(self, topic_id: str) -> bool:
        """Tell whether the topic has a quota that may keep appends out."""
        return self._settings_of(topic_id).has_quota

    def _count(self, what: str) -> None:
        self.history.counts[what] += 1

    def is_living(self, topic_id: str) -> bool:
        return self.living is not None and self.living.topic_id == topic_id

    @property
    def living_logs(self) -> list[AdminLog]:
        """Return the logs of the current incarnation, one for each of its partitions."""
        if self.living is None:
            return []
        return [self.log(self.living.topic_id, n) for n in range(self.living.partitions)]

    def begun(self, kind: str) -> None:
        """A broker has begun something that moments can be tied to."""
        self.history.on_event(kind)

    def check_stood(self, info: TopicInfo) -> None:
        """Check a configuration that a client was answered after its own change."""
        topic = self.all.get(info.topic_id)
        if topic is None or info.config not in topic.configs:
            self.history.violate(24, f"topic {info.topic_id[:4]} never had {info.config}")

    def check_confirmed(self, told: TopicInfo | None, known: int) -> None:
        """Check an answer about the topic, None if there was none, that must not be older than a
        request, before which the topic had so many states."""
        self.history.counts["topics confirmed"] += 1
        state = None if told is None else (told.topic_id, told.config)
        if state not in self.states[known - 1 :]:
            self.history.violate(24, f"{state} is confirmed, it was {self.states[known - 1]}")

    def check_once(self) -> None:
        """Check that an append whose idempotency key selects the partition is in one partition
        only."""
        for topic in self.all.values():
            homes: dict[bytes, int] = {}
            for log in self._logs_of(topic):
                for payload in log.places:
                    sent = log.sent.get(payload)
                    if sent is None or sent.conditions.routed_by is None:
                        continue
                    home = homes.setdefault(payload, log.partition)
                    if home != log.partition:
                        log.violate(26, f"{payload!r} is in partition {home}, too")

    def _logs_of(self, topic: Incarnation) -> list[AdminLog]:
        return [log for (topic_id, _), log in self.logs.items() if topic_id == topic.topic_id]

    # -- the tree --------------------------------------------------------------------------------

    def _changed(self, path: str) -> None:
        parts = path.split("/")
        if path == TOPIC_PATH:
            self._topic_changed()
        elif path == LOCK_PATH:
            self._lock_changed()
        elif path.startswith(f"{SUBSCRIPTIONS_PATH}/") and len(parts) == 4:
            self._subscription_changed(path, parts[2], parts[3])

    def _lock_changed(self) -> None:
        with suppress(FencelogError):
            self._cluster.get(LOCK_PATH)
            self.begun("sweeping")

    def _topic_changed(self) -> None:
        before = self.living
        try:
            node = self._cluster.get(TOPIC_PATH)
        except FencelogError:
            self.living = None
            self.states.append(None)
            if before is not None:
                self._ended.add(before.topic_id)
                self.history.counts["topics deleted"] += 1
                self.history.on_event("gone")
            return
        info = decode_topic(TOPIC, node, Policy())
        if before is not None and before.topic_id != info.topic_id:
            self.history.violate(24, f"{before.topic_id[:4]} became {info.topic_id[:4]} by a set")
            self._ended.add(before.topic_id)
        if info.topic_id in self._ended:
            self.history.violate(24, f"topic {info.topic_id[:4]} was deleted, and is back")
        now = self.all.setdefault(info.topic_id, Incarnation(info.topic_id, 0))
        if before is None:
            self.history.counts["topics made"] += 1
            self.history.on_event("made")
        if before is now:
            self._check_change(now.configs[-1], info.config)
        if info.config.partitions < now.partitions:
            self.history.violate(24, f"{now.partitions} partitions became {info.config.partitions}")
        elif now.partitions and info.config.partitions > now.partitions:
            self._grown(now, info.config.partitions)
        now.partitions = max(now.partitions, info.config.partitions)
        now.configs.append(info.config)
        self._settings_of(info.topic_id).became(info.config)
        self.states.append((info.topic_id, info.config))
        self.living = now

    def _check_change(self, before: TopicConfig, after: TopicConfig) -> None:
        """One operator's change at a time: nothing else that was confirmed goes with it."""
        old, new = before.overrides, after.overrides
        changed = {key for key in {*old, *new} if old.get(key) != new.get(key)}
        if changed and not any(
            changed <= some.keys() and all(new.get(key) == some[key] for key in changed)
            for some in self.changes
        ):
            self.history.violate(24, f"settings {dict(old)} became {dict(new)} at once")

    def _grown(self, topic: Incarnation, partitions: int) -> None:
        """Require the subscriptions registered now to see all partitions that are added."""
        self.history.counts["topics grown"] += 1
        self.history.on_event("grown")
        for partition in range(topic.partitions, partitions):
            log = self.log(topic.topic_id, partition)
            for registered in topic.subscriptions.values():
                info = registered.info
                if info.config.durable and registered.partitions <= partition:
                    log.cursor(info.subscription_id, info.name).protect(0)

    def _subscription_changed(self, path: str, topic_id: str, name: str) -> None:
        topic = self.all.get(topic_id)
        if topic is None:
            return
        try:
            registered = decode_registered(self._cluster.get(path).value)
        except FencelogError:
            gone = topic.subscriptions.pop(name, None)
            if gone is not None:
                topic.dropped.add(gone.info.subscription_id)
                for log in self._logs_of(topic):
                    log.cursor(gone.info.subscription_id, name).drop()
                    log.state.may_be_dropped |= topic.dropped
            return
        topic.subscriptions[name] = registered
        ids = self._registered.setdefault(topic_id, {})
        ids[registered.info.subscription_id] = registered
        self.history.counts["subscriptions made"] += 1
        self.history.on_event("registered")
