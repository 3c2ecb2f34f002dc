"""Shapes of the requests that create and list subscriptions (pulls and acks have none of these)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from fencelog.broker.names import NAME_PATTERN
from fencelog.broker.registry.subscription_config import (
    MAX_OFFSET,
    RANGES,
    Start,
    SubscriptionConfig,
)
from fencelog.broker.registry.subscription_registry import RegisteredSubscription

_STRICT = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)
_DEFAULT = SubscriptionConfig()


_TOPIC = Field(json_schema_extra={"pattern": f"^{NAME_PATTERN}/{NAME_PATTERN}$"})


def _range(name: str) -> Any:
    """Return the bounds of a setting, which the broker checks."""
    least, most = RANGES[name]
    return Field(json_schema_extra={"minimum": least, "maximum": most})


class StartOffset(BaseModel):
    model_config = _STRICT

    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)]
    """The first message, in every partition."""


class StartTime(BaseModel):
    model_config = _STRICT

    time: Annotated[int, Field(ge=0, le=MAX_OFFSET)]
    """The first message published then or later; µs since 1970 UTC."""


def _form_of_start(start: object) -> str | None:
    """Return which form of a start was given, so that a mistake is explained for that one alone."""
    if isinstance(start, str):
        return "named"
    if isinstance(start, StartOffset) or (isinstance(start, dict) and "offset" in start):
        return "at_offset"
    if isinstance(start, StartTime) or (isinstance(start, dict) and "time" in start):
        return "at_time"
    return None


StartModel = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("named")]
    | Annotated[StartOffset, Tag("at_offset")]
    | Annotated[StartTime, Tag("at_time")],
    Discriminator(
        _form_of_start,
        custom_error_type="start",
        custom_error_message='must be "earliest", "latest", {"offset": N} or {"time": µs}',
    ),
]


class SubscriptionSettings(BaseModel):
    """The settings with which a subscription is created; they do not change while the subscription
    lives."""

    model_config = _STRICT

    type: Literal["exclusive", "failover", "shared", "key_shared"] = "shared"
    """The consumers that get messages: one consumer in order (the others are refused, or stand by),
    all of them, or all of them with each key's messages in order at one."""
    start: StartModel = "latest"
    """The beginning of the subscription; `latest`: after the tail at its creation."""
    lease_ms: Annotated[int, _range("lease_ms")] = _DEFAULT.lease_ms
    """The time that a consumer has for a delivered message, unless its pull says otherwise."""
    max_deliveries: Annotated[int, _range("max_deliveries")] | None = _DEFAULT.max_deliveries
    """The number of failures after which a message goes to the dead letter topic; null: it is
    delivered for ever."""
    dead_letter_topic: Annotated[str, _TOPIC] | None = _DEFAULT.dead_letter_topic
    """`NAMESPACE/TOPIC`; null: `TOPIC-SUBSCRIPTION-dead` beside the topic."""
    backoff_min_ms: Annotated[int, _range("backoff_min_ms")] = _DEFAULT.backoff_min_ms
    """The pause before a refused message is delivered again, doubled each time it fails again."""
    backoff_max_ms: Annotated[int, _range("backoff_max_ms")] = _DEFAULT.backoff_max_ms
    """The longest pause."""
    max_outstanding: Annotated[int, _range("max_outstanding")] = _DEFAULT.max_outstanding
    """The number of messages that may be with consumers at a time, in one partition."""
    durable: bool = _DEFAULT.durable
    """False: the cursor is lost with the partition's owner and does not hold messages back."""

    def config(self) -> SubscriptionConfig:
        """Return the configuration. Raises FencelogError(BAD_REQUEST) that names the field."""
        return SubscriptionConfig.from_json(self.model_dump(exclude={"start"}))

    def start_of(self) -> Start:
        if isinstance(self.start, StartOffset):
            return {"offset": self.start.offset}
        if isinstance(self.start, StartTime):
            return {"time_us": self.start.time}
        return self.start


class Subscription(SubscriptionSettings):
    """A subscription. Times in µs since 1970 UTC."""

    subscription: str
    subscription_id: str
    created_us: int


class SubscriptionList(BaseModel):
    """The subscriptions of a topic, sorted by name."""

    subscriptions: list[Subscription]


def subscription_model(registered: RegisteredSubscription) -> Subscription:
    info = registered.info
    start: Any = info.start
    if not isinstance(start, str):
        start = {"time" if name == "time_us" else name: value for name, value in start.items()}
    return Subscription(
        **info.config.to_json(),
        start=start,
        subscription=info.name,
        subscription_id=info.subscription_id,
        created_us=registered.created_us,
    )
