"""The list of topics with figures, sorted and cut into pages here, and each broker's part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from fencelog.api.admin.ask_brokers import StatsOfBrokers
from fencelog.api.admin.broker_admin import elsewhere
from fencelog.api.admin.topic_table_core import (
    SortBy,
    TopicRow,
    added_up,
    from_wire,
    ordered,
    to_wire,
)
from fencelog.api.http.queries import refuse_query
from fencelog.api.routing.peers import LinkPeers, broker_path
from fencelog.broker.limits import MAX_TOPIC_PAGE
from fencelog.broker.names import NAME_PATTERN, check_name
from fencelog.broker.partition.stats.topic_totals import TOTALS
from fencelog.broker.registry.topics import TopicInfo

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

DEFAULT_TOPIC_PAGE = 50
MAX_START = 10_000_000
MAX_CONTAINS = 200


class ListedTopic(BaseModel):
    """A topic and its figures, which are null while no partition is known to be open. ``brokers``:
    the owners; ``open_partitions``: those whose figures are there; ``messages``: readable;
    ``backlog_messages``: the longest backlog of each partition, added up; ``retention_ms``,
    ``retention_bytes``: null: no bound."""

    topic: str
    partitions: int
    retention_ms: int | None
    retention_bytes: int | None
    created_us: int
    brokers: list[str]
    open_partitions: int
    in_bytes_per_s: int | None
    out_bytes_per_s: int | None
    size: int | None
    messages: int | None
    backlog_messages: int | None
    pending_bytes: int | None


class TopicTablePage(BaseModel):
    """A page of topics. ``total``: topics that fit the question; ``next_start``: where the next
    page begins; ``unanswered``: brokers whose figures are not known yet, so that sums may be too
    small and partitions may be open that are not counted."""

    topics: list[ListedTopic]
    total: int
    next_start: int | None
    unanswered: list[str]


class BrokerTopics(BaseModel):
    """The figures of all topics with a partition that is open at a broker: numbers in the order
    that brokers agree on."""

    broker_id: str
    topics: dict[str, list[float]]


def add_topic_table(
    router: APIRouter, broker: Broker, peers: LinkPeers, stats: StatsOfBrokers
) -> None:
    """Add the routes to ``router``, which has the prefix ``/v1``."""

    @router.get("/admin/topics", tags=["topics"])
    async def table_of_topics(
        request: Request,
        sort: SortBy = SortBy.NAME,
        contains: Annotated[str, Query(max_length=MAX_CONTAINS)] = "",
        namespace: Annotated[str, Query(json_schema_extra={"pattern": f"^{NAME_PATTERN}$"})]
        | None = None,
        start: Annotated[int, Query(ge=0, le=MAX_START)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_TOPIC_PAGE)] = DEFAULT_TOPIC_PAGE,
    ) -> TopicTablePage:
        """List topics with their figures, sorted by name or by a figure. Figures are sums over
        all brokers and a few seconds old; the list does not wait for those of brokers that do not
        answer at once, which are `unanswered`."""
        refuse_query(request, "sort", "contains", "namespace", "start", "limit")
        if namespace is not None:
            check_name("namespace", namespace)
        own = await broker.topic_table.totals()
        known = await stats.get(own, "/topics", from_wire)
        rows = added_up(known.of_brokers)
        names = {str(name): name for name in await broker.topics.names(namespace)}
        found = ordered(names, rows, contains=contains, by=sort)
        end = start + limit
        infos = await broker.topics.get_all([names[name] for name in found[start:end]])
        return TopicTablePage(
            topics=[_listed(info, rows.get(str(info.name))) for info in infos],
            total=len(found),
            next_start=end if end < len(found) else None,
            unanswered=known.unanswered,
        )

    @router.get("/brokers/{broker_id}/topics", tags=["cluster"])
    async def topics_of_broker(broker_id: str, request: Request) -> BrokerTopics:
        """Return the figures of the topics that are open at a broker. For the list of another
        broker: their order may change."""
        refuse_query(request)
        url = elsewhere(broker, broker_id, request)
        if url is not None:
            path = broker_path(broker_id, "/topics")
            return BrokerTopics.model_validate(await peers.ask("GET", url, path))
        totals = await broker.topic_table.totals()
        return BrokerTopics(broker_id=broker_id, topics=to_wire(totals))


_LISTED_TOTALS = tuple(name for name in TOTALS if name != "partitions")


def _listed(info: TopicInfo, row: TopicRow | None) -> ListedTopic:
    totals: dict[str, Any] = dict.fromkeys(_LISTED_TOTALS)
    if row is not None:
        totals = {name: round(getattr(row.totals, name)) for name in totals}
    return ListedTopic(
        topic=str(info.name),
        partitions=info.config.partitions,
        retention_ms=info.policy.retention_ms,
        retention_bytes=info.policy.retention_bytes,
        created_us=info.created_us,
        brokers=[] if row is None else row.brokers,
        open_partitions=0 if row is None else row.totals.partitions,
        **totals,
    )
