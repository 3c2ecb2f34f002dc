"""The settings of a topic: one frozen value, resolved from cluster, namespace and topic.

A namespace and a topic each hold only their own settings (their *overrides*, a mapping from names
of settings to values); the others are inherited. A bound of ``None`` means no bound. In JSON it is
written as ``"unlimited"``, since null removes a setting: see ``from_json``.
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
"""The text for a bound of ``None`` in JSON."""

MIN_ROLL_MS = 1_000
"""The shortest life of a ledger, however short retention is: each costs a few metadata writes."""

Overrides = Mapping[str, Any]

MAX_NUMBER = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a topic, each with its default. Sizes in bytes, of one partition unless said
    otherwise."""

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2

    roll_entries: int = 50_000
    """The number of entries at which a ledger is followed by the next one, or at ``roll_bytes`` or
    after ``roll_ms``. Ledgers are deleted as a whole, so smaller ones free space sooner; each costs
    a few metadata writes."""
    roll_bytes: int = 512 * MIB
    roll_ms: int = 4 * 3600 * 1000

    retention_ms: int | None = None
    """The age above which messages may be removed, as those beyond ``retention_bytes`` from the
    tail may."""
    retention_bytes: int | None = None
    trim_unacknowledged: bool = False
    """Permission for retention to remove messages that a durable subscription has not
    acknowledged."""
    ttl_ms: int | None = None
    """The age above which messages count as acknowledged by every subscription."""

    backlog_quota_bytes: int | None = None
    """The largest backlog of the slowest durable subscription; over it ``backlog_action``: hold
    appends back, refuse them, or evict (acknowledge the oldest messages for that subscription)."""
    backlog_quota_ms: int | None = None
    backlog_action: str = BACKLOG_REFUSE

    publish_messages_per_s: int | None = None
    publish_bytes_per_s: int | None = None
    dispatch_messages_per_s: int | None = None
    """The rate of all subscriptions and readers of the partition together."""
    dispatch_bytes_per_s: int | None = None

    max_pending_bytes: int = MAX_PARTITION_PENDING_BYTES
    """The appends in flight in one partition."""
    max_subscriptions: int = 1_000
    max_producers: int = 10_000
    """The producers whose sequences a partition remembers; the one that was silent longest is
    forgotten first."""
    idempotency_window_ms: int = 10 * 60 * 1000
    """The time for which an idempotency key is remembered."""

    compaction_ms: int | None = None
    """The interval at which the compacted view is brought up to date; None: there is none."""

    @property
    def replication(self) -> Replication:
        """Return E, Qw and Qa. Consent to an ack quorum of one was given when it was set."""
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

    def check_bookies(self, registered: int | None, previous: Policy | None = None) -> None:
        """Check that ledgers could be created now. ``registered``: the number of bookies (None: any
        number will do). ``previous``: the policy that this one replaces; if it needed as many, so
        may this one. Raises FencelogError(NOT_ENOUGH_BOOKIES)."""
        if registered is None or self.ensemble_size <= registered:
            return
        if previous is None or self.ensemble_size > previous.ensemble_size:
            raise FencelogError(
                ErrorCode.NOT_ENOUGH_BOOKIES,
                f"ensemble_size {self.ensemble_size} needs {self.ensemble_size} bookies, "
                f"{registered} are registered: no message could be appended; "
                "?allow_missing_bookies=true accepts the setting all the same",
                field="ensemble_size",
                registered_bookies=registered,
            )

    @property
    def has_backlog_quota(self) -> bool:
        return self.backlog_quota_bytes is not None or self.backlog_quota_ms is not None

    @property
    def roll_age_ms(self) -> int:
        """Return the age at which a ledger is rolled. A ledger is deleted once its newest message
        has expired, so it must not take messages for longer than they are kept."""
        if self.retention_ms is None:
            return self.roll_ms
        return min(self.roll_ms, max(self.retention_ms, MIN_ROLL_MS))

    def is_roll_due(self, *, entries: int, size: int, age_s: float) -> bool:
        """Tell whether a ledger should be rolled. ``size`` in payload bytes. An empty ledger is
        never rolled."""
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
        """Return the settings that hold below overrides that were checked one by one, at different
        times.

        Where they do not fit together any more (a namespace asks for a smaller ensemble than a
        topic's write quorum) the larger number holds: never fewer copies than any level asked for,
        and an acknowledgement after one copy only where there is one, unless the cluster has it so.
        """
        if not any(levels):
            return self  # most topics set nothing: ten thousand of them share one policy
        policy = self
        for overrides in levels:
            policy = replace(policy, **overrides)
        write_quorum = max(policy.write_quorum, policy.ack_quorum)
        ack_quorum = policy.ack_quorum
        if ack_quorum == 1 < write_quorum and not self.ack_quorum == 1 < self.write_quorum:
            ack_quorum = 2  # nobody has consented to one of several
        return replace(
            policy,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            ensemble_size=max(policy.ensemble_size, write_quorum),
        )


def from_json(settings: Overrides) -> dict[str, Any]:
    """Return the overrides of their JSON form: ``"unlimited"`` is no bound, null is left out."""
    return {
        name: None if value == UNLIMITED else value
        for name, value in settings.items()
        if value is not None
    }


def to_json(settings: Overrides) -> dict[str, Any]:
    """Return the JSON form of overrides: the inverse of ``from_json``."""
    return {name: UNLIMITED if value is None else value for name, value in settings.items()}


def changed_overrides(overrides: Overrides, changes: Overrides) -> dict[str, Any]:
    """Return overrides after a change in JSON form: null removes a setting."""
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
    elif not 1 <= value <= _MOST.get(name, MAX_NUMBER):
        raise _bad(name, f"{name} is 1 to {_MOST.get(name, MAX_NUMBER)}, not {value}")


def _bad(name: str, detail: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, detail, field=name[:80])
