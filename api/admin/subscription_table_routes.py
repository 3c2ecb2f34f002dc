"""The list of subscriptions with figures, sorted and cut into pages here, and each broker's part of
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from fencelog.api.admin.ask_brokers import ask_brokers
from fencelog.api.admin.broker_admin import elsewhere
from fencelog.api.admin.subscription_table_core import (
    SubscriptionOrder,
    added_up,
    from_wire,
    ordered,
    to_wire,
)
from fencelog.api.admin.topic_table_routes import MAX_CONTAINS, MAX_START
from fencelog.api.http.queries import refuse_query
from fencelog.api.routing.peers import LinkPeers, broker_path
from fencelog.broker.limits import MAX_SUBSCRIPTION_PAGE
from fencelog.broker.names import NAME_PATTERN, TopicName
from fencelog.broker.partition.subscription_totals import (
    SUBSCRIPTION_TOTALS,
    SubscriptionKey,
    SubscriptionTotals,
)

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

DEFAULT_SUBSCRIPTION_PAGE = 100

_TOPIC = f"^{NAME_PATTERN}/{NAME_PATTERN}$"


class ListedSubscription(BaseModel):
    """A subscription and its figures, which are null while no partition is open. ``partitions``:
    open; ``backlog_messages``: not acknowledged, of which ``outstanding`` are with consumers and
    ``dead_letters`` on the way to their topic; ``backlog_bytes``: from the first of them on,
    estimated; ``oldest_us``: its publish time, null without one; ``held_bytes``: in ledgers that
    are kept for this subscription alone."""

    topic: str
    subscription: str
    partitions: int | None
    backlog_messages: int | None
    backlog_bytes: int | None
    outstanding: int | None
    dead_letters: int | None
    held_bytes: int | None
    oldest_us: int | None


class SubscriptionTablePage(BaseModel):
    """A page of subscriptions. ``total``: those that fit the question; ``next_start``: where the
    next page begins; ``unanswered``: brokers whose figures are missing; ``now_us``: the time of the
    service, from which ages follow."""

    subscriptions: list[ListedSubscription]
    total: int
    next_start: int | None
    unanswered: list[str]
    now_us: int


class BrokerSubscriptions(BaseModel):
    """The figures of all subscriptions of partitions that are open at a broker: topic, name, and
    numbers in the order that brokers agree on."""

    broker_id: str
    subscriptions: list[list[Any]]


def add_subscription_table(router: APIRouter, broker: Broker, peers: LinkPeers) -> None:
    """Add the routes to ``router``, which has the prefix ``/v1``."""

    @router.get("/admin/subscriptions", tags=["subscriptions"])
    async def table_of_subscriptions(
        request: Request,
        sort: SubscriptionOrder = SubscriptionOrder.NAME,
        contains: Annotated[str, Query(max_length=MAX_CONTAINS)] = "",
        topic: Annotated[str, Query(json_schema_extra={"pattern": _TOPIC})] | None = None,
        start: Annotated[int, Query(ge=0, le=MAX_START)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_SUBSCRIPTION_PAGE)] = DEFAULT_SUBSCRIPTION_PAGE,
    ) -> SubscriptionTablePage:
        """List subscriptions with their figures, sorted by name or by a figure. With `topic` all of
        that topic; otherwise those that have a partition open at some broker. Figures are sums over
        all brokers and up to two seconds old; those of brokers that do not answer are left out."""
        refuse_query(request, "sort", "contains", "topic", "start", "limit")
        own = await broker.backlog_table.totals()
        verb = "/subscriptions"
        of_brokers, unanswered = await ask_brokers(broker, peers, own, verb, from_wire)
        totals = added_up(of_brokers.values())
        keys = list(totals)
        if topic is not None:
            info = await broker.topic(TopicName.parse(topic))
            names = await broker.subscriptions.list_names(info.topic_id)
            keys = [SubscriptionKey(topic, name) for name in names]
        found = ordered(keys, totals, contains=contains, by=sort)
        end = start + limit
        return SubscriptionTablePage(
            subscriptions=[_listed(key, totals.get(key)) for key in found[start:end]],
            total=len(found),
            next_start=end if end < len(found) else None,
            unanswered=unanswered,
            now_us=broker.host.now_us(),
        )

    @router.get("/brokers/{broker_id}/subscriptions", tags=["cluster"])
    async def subscriptions_of_broker(broker_id: str, request: Request) -> BrokerSubscriptions:
        """Return the figures of the subscriptions of partitions that are open at a broker. For the
        list of another broker: their order may change."""
        refuse_query(request)
        url = elsewhere(broker, broker_id, request)
        if url is not None:
            path = broker_path(broker_id, "/subscriptions")
            return BrokerSubscriptions.model_validate(await peers.ask("GET", url, path))
        totals = await broker.backlog_table.totals()
        return BrokerSubscriptions(broker_id=broker_id, subscriptions=to_wire(totals))


def _listed(key: SubscriptionKey, totals: SubscriptionTotals | None) -> ListedSubscription:
    numbers = {name: getattr(totals, name, None) for name in SUBSCRIPTION_TOTALS}
    return ListedSubscription(topic=key.topic, subscription=key.subscription, **numbers)
