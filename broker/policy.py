"""The settings of a topic: one frozen value, resolved from cluster, namespace and topic.

A namespace and a topic each hold only what they set themselves, a JSON object; what they leave out
is inherited. ``None`` (JSON null) means that there is no bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_PARTITION_PENDING_BYTES, MIB

BACKLOG_HOLD, BACKLOG_REFUSE, BACKLOG_EVICT = "hold", "refuse", "evict"

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

    def with_overrides(self, overrides: Mapping[str, Any]) -> Policy:
        """This policy where ``overrides`` says nothing. Raises FencelogError(BAD_REQUEST)."""
        for name, value in overrides.items():
            _check(name, value)
        policy = replace(self, **overrides)
        policy.replication.validate()
        return policy


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
