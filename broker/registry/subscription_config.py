"""The definition of a subscription: its name, its id, and its settings. Values, without a
partition.

A subscription is defined once for a topic; each partition keeps a cursor of its own for it. Its id
is random and never used again, so that a subscription that was deleted and created again shares
nothing with the previous one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fencelog.broker.limits import (
    MAX_CONSUMER_NAME_BYTES,
    MAX_LEASE_MS,
    MAX_NACK_DELAY_MS,
    MAX_OUTSTANDING,
)
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = "exclusive", "failover", "shared", "key_shared"
TYPES = (EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED)
ORDERED = (EXCLUSIVE, FAILOVER)
"""The types with one consumer at a time and everything in order."""

MAX_DELIVERIES = 1_000_000
"""The largest ``max_deliveries``. Far above any use; it keeps the number small in the state log."""

MAX_OFFSET = 2**53 - 1

RANGES = {
    "lease_ms": (1, MAX_LEASE_MS),
    "max_deliveries": (1, MAX_DELIVERIES),
    "backoff_min_ms": (0, MAX_NACK_DELAY_MS),
    "backoff_max_ms": (0, MAX_NACK_DELAY_MS),
    "max_outstanding": (1, MAX_OUTSTANDING),
}
_NULLABLE = ("max_deliveries", "dead_letter_topic")

Start = str | Mapping[str, int]
"""The start of a subscription: ``"earliest"``, ``"latest"``, ``{"offset": n}`` or ``{"time_us":
t}``."""


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """The settings of a subscription, each with its default. JSON-compatible both ways.

    The constructor raises FencelogError(BAD_REQUEST) that names the ``field`` which is not valid.
    """

    type: str = SHARED
    lease_ms: int = 30_000
    """The time that a consumer has for delivered messages, unless its pull says otherwise."""
    max_deliveries: int | None = None
    """The failures after which a message goes to the dead letter topic; None: it is tried for
    ever."""
    dead_letter_topic: str | None = None
    """The dead letter topic, ``NAMESPACE/TOPIC``; None: the service names one."""
    backoff_min_ms: int = 1_000
    """The time after which a refused message is delivered again, doubled each time it fails again,
    at most ``backoff_max_ms``."""
    backoff_max_ms: int = 60_000
    max_outstanding: int = 10_000
    """The messages that may be with consumers at a time, in one partition."""
    durable: bool = True
    """The durability of the cursor. False: it exists only in its owner's memory, and does not keep
    messages from being removed."""

    def __post_init__(self) -> None:
        for name in _NAMES:
            _check(name, getattr(self, name))
        if self.backoff_min_ms > self.backoff_max_ms:
            raise _bad("backoff_max_ms", "backoff_max_ms is less than backoff_min_ms")
        if self.dead_letter_topic is not None and self.max_deliveries is None:
            raise _bad("max_deliveries", "a dead_letter_topic needs max_deliveries")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SubscriptionConfig:
        """Return the settings in ``data``; missing ones have their defaults. Raises
        FencelogError(BAD_REQUEST)."""
        for name in data:
            if name not in _NAMES:
                raise _bad(name, f"no setting {name[:80]!r}; there are {', '.join(_NAMES)}")
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_NAMES = tuple(f.name for f in fields(SubscriptionConfig))


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """One subscription. ``start``: where its cursors begin, see ``Start``."""

    name: str
    subscription_id: str
    config: SubscriptionConfig
    start: Start = "latest"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SubscriptionInfo:
        """Return the subscription in ``data``. Raises FencelogError(BAD_REQUEST)."""
        return cls(
            str(data["name"]),
            str(data["subscription_id"]),
            SubscriptionConfig.from_json(data["config"]),
            check_start(data["start"]),
        )

    def to_json(self) -> dict[str, Any]:
        start = self.start if isinstance(self.start, str) else dict(self.start)
        return {
            "name": self.name,
            "subscription_id": self.subscription_id,
            "config": self.config.to_json(),
            "start": start,
        }


def check_start(start: Any) -> Start:
    """Return the start if it is valid. Raises FencelogError(BAD_REQUEST)."""
    if start in ("earliest", "latest"):
        return str(start)
    if isinstance(start, Mapping) and len(start) == 1:
        ((kind, value),) = start.items()
        if kind in ("offset", "time_us") and _is_number(value) and 0 <= value <= MAX_OFFSET:
            return {kind: value}
    raise _bad(
        "start",
        'start is "earliest", "latest", {"offset": n} or {"time_us": t}, not ' + str(start)[:80],
    )


def check_consumer(name: str) -> str:
    """Return a consumer's name if it is valid; it may be empty. Raises
    FencelogError(BAD_REQUEST)."""
    if len(name.encode(errors="replace")) > MAX_CONSUMER_NAME_BYTES:
        raise _bad("consumer", f"a consumer's name takes {MAX_CONSUMER_NAME_BYTES} bytes at most")
    return name


def check_consumer_is_named(type_: str, name: str) -> None:
    """Check that a pull tells who pulls, where the type of the subscription depends on it: clients
    without a name could not be told apart. Raises FencelogError(BAD_REQUEST)."""
    if not name and type_ != SHARED:
        raise _bad(
            "consumer",
            f"the subscription is {type_}, so a pull needs `consumer`: the name of the consumer, "
            "different for each",
        )


def check_lease(lease_ms: int) -> int:
    """Return a lease's length if it is valid. Raises FencelogError(BAD_REQUEST)."""
    _check("lease_ms", lease_ms)
    return lease_ms


def check_delay(delay_ms: int) -> int:
    """Return a delay if it is valid. Raises FencelogError(BAD_REQUEST)."""
    _check_number("delay_ms", delay_ms, 0, MAX_NACK_DELAY_MS)
    return delay_ms


def _check(name: str, value: Any) -> None:
    if value is None and name in _NULLABLE:
        return
    if name == "type":
        if value not in TYPES:
            raise _bad(name, f"type is one of {', '.join(TYPES)}, not {str(value)[:80]!r}")
    elif name == "durable":
        if not isinstance(value, bool):
            raise _bad(name, f"durable is true or false, not {str(value)[:80]!r}")
    elif name == "dead_letter_topic":
        _check_topic(name, value)
    else:
        _check_number(name, value, *RANGES[name])


def _check_topic(name: str, value: Any) -> None:
    try:
        TopicName.parse(value if isinstance(value, str) else "")
    except FencelogError as error:
        raise _bad(name, f"{name}: {error.detail}") from None


def _check_number(name: str, value: Any, least: int, most: int) -> None:
    if not _is_number(value) or not least <= value <= most:
        raise _bad(name, f"{name} is a whole number, {least} to {most}, not {str(value)[:80]!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bad(name: str, detail: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, detail, field=name[:80])
