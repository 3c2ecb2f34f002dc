"""The settings of topics and namespaces as JSON: what a body may hold, and what an answer shows.

Null takes back what was set, so that it is inherited; ``"unlimited"`` is no bound at all.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fencelog.broker.limits import MAX_PARTITIONS
from fencelog.broker.policy import Overrides, Policy, to_json
from fencelog.ledgers.limits import MAX_ENSEMBLE

BookieCount = Annotated[int, Field(ge=1, le=MAX_ENSEMBLE)]
Count = Annotated[int, Field(ge=1)]
Bound = Count | Literal["unlimited"]


class Settings(BaseModel):
    """What is left out, or null, is inherited: a topic's from its namespace, a namespace's from the
    cluster. Sizes are of one partition."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    ensemble_size: BookieCount | None = None
    """Bookies that a ledger is spread over; usually 3."""
    write_quorum: BookieCount | None = None
    """Bookies that each entry is written to; usually 3."""
    ack_quorum: BookieCount | None = None
    """Bookies that must have it durably before it is acknowledged; usually 2."""
    roll_entries: Count | None = None
    """A ledger is followed by the next at so many entries."""
    roll_bytes: Count | None = None
    """Or at this size."""
    roll_ms: Count | None = None
    """Or at this age, or at that of `retention_ms` if it is less."""
    retention_ms: Bound | None = None
    """Older messages may go, a whole ledger at a time."""
    retention_bytes: Bound | None = None
    """Messages may go that are followed by so many bytes."""
    trim_unacknowledged: bool | None = None
    """Whether retention takes what a durable subscription has not acknowledged."""
    ttl_ms: Bound | None = None
    """Older messages count as acknowledged by every subscription."""
    backlog_quota_bytes: Bound | None = None
    """What the slowest durable subscription may have before it."""
    backlog_quota_ms: Bound | None = None
    """How old the oldest message before it may be."""
    backlog_action: Literal["hold", "refuse", "evict"] | None = None
    """Over the quota: appends wait some seconds, are refused, or the oldest messages are
    acknowledged for it."""
    publish_messages_per_s: Bound | None = None
    publish_bytes_per_s: Bound | None = None
    dispatch_messages_per_s: Bound | None = None
    """Of all reads and subscriptions of the partition together."""
    dispatch_bytes_per_s: Bound | None = None
    max_pending_bytes: Count | None = None
    """Appends on their way."""
    max_subscriptions: Count | None = None
    max_producers: Count | None = None
    """Producers whose sequences are remembered."""
    idempotency_window_ms: Count | None = None
    """How long an idempotency key is remembered."""
    compaction_ms: Bound | None = None
    """How often the compacted view is brought up to date; unlimited: there is none."""

    def changes(self) -> dict[str, Any]:
        """What was given, null too."""
        return self.model_dump(include=self.model_fields_set & Settings.model_fields.keys())


class TopicSettings(Settings):
    """What a topic is created with."""

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = 1
    """Logs that the topic has."""


class TopicChanges(Settings):
    """What is to change of a topic; null takes a setting back."""

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] | None = None
    """Logs that the topic has: never fewer than before."""


def shown_settings(own: Overrides) -> dict[str, Any]:
    """What a topic or namespace sets itself."""
    return to_json(own)


def shown_policy(policy: Policy) -> dict[str, Any]:
    """Every setting that holds."""
    return to_json(asdict(policy))
