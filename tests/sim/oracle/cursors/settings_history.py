"""The settings that a topic has had, and what they allow: messages that count as acknowledged since
they are too old, or too much, appends that are refused for a backlog, and messages that go before
the compacted view has them (18, 24, 27).

An owner may hear late of a change, so a setting is followed for a while after it was replaced. The
brokers' clocks agree in these histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from fencelog.broker.ledger_list.ledger_list import Segment
from fencelog.broker.policy import BACKLOG_EVICT, Policy
from fencelog.broker.registry.topic_node import TopicConfig
from fencelog.ledgers.format.entry_header import read_entry_header
from tests.sim.oracle.log_history import LogHistory

LATE_US = 8_000_000
"""The time for which a broker may not have heard of a change: longer than any session lasts, and
any fault."""

EXPIRED, EVICTED = "messages expired", "messages evicted"


@dataclass(slots=True)
class Setting:
    """``until_us``: when it was replaced."""

    policy: Policy
    until_us: float = inf


@dataclass(slots=True)
class SettingsHistory:
    """The settings of one topic, in order."""

    now_us: Callable[[], int]
    all: list[Setting] = field(default_factory=list)

    def became(self, config: TopicConfig) -> None:
        """Note a version of the topic's node."""
        if self.all:
            self.all[-1].until_us = self.now_us()
        self.all.append(Setting(Policy().with_overrides(config.overrides)))

    def in_force(self) -> Iterator[tuple[Policy, float]]:
        """Yield what owners may go by, or have gone by, and until when."""
        now_us = self.now_us()
        return ((one.policy, min(now_us, one.until_us + LATE_US)) for one in self.all)

    def why_acknowledged(
        self, log: LogHistory, segments: Sequence[Segment], offset: int
    ) -> str | None:
        """Return why a message may count as acknowledged without a request; None: it may not. One
        that is not there may be old."""
        time_us = _time_of(log, segments, offset)
        for policy, until_us in self.in_force():
            if policy.ttl_ms is not None and time_us + policy.ttl_ms * 1000 < until_us:
                return EXPIRED
            if policy.backlog_action != BACKLOG_EVICT:
                continue
            age_ms, most = policy.backlog_quota_ms, policy.backlog_quota_bytes
            is_old = age_ms is not None and time_us + age_ms * 1000 < until_us
            if is_old or (most is not None and most_bytes_from(log, segments, offset) > most):
                return EVICTED
        return None

    def may_refuse(self, log: LogHistory, segments: Sequence[Segment]) -> bool:
        """Tell whether a backlog may be over a quota that keeps appends out: its subscription may
        have acknowledged nothing when that was looked at last."""
        first_us = log.times.get(log.start_offset, 0)
        size = most_bytes_from(log, segments, log.start_offset)
        return any(
            (policy.backlog_quota_bytes is not None and size > policy.backlog_quota_bytes)
            or (
                policy.backlog_quota_ms is not None
                and first_us + policy.backlog_quota_ms * 1000 < until_us
            )
            for policy, until_us in self.in_force()
            if policy.backlog_action != BACKLOG_EVICT
        )

    @property
    def may_lack_view(self) -> bool:
        """Tell whether an owner may go by a setting that keeps up no compacted view: then messages
        may go that the view does not have."""
        now_us = self.now_us()
        return any(
            one.policy.compaction_ms is None and now_us <= one.until_us + LATE_US
            for one in self.all
        )

    @property
    def least_producers(self) -> int:
        """Return the smallest number of producers that a partition may have had to remember."""
        return min((one.policy.max_producers for one in self.all), default=1)

    @property
    def has_quota(self) -> bool:
        """Tell whether a quota may keep appends out now."""
        return bool(self.all) and self.all[-1].policy.has_backlog_quota


def most_bytes_from(log: LogHistory, segments: Sequence[Segment], offset: int) -> float:
    """Return the bytes of the messages from there on, as if all of a ledger had one size: of all
    that was written, acknowledged or not."""
    size = 0.0
    for base, payloads in _written(log, segments):
        if base is None:
            return inf
        messages = sum(read_entry_header(payload).count for payload in payloads)
        left = min(messages, base + messages - offset)
        if left > 0:
            size += sum(map(len, payloads)) * left / messages
    return size


def _time_of(log: LogHistory, segments: Sequence[Segment], offset: int) -> int:
    """Return when a message was published, whether or not anybody was told that; 0: it is not
    there."""
    if offset in log.times:
        return log.times[offset]
    for base, payloads in _written(log, segments):
        end = inf if base is None else base
        for payload in payloads:
            header = read_entry_header(payload)
            end += header.count
            if offset < end:
                return header.publish_time_us if base is not None and base <= offset else 0
    return 0


def _written(
    log: LogHistory, segments: Sequence[Segment]
) -> Iterator[tuple[int | None, list[bytes]]]:
    """Yield where each ledger of the log begins, as far as that is known, and its entries."""
    base: int | None = None
    for segment in segments:
        if segment.base_offset is not None:
            base = segment.base_offset
        written = log.history.ledgers.get(segment.ledger_id)
        payloads = [] if written is None else written.payloads
        if segment.sealed is not None:
            payloads = payloads[: segment.sealed.entries]
        yield (None if written is None else base), payloads
        if base is not None:
            base += sum(read_entry_header(payload).count for payload in payloads)
