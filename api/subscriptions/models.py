"""Shapes of the requests that create and list subscriptions (pulls and acks have none of these)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fencelog.broker.registry.subscription_config import Start, SubscriptionConfig
from fencelog.broker.registry.subscription_registry import RegisteredSubscription

_STRICT = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)
_DEFAULT = SubscriptionConfig()


class StartOffset(BaseModel):
    model_config = _STRICT

    offset: Annotated[int, Field(ge=0)]
    """The first message, in every partition."""


class StartTime(BaseModel):
    model_config = _STRICT

    time: Annotated[int, Field(ge=0)]
    """The first message published then or later; µs since 1970 UTC."""


StartModel = Literal["earliest", "latest"] | StartOffset | StartTime


class SubscriptionSettings(BaseModel):
    """What a subscription is created with; it does not change while the subscription lives."""

    model_config = _STRICT

    type: Literal["exclusive", "failover", "shared", "key_shared"] = "shared"
    """Who gets messages: one consumer in order (the others are refused, or stand by), all of them,
    or all of them with each key's messages in order at one."""
    start: StartModel = "latest"
    """Where it begins; `latest`: after what is there when it is created."""
    lease_ms: int = _DEFAULT.lease_ms
    """How long a consumer has for what it was handed, unless its pull says otherwise."""
    max_deliveries: int | None = _DEFAULT.max_deliveries
    """A message that failed so often goes to the dead letter topic; null: it is tried for ever."""
    dead_letter_topic: str | None = _DEFAULT.dead_letter_topic
    """`NAMESPACE/TOPIC`; null: `TOPIC-SUBSCRIPTION-dead` beside the topic."""
    backoff_min_ms: int = _DEFAULT.backoff_min_ms
    """A message that was refused comes again after this, doubled each time it fails again."""
    backoff_max_ms: int = _DEFAULT.backoff_max_ms
    """The longest pause."""
    max_outstanding: int = _DEFAULT.max_outstanding
    """Messages that may be with consumers at a time, in one partition."""
    durable: bool = _DEFAULT.durable
    """False: its place is lost with the partition's owner and keeps no message from going."""

    def config(self) -> SubscriptionConfig:
        """Raises FencelogError(BAD_REQUEST) that names the field."""
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
    """Sorted by name."""

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
