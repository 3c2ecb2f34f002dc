"""The settings of topics and namespaces as JSON, in bodies and in answers.

Null takes back what was set, so that it is inherited; ``"unlimited"`` means no bound.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fencelog.broker.limits import MAX_PARTITION_PENDING_BYTES, MAX_PARTITIONS
from fencelog.broker.policy import MAX_NUMBER, Overrides, Policy, to_json
from fencelog.ledgers.limits import MAX_ENSEMBLE
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies

ALLOW_MISSING_BOOKIES = "allow_missing_bookies"

BookieCount = Annotated[int, Field(ge=1, le=MAX_ENSEMBLE)]
Count = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
Bound = Count | Literal["unlimited"]


class Settings(BaseModel):
    """Settings that are left out, or null, are inherited: a topic's from its namespace, a
    namespace's from the cluster. Sizes are of one partition."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    ensemble_size: BookieCount | None = None
    """The number of bookies that a ledger is spread over; usually 3."""
    write_quorum: BookieCount | None = None
    """The number of bookies that each entry is written to; usually 3."""
    ack_quorum: BookieCount | None = None
    """The number of bookies that must have stored an entry durably before it is acknowledged;
    usually 2."""
    roll_entries: Count | None = None
    """The number of entries at which a ledger is followed by the next."""
    roll_bytes: Count | None = None
    """The size at which a ledger is followed by the next."""
    roll_ms: Count | None = None
    """The age at which a ledger is followed by the next, or `retention_ms` if that is less."""
    retention_ms: Bound | None = None
    """The age above which messages may be removed, a whole ledger at a time."""
    retention_bytes: Bound | None = None
    """The number of bytes that must follow a message before it may be removed."""
    trim_unacknowledged: bool | None = None
    """True if retention also removes messages that a durable subscription has not acknowledged."""
    ttl_ms: Bound | None = None
    """The age above which messages count as acknowledged by every subscription."""
    backlog_quota_bytes: Bound | None = None
    """The limit of the backlog of the slowest durable subscription."""
    backlog_quota_ms: Bound | None = None
    """The limit of the age of the oldest message in that backlog."""
    backlog_action: Literal["hold", "refuse", "evict"] | None = None
    """The action over the quota: appends wait some seconds, are refused, or the oldest messages are
    acknowledged for the subscription."""
    publish_messages_per_s: Bound | None = None
    publish_bytes_per_s: Bound | None = None
    dispatch_messages_per_s: Bound | None = None
    """The limit of all reads and subscriptions of the partition together."""
    dispatch_bytes_per_s: Bound | None = None
    max_pending_bytes: Annotated[int, Field(ge=1, le=MAX_PARTITION_PENDING_BYTES)] | None = None
    """The limit of the appends in flight."""
    max_subscriptions: Count | None = None
    max_producers: Count | None = None
    """The number of producers whose sequences are remembered."""
    idempotency_window_ms: Count | None = None
    """The time for which an idempotency key is remembered."""
    compaction_ms: Bound | None = None
    """The interval at which the compacted view is brought up to date; unlimited: the topic has
    none."""

    def changes(self) -> dict[str, Any]:
        """Return the settings that were given, null included."""
        return self.model_dump(include=self.model_fields_set & Settings.model_fields.keys())


class TopicSettings(Settings):
    """The settings with which a topic is created."""

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = 1
    """The number of the topic's partitions."""


class TopicChanges(Settings):
    """The changes of a topic's settings; null takes a setting back."""

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] | None = None
    """The number of the topic's partitions, which can only be raised."""


def required_bookies(bookies: RegisteredBookies, allow_missing: bool) -> int | None:
    """Return the number of bookies that new settings have to be content with; None: any."""
    return None if allow_missing else len(bookies.available())


def shown_settings(own: Overrides) -> dict[str, Any]:
    """Return the settings that a topic or namespace has of its own."""
    return to_json(own)


def shown_policy(policy: Policy) -> dict[str, Any]:
    """Return all settings that apply."""
    return to_json(asdict(policy))
