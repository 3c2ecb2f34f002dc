"""All error codes in one enum, and what a caller may conclude from each.

Every code answers three questions: whose fault it is, whether the same request may be sent again,
and whether it may have taken effect. Wire codes (between clients and bookies) and HTTP statuses
derive from the same row, so no two layers can disagree. *Unknown* is a result of its own: a code
with ``Effects.MAYBE`` must never be folded into "it did not happen".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class Fault(Enum):
    """The party that has to change something for the request to succeed."""

    CLIENT = "client"
    SERVER = "server"
    ENVIRONMENT = "environment"


class Effects(Enum):
    """The possible effects of a failed request."""

    NONE = "none"
    MAYBE = "maybe"


_C, _S, _E = Fault.CLIENT, Fault.SERVER, Fault.ENVIRONMENT
_NONE, _MAYBE = Effects.NONE, Effects.MAYBE


class ErrorCode(Enum):
    """The error codes: (wire code, HTTP status, fault, retryable, effects). Wire codes never
    change."""

    ALREADY_EXISTS = (1, 409, _C, False, _NONE)
    APPEND_UNKNOWN = (2, 504, _E, False, _MAYBE)
    BACKLOG_QUOTA_EXCEEDED = (42, 429, _C, True, _NONE)
    BAD_FRAME = (3, 400, _C, False, _NONE)
    BAD_REQUEST = (4, 400, _C, False, _NONE)
    BOOKIE_UNAVAILABLE = (5, 503, _E, True, _NONE)
    CORRUPT = (6, 500, _S, False, _NONE)
    CROSS_ORIGIN = (60, 403, _C, False, _NONE)
    DATA_DIRECTORY_IN_USE = (7, 409, _C, False, _NONE)
    DRAINING = (8, 503, _E, True, _NONE)
    HEAD_TOO_LARGE = (57, 431, _C, False, _NONE)
    IDEMPOTENCY_KEY_REUSED = (55, 422, _C, False, _NONE)
    INTERNAL = (9, 500, _S, False, _MAYBE)
    INVALID_NAME = (10, 400, _C, False, _NONE)
    LEDGER_CLOSED = (11, 409, _C, False, _NONE)
    LEDGER_FENCED = (12, 409, _E, False, _MAYBE)
    LEDGER_IN_LIMBO = (39, 503, _E, True, _NONE)
    LEDGER_NOT_FOUND = (13, 404, _C, False, _NONE)
    LIMIT_REACHED = (43, 409, _C, False, _NONE)
    METADATA_CONFLICT = (14, 409, _E, True, _NONE)
    METADATA_EXISTS = (15, 409, _E, False, _NONE)
    METADATA_NOT_FOUND = (16, 404, _E, False, _NONE)
    METADATA_UNAUTHORIZED = (62, 500, _E, False, _NONE)
    METADATA_UNAVAILABLE = (17, 503, _E, True, _NONE)
    METADATA_UNKNOWN = (18, 503, _E, True, _MAYBE)
    METHOD_NOT_ALLOWED = (19, 405, _C, False, _NONE)
    NAMESPACE_NOT_EMPTY = (44, 409, _C, False, _NONE)
    NAMESPACE_NOT_FOUND = (45, 404, _C, False, _NONE)
    NOT_ACCEPTABLE = (59, 406, _C, False, _NONE)
    NOT_ENOUGH_BOOKIES = (20, 503, _E, True, _NONE)
    NOT_FOUND = (21, 404, _C, False, _NONE)
    NOT_OWNER = (22, 421, _E, True, _NONE)
    NO_OWNER = (23, 503, _E, True, _NONE)
    NO_SUCH_ENTRY = (24, 404, _C, False, _NONE)
    NO_SUCH_LEDGER = (25, 404, _C, False, _NONE)
    OFFSET_BEYOND_TAIL = (26, 416, _C, True, _NONE)
    OFFSET_TRIMMED = (27, 410, _C, False, _NONE)
    OUT_OF_SPACE = (28, 507, _E, True, _NONE)
    OVERLOADED = (29, 503, _E, True, _NONE)
    PAYLOAD_TOO_LARGE = (30, 413, _C, False, _NONE)
    PRECONDITION_FAILED = (46, 412, _C, False, _NONE)
    PRODUCER_BUSY = (47, 409, _C, True, _NONE)
    PRODUCER_FENCED = (48, 403, _C, False, _NONE)
    RATE_LIMITED = (49, 429, _C, True, _NONE)
    READ_ONLY = (41, 503, _E, True, _NONE)
    READ_UNKNOWN = (31, 503, _E, True, _NONE)
    RECOVERY_INCOMPLETE = (32, 503, _E, True, _NONE)
    REQUEST_TIMEOUT = (33, 504, _E, True, _MAYBE)
    REQUEST_TOO_SLOW = (58, 408, _C, True, _NONE)
    SEQUENCE_MISMATCH = (50, 409, _C, False, _NONE)
    SEQUENCE_REUSED = (56, 422, _C, False, _NONE)
    STATE_UNKNOWN = (51, 504, _E, True, _MAYBE)
    STORAGE_FAILED = (34, 500, _S, False, _MAYBE)
    SUBSCRIPTION_BUSY = (52, 409, _C, True, _NONE)
    SUBSCRIPTION_NOT_FOUND = (53, 404, _C, False, _NONE)
    TOPIC_NOT_FOUND = (35, 404, _C, False, _NONE)
    TOPIC_TERMINATED = (54, 409, _C, False, _NONE)
    UNAUTHORIZED = (36, 403, _C, False, _NONE)
    UNKNOWN_HOST = (61, 403, _C, False, _NONE)
    UNSUPPORTED_MEDIA_TYPE = (37, 415, _C, False, _NONE)
    UNSUPPORTED_VERSION = (38, 400, _C, False, _NONE)
    WRONG_INCARNATION = (40, 503, _E, False, _NONE)

    def __init__(
        self, wire: int, status: int, fault: Fault, retryable: bool, effects: Effects
    ) -> None:
        self.wire = wire
        self.status = status
        self.fault = fault
        self.retryable = retryable
        self.effects = effects

    @property
    def slug(self) -> str:
        """Return the code as it stands in problem documents: ``append_unknown``."""
        return self.name.lower()

    @property
    def is_negative(self) -> bool:
        """Tell whether the code is an explicit "it is not there", which only intact storage may say
        (PROTOCOL.md rule 7)."""
        return self in (ErrorCode.NO_SUCH_ENTRY, ErrorCode.NO_SUCH_LEDGER)


_BY_WIRE: Mapping[int, ErrorCode] = {code.wire: code for code in ErrorCode}

OK_WIRE = 0
"""The wire status of a request that was carried out."""


def code_from_wire(wire: int) -> ErrorCode:
    """Return the code for a non-zero wire status; a status that this version does not know is
    ``INTERNAL``."""
    return _BY_WIRE.get(wire, ErrorCode.INTERNAL)


class FencelogError(Exception):
    """An error; ``code`` says what may be concluded from it.

    ``detail`` is one sentence for a person that names what and where. ``extra`` are further
    members of the problem document (JSON-compatible values), for example ``line=3``.
    """

    def __init__(self, code: ErrorCode, detail: str, **extra: Any) -> None:
        super().__init__(f"{code.slug}: {detail}")
        self.code = code
        self.detail = detail
        self.extra: dict[str, Any] = extra
        self.is_read = False
        """True of a request that only reads: it had no effect, whatever its code says."""

    @property
    def may_have_effect(self) -> bool:
        """Tell whether the failed request may have done something."""
        return self.code.effects is Effects.MAYBE and not self.is_read


def copy_of(error: FencelogError) -> FencelogError:
    """Return a new exception of the same error: one object that is raised twice would collect the
    tracebacks of both."""
    copy = FencelogError(error.code, error.detail, **error.extra)
    copy.is_read = error.is_read
    return copy


def prefix_bookie(bookie_id: str, detail: str) -> str:
    """Return ``detail`` with the bookie's name before it, for what a bookie reported or a client
    reports of it."""
    name = f"bookie {bookie_id}"
    return detail if detail.startswith((f"{name} ", f"{name}:")) else f"{name}: {detail}"


def recovery_incomplete(
    ledger_id: int, what: str, missing: dict[str, FencelogError], *, entry_id: int | None = None
) -> FencelogError:
    """Return the error of a recovery that cannot decide: it names the missing bookies, those of
    them in limbo and (if there are any) those that have deleted the ledger, and the entry. The
    recovery may be repeated at any time; where every missing bookie is one of these, repeating it
    decides nothing."""
    reasons = "; ".join(
        prefix_bookie(bookie, error.detail) for bookie, error in sorted(missing.items())
    )
    more: dict[str, Any] = {} if entry_id is None else {"entry_id": entry_id}
    if deleted := [b for b, e in sorted(missing.items()) if e.code is ErrorCode.NO_SUCH_LEDGER]:
        more["bookies_without_ledger"] = deleted
    return FencelogError(
        ErrorCode.RECOVERY_INCOMPLETE,
        f"ledger {ledger_id} {what}" + (f" ({reasons})" if reasons else ""),
        ledger_id=ledger_id,
        missing_bookies=sorted(missing),
        bookies_in_limbo=list(bookies_in_limbo(missing)),
        **more,
    )


def bookies_in_limbo(errors: dict[str, FencelogError]) -> tuple[str, ...]:
    """Return the bookies, sorted, that answered that the ledger is in limbo there."""
    return tuple(sorted(b for b, e in errors.items() if e.code is ErrorCode.LEDGER_IN_LIMBO))


class ProtocolError(FencelogError):
    """Invalid bytes from the peer, which are no frame: the connection is closed, with no other
    effect."""

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(ErrorCode.BAD_FRAME, detail, **extra)


def check(condition: bool, message: str) -> None:
    """Assert an invariant of our own code, in production too (``python -O`` drops ``assert``)."""
    if not condition:
        raise AssertionError(message)
