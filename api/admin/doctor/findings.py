"""A finding of the doctor: what is wrong, since when, how bad it is, and the command that helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

WHY_NO_BOOKIES = "fencelog bookies list --metadata URL"
"""The command that shows why ledgers find no bookies."""

START_BOOKIE = "fencelog bookie --metadata URL --data DIR"
"""The command by which a bookie comes back, or a new one comes."""


class Severity(IntEnum):
    """The urgency of a finding. NOTICE: good to know. WARNING: something is weaker than it should
    be, or is not known; nothing has failed yet. CRITICAL: requests fail, or acknowledged messages
    are, or may soon be, lost."""

    NOTICE = 1
    WARNING = 2
    CRITICAL = 3


class FindingKind(StrEnum):
    """The kinds of findings; each has a meaning of its own in HTTP.md."""

    NOT_ANSWERED = "not_answered"
    NO_INSTANCE = "no_instance"
    NO_BROKER = "no_broker"
    BROKER_UNREACHABLE = "broker_unreachable"
    BROKER_DRAINING = "broker_draining"
    TAKEOVER_STUCK = "takeover_stuck"
    ROLL_STUCK = "roll_stuck"
    RETENTION_HELD_BACK = "retention_held_back"
    ACK_QUORUM_ONE = "ack_quorum_one"
    TOO_FEW_BOOKIES = "too_few_bookies"
    BOOKIE_ABSENT = "bookie_absent"
    BOOKIE_UNREACHABLE = "bookie_unreachable"
    BOOKIE_READ_ONLY = "bookie_read_only"
    BOOKIE_LEAVING = "bookie_leaving"
    BOOKIE_IN_LIMBO = "bookie_in_limbo"
    BOOKIE_DAMAGED = "bookie_damaged"
    DISK_FILLING = "disk_filling"
    COOKIE_MISSING = "cookie_missing"
    COOKIE_FOREIGN = "cookie_foreign"
    COOKIE_STALE = "cookie_stale"
    COOKIE_UNREADABLE = "cookie_unreadable"
    CLOCK_SKEW = "clock_skew"
    CERTIFICATE_ENDING = "certificate_ending"
    NO_AUDITOR = "no_auditor"
    HEALING_OFF = "healing_off"
    UNDER_REPLICATED = "under_replicated"
    UNRECOVERABLE = "unrecoverable"
    CHECK_VIOLATIONS = "check_violations"
    CHECK_OVERDUE = "check_overdue"
    CHECK_FAILED = "check_failed"
    LEDGER_UNSEALED = "ledger_unsealed"
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``subject``: the process, topic or partition; ``since_us``: None if nobody has
    noted it; ``seen_since_us``: when the doctor has found it first; ``command``: where one helps,
    with capitals for what the reader puts in; ``look_first``: the command that shows whether that
    one fits, where it takes a judgement; ``details``: JSON-compatible."""

    kind: FindingKind
    severity: Severity
    subject: str
    summary: str
    command: str | None = None
    since_us: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    seen_since_us: int | None = None
    look_first: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "severity": self.severity.name.lower(),
            "subject": self.subject,
            "summary": self.summary,
            "command": self.command,
            "look_first": self.look_first,
            "since_us": self.since_us,
            "seen_since_us": self.seen_since_us,
            "details": dict(self.details),
        }
