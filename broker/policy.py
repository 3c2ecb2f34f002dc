"""The settings of a topic: one frozen value, resolved from cluster, namespace and topic.

A namespace and a topic each hold only what they set themselves (their *overrides*, a mapping from
names of settings to values); what they leave out is inherited. A bound that is ``None`` is none.
People write that as ``"unlimited"``, since null takes back what was set: see ``from_json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fencelog.broker.limits import MAX_PARTITION_PENDING_BYTES
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

BACKLOG_HOLD, BACKLOG_REFUSE, BACKLOG_EVICT = "hold", "refuse", "evict"

UNLIMITED = "unlimited"
"""How people write a bound of ``None``."""

MIN_ROLL_MS = 1_000
"""However short retention is, ledgers live so long: each costs a few metadata writes."""

Overrides = Mapping[str, Any]

_MAX_NUMBER = 2**53 - 1
"""What every JSON reader keeps exact."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Every setting with its default. Sizes in bytes, of one partition unless said otherwise."""

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2

    roll_entries: int = 50_000
    """A ledger is followed by the next one at so many entries, at ``roll_bytes`` or after
    ``roll_ms``. Ledgers are deleted as a whole, so smaller ones free space sooner; each costs a few
    metadata writes."""
    roll_bytes: int = 512 * MIB
    roll_ms: int = 4 * 3600 * 1000

    retention_ms: int | None = None
    """Messages older than this, or beyond ``retention_bytes`` from the tail, may go."""
    retention_bytes: int | None = None
    trim_unacknowledged: bool = False
    """Whether retention takes what a durable subscription has not acknowledged."""
    ttl_ms: int | None = None
    """Messages older than this count as acknowledged by every subscription."""

    backlog_quota_bytes: int | None = None
    """What the slowest durable subscription may have before it; over it ``backlog_action``: hold
    appends back, refuse them, or evict (acknowledge the oldest messages for that subscription)."""
    backlog_quota_ms: int | None = None
    backlog_action: str = BACKLOG_REFUSE

    publish_messages_per_s: int | None = None
    publish_bytes_per_s: int | None = None
    dispatch_messages_per_s: int | None = None
    """Of all subscriptions and readers of the partition together."""
    dispatch_bytes_per_s: int | None = None

    max_pending_bytes: int = MAX_PARTITION_PENDING_BYTES
    """Appends on their way in one partition."""
    max_subscriptions: int = 1_000
    max_producers: int = 10_000
    """Producers whose sequences a partition remembers; the one that was silent longest goes."""
    idempotency_window_ms: int = 10 * 60 * 1000
    """How long an idempotency key is remembered."""

    compaction_ms: int | None = None
    """How often the compacted view is brought up to date; None: there is none."""

    @property
    def replication(self) -> Replication:
        """E, Qw and Qa. Whoever set an ack quorum of one was asked."""
        return Replication(
            self.ensemble_size,
            self.write_quorum,
            self.ack_quorum,
            accept_ack_quorum_of_one=True,
        )

    def with_replication(self, replication: Replication) -> Policy:
        """Return this policy with other numbers of copies."""
        return replace(
            self,
            ensemble_size=replication.ensemble_size,
            write_quorum=replication.write_quorum,
            ack_quorum=replication.ack_quorum,
        )

    @property
    def has_backlog_quota(self) -> bool:
        return self.backlog_quota_bytes is not None or self.backlog_quota_ms is not None

    @property
    def roll_age_ms(self) -> int:
        """A ledger is deleted once its newest message has expired, so it must not take messages
        for longer than they are kept."""
        if self.retention_ms is None:
            return self.roll_ms
        return min(self.roll_ms, max(self.retention_ms, MIN_ROLL_MS))

    def is_roll_due(self, *, entries: int, size: int, age_s: float) -> bool:
        """``size`` in payload bytes. An empty ledger is never rolled."""
        return entries > 0 and (
            entries >= self.roll_entries
            or size >= self.roll_bytes
            or age_s * 1000 >= self.roll_age_ms
        )

    def with_overrides(self, overrides: Overrides) -> Policy:
        """Return ``overrides`` over this policy. Raises FencelogError(BAD_REQUEST), also
        for an ack quorum of one where a write quorum is larger (see ``Replication``)."""
        for name, value in overrides.items():
            _check(name, value)
        policy = replace(self, **overrides)
        replication = policy.replication
        replace(replication, accept_ack_quorum_of_one=False).validate()
        return policy

    def inherited_by(self, *levels: Overrides) -> Policy:
        """What holds below overrides that were checked one by one, at different times.

        Where they do not fit together any more (a namespace asks for a smaller ensemble than a
        topic's write quorum) the larger number holds: never fewer copies than somebody asked for.
        """
        if not any(levels):
            return self  # most topics set nothing: ten thousand of them share one policy
        policy = self
        for overrides in levels:
            policy = replace(policy, **overrides)
        write_quorum = max(policy.write_quorum, policy.ack_quorum)
        return replace(
            policy,
            write_quorum=write_quorum,
            ensemble_size=max(policy.ensemble_size, write_quorum),
        )


def from_json(settings: Overrides) -> dict[str, Any]:
    """Overrides as people write them: ``"unlimited"`` is no bound, null is left out."""
    return {
        name: None if value == UNLIMITED else value
        for name, value in settings.items()
        if value is not None
    }


def to_json(settings: Overrides) -> dict[str, Any]:
    """The opposite of ``from_json``."""
    return {name: UNLIMITED if value is None else value for name, value in settings.items()}


def changed_overrides(overrides: Overrides, changes: Overrides) -> dict[str, Any]:
    """Overrides after a change as people write it: null takes a setting back."""
    kept = {name: value for name, value in overrides.items() if name not in changes}
    return {**kept, **from_json(changes)}


_NULLABLE = frozenset(f.name for f in fields(Policy) if "None" in str(f.type))
_BOOLEAN = frozenset(f.name for f in fields(Policy) if f.type == "bool")
_ACTIONS = (BACKLOG_HOLD, BACKLOG_REFUSE, BACKLOG_EVICT)
_NAMES = frozenset(f.name for f in fields(Policy))
_MOST = {"max_pending_bytes": MAX_PARTITION_PENDING_BYTES}


def _check(name: str, value: Any) -> None:
    if name not in _NAMES:
        raise _bad(
            name, f"there is no setting {name[:80]!r}; there are {', '.join(sorted(_NAMES))}"
        )
    if value is None and name in _NULLABLE:
        return
    if name == "backlog_action":
        if value not in _ACTIONS:
            raise _bad(name, f"{name} is one of {', '.join(_ACTIONS)}, not {value!r}")
    elif name in _BOOLEAN:
        if not isinstance(value, bool):
            raise _bad(name, f"{name} is true or false, not {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int):
        raise _bad(name, f"{name} is a whole number, not {str(value)[:80]!r}")
    elif not 1 <= value <= _MOST.get(name, _MAX_NUMBER):
        raise _bad(name, f"{name} is 1 to {_MOST.get(name, _MAX_NUMBER)}, not {value}")


def _bad(name: str, detail: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, detail, field=name[:80])
