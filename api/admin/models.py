"""Shapes of the administrative requests and answers (the hot paths have none of their own)."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field


class JsonLine(JSONResponse):
    """An answer in JSON that ends its line, for people at a terminal."""

    def render(self, content: object) -> bytes:
        return super().render(content) + b"\n"


class Topic(BaseModel):
    """A topic. Times in µs since 1970 UTC. ``settings``: its own; ``effective``: all that apply."""

    namespace: str
    topic: str
    topic_id: str
    partitions: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    created_us: int
    settings: dict[str, Any]
    effective: dict[str, Any]


class TopicList(BaseModel):
    """One page of topics, sorted by name; the next one begins after ``next_start_after``."""

    topics: list[Topic]
    next_start_after: str | None = None


class Namespace(BaseModel):
    """A namespace. ``created_us`` is null where it exists only because of its topics."""

    namespace: str
    created_us: int | None
    settings: dict[str, Any]
    effective: dict[str, Any]


class NamespaceList(BaseModel):
    """All namespaces, sorted by name."""

    namespaces: list[Namespace]


class SweepReport(BaseModel):
    """The result of a sweep over so many ledgers; ``failed``: what it could not remove."""

    looked_at: int
    topics: list[str]
    ledgers: list[int]
    failed: dict[str, str]


class PartitionOwner(BaseModel):
    """The current owner of a partition."""

    partition: int
    broker_id: str
    url: str
    epoch: int


class Owners(BaseModel):
    """The partitions that have an owner; a partition that has never been used has none."""

    owners: list[PartitionOwner]


class BrokerEntry(BaseModel):
    """A registered broker, and its load (decaying means); null: not known."""

    broker_id: str
    url: str
    started_us: int
    draining: bool = False
    partitions: int | None = None
    in_bytes_per_s: int | None = None
    out_bytes_per_s: int | None = None
    pending_bytes: int | None = None


class Brokers(BaseModel):
    brokers: list[BrokerEntry]


class ListedBrokers(BaseModel):
    """The registered brokers, with the loads that they have now. Of ``unanswered`` ones, no load is
    known."""

    brokers: list[BrokerEntry]
    unanswered: list[str]


class OwnedPartition(BaseModel):
    """A partition that is open at a broker."""

    topic: str
    partition: int
    epoch: int
    earliest_offset: int
    tail_offset: int
    in_bytes_per_s: int
    out_bytes_per_s: int
    pending_bytes: int


class BrokerDetails(BrokerEntry):
    """A broker, and partitions that it has open."""

    owned: list[OwnedPartition]


class Drained(BaseModel):
    """The result of a drain. ``not_taken``: partitions that no other broker took over; any broker
    takes them on request. ``still_open``: those that this one still has, because the time was over
    or `:undrain` came; another drain continues."""

    broker_id: str
    not_taken: int
    still_open: int


class Undrained(BaseModel):
    """A broker that takes partitions."""

    broker_id: str


class Unload(BaseModel):
    """The request to move a partition. ``to``: its next owner; by default the least loaded
    broker."""

    model_config = ConfigDict(extra="forbid", strict=True)

    to: str | None = None


class Moved(BaseModel):
    """The result of a move. ``broker_id``: the current owner; null: no broker took the partition,
    and any broker does on request."""

    partition: int
    broker_id: str | None


class Opened(BaseModel):
    """A partition that this broker owns and serves."""

    partition: int
    broker_id: str
    epoch: int


class RegisteredBookie(BaseModel):
    """A registered bookie. ``is_read_only``: it takes no entries; ``is_full``: because of its
    disks; ``free_bytes`` of ``total_bytes``: of the fullest disk that has ledgers, as it was up to
    a minute ago, null if that was not stated."""

    bookie_id: str
    address: str | None
    rack: str
    is_read_only: bool
    is_full: bool
    free_bytes: int | None
    total_bytes: int | None


class Bookies(BaseModel):
    bookies: list[RegisteredBookie]


class Problem(BaseModel):
    """A problem document (RFC 9457), with what a client may conclude."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(description="One of the codes of the error table")
    retryable: bool = Field(description="Whether the same request may be sent again")
    side_effects: str = Field(description="none: nothing was done; maybe: it may have been done")
    request_id: str = Field(description="as the service's log names the request")


PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Problem (RFC 9457)",
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }
}
