"""The list of subscriptions with figures, sorted and cut into pages here, and each broker's part of
it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from fencelog.api.admin.ask_brokers import StatsOfBrokers
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
from fencelog.api.subscriptions.lag_core import NO_LAG, Lag, lag_of, recent_part
from fencelog.api.subscriptions.lag_core import added_up as added_up_lags
from fencelog.broker.limits import MAX_SUBSCRIPTION_PAGE
from fencelog.broker.names import NAME_PATTERN, TopicName
from fencelog.broker.partition.stats.subscription_totals import (
    SUBSCRIPTION_TOTALS,
    SubscriptionKey,
    SubscriptionTotals,
)
from fencelog.ledgers.limits import MAX_ADMIN_BYTES

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

DEFAULT_SUBSCRIPTION_PAGE = 100

_QUOTES = len('["",""],')
"""The bytes of a subscription in a question beside its names, which are ASCII."""

TOPIC_PATTERN = f"^{NAME_PATTERN}/{NAME_PATTERN}$"


class ListedSubscription(BaseModel):
    """A subscription and its figures, which are null while no partition is known to be open.
    ``partitions``: open; ``backlog_messages``: not acknowledged, of which ``outstanding`` are with
    consumers and ``dead_letters`` on the way to their topic; ``backlog_bytes``: from the first of
    them on, estimated; ``oldest_us``: its publish time, null without one; ``held_bytes``: in
    ledgers that are kept for this subscription alone; ``recent_lag``: messages that were not
    acknowledged during the last 5 minutes, a sample every 10 s, the newest last: empty where there
    are none, null where they were not asked for or a sample was missed."""

    topic: str
    subscription: str
    partitions: int | None
    backlog_messages: int | None
    backlog_bytes: int | None
    outstanding: int | None
    dead_letters: int | None
    held_bytes: int | None
    oldest_us: int | None
    recent_lag: list[int | None] | None


class SubscriptionTablePage(BaseModel):
    """A page of subscriptions. ``total``: those that fit the question; ``next_start``: where the
    next page begins; ``unanswered``: brokers whose figures are not known yet, so that sums may be
    too small; ``now_us``: the time of the service, from which ages follow."""

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


_Pair = Annotated[list[str], Field(min_length=2, max_length=2)]


class AskedLags(BaseModel):
    """The subscriptions whose lag is asked for: topics and names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    subscriptions: Annotated[list[_Pair], Field(max_length=MAX_SUBSCRIPTION_PAGE)]


class BrokerLag(BaseModel):
    """The lag of a subscription in so many ``partitions``, those that are open at a broker, in
    samples from ``since_us`` on."""

    partitions: int
    interval_ms: int
    since_us: int | None
    backlog_messages: list[int | None]


class BrokerLags(BaseModel):
    """The lags of the subscriptions that were asked for, in that order; null: it has no partition
    open here."""

    lags: list[BrokerLag | None]


def add_subscription_table(
    router: APIRouter, broker: Broker, peers: LinkPeers, stats: StatsOfBrokers
) -> None:
    """Add the routes to ``router``, which has the prefix ``/v1``."""
    _add_table(router, broker, stats)
    _add_parts(router, broker, peers)


def _add_table(router: APIRouter, broker: Broker, stats: StatsOfBrokers) -> None:
    @router.get("/admin/subscriptions", tags=["subscriptions"])
    async def table_of_subscriptions(
        request: Request,
        sort: SubscriptionOrder = SubscriptionOrder.NAME,
        contains: Annotated[str, Query(max_length=MAX_CONTAINS)] = "",
        topic: Annotated[str, Query(json_schema_extra={"pattern": TOPIC_PATTERN})] | None = None,
        start: Annotated[int, Query(ge=0, le=MAX_START)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_SUBSCRIPTION_PAGE)] = DEFAULT_SUBSCRIPTION_PAGE,
        recent: bool = False,
    ) -> SubscriptionTablePage:
        """List subscriptions with their figures, sorted by name or by a figure. With `topic` all of
        that topic; otherwise those that have a partition open at some broker. Figures are sums over
        all brokers and a few seconds old; the list does not wait for those of brokers that do not
        answer at once, which are `unanswered`. With `recent` each has its lag of the last
        minutes."""
        refuse_query(request, "sort", "contains", "topic", "start", "limit", "recent")
        own = await broker.backlog_table.totals()
        known = await stats.get(own, "/subscriptions", from_wire)
        totals = added_up(known.of_brokers.values())
        keys = list(totals.keys() | set().union(*known.last_known.values()))
        if topic is not None:
            info = await broker.topic(TopicName.parse(topic))
            names = await broker.subscriptions.list_names(info.topic_id)
            keys = [SubscriptionKey(topic, name) for name in names]
        found = ordered(keys, totals, contains=contains, by=sort)
        end = start + limit
        page = found[start:end]
        lags = await _recent_lags(broker, stats, page, totals) if recent else {}
        return SubscriptionTablePage(
            subscriptions=[_listed(key, totals.get(key), lags.get(key)) for key in page],
            total=len(found),
            next_start=end if end < len(found) else None,
            unanswered=known.unanswered,
            now_us=broker.host.now_us(),
        )


def _add_parts(router: APIRouter, broker: Broker, peers: LinkPeers) -> None:
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

    @router.post("/brokers/{broker_id}:lags", tags=["cluster"])
    async def lags_of_broker(broker_id: str, request: Request, asked: AskedLags) -> BrokerLags:
        """Return the lag of the last minutes of these subscriptions at a broker. For the list of
        another broker."""
        refuse_query(request)
        url = elsewhere(broker, broker_id, request)
        if url is not None:
            path = broker_path(broker_id, ":lags")
            return BrokerLags.model_validate(await peers.ask("POST", url, path, asked.model_dump()))
        keys = [SubscriptionKey(*each) for each in asked.subscriptions]
        parts = await _own_lags(broker, keys)
        return BrokerLags(lags=[None if part is None else _shown(part) for part in parts])


class _LagPart(NamedTuple):
    """The lag in so many partitions."""

    partitions: int
    lag: Lag


async def _own_lags(broker: Broker, keys: Sequence[SubscriptionKey]) -> list[_LagPart | None]:
    """Return the lags in the partitions that are open here; None: there is none."""
    totals, ids = await broker.backlog_table.totals(), broker.backlog_table.ids
    samples = broker.lag_history.of_all(ids[key] for key in keys if key in ids)

    def part(key: SubscriptionKey) -> _LagPart | None:
        if key not in ids or key not in totals:
            return None
        found, partitions = samples[ids[key]], totals[key].partitions
        # Without the samples of all its partitions the sum would be too small.
        lags = [lag_of(each) for each in found] if len(found) >= partitions else [NO_LAG]
        return _LagPart(partitions, recent_part(added_up_lags(lags)))

    return [part(key) for key in keys]


async def _recent_lags(
    broker: Broker,
    stats: StatsOfBrokers,
    keys: Sequence[SubscriptionKey],
    totals: Mapping[SubscriptionKey, SubscriptionTotals],
) -> dict[SubscriptionKey, Lag]:
    """Return the lags of all brokers added up; none where a broker does not answer that has
    partitions of it."""
    # However the page is sorted, these are the same questions.
    found: dict[SubscriptionKey, Lag] = {}
    for part in await asyncio.gather(
        *(_part_of_lags(broker, stats, asked, totals) for asked in _questions(sorted(keys)))
    ):
        found |= part
    return found


def _questions(keys: Sequence[SubscriptionKey]) -> list[tuple[SubscriptionKey, ...]]:
    """Return the keys in as many parts as there have to be, so that no broker refuses the body of a
    question as too large."""
    parts: list[list[SubscriptionKey]] = []
    left = 0
    for key in keys:
        size = len(key.topic) + len(key.subscription) + _QUOTES
        if size > left:
            parts.append([])
            left = MAX_ADMIN_BYTES - len(msgspec.json.encode(_question([])))
        parts[-1].append(key)
        left -= size
    return [tuple(part) for part in parts]


def _question(keys: Sequence[SubscriptionKey]) -> dict[str, Any]:
    return {"subscriptions": [list(key) for key in keys]}


async def _part_of_lags(
    broker: Broker,
    stats: StatsOfBrokers,
    asked: tuple[SubscriptionKey, ...],
    totals: Mapping[SubscriptionKey, SubscriptionTotals],
) -> dict[SubscriptionKey, Lag]:
    """Return the lags that one question asks for."""
    own = await _own_lags(broker, asked)
    known = await stats.get(own, ":lags", _read_lags, body=_question(asked), key=asked)
    found: dict[SubscriptionKey, Lag] = {}
    for key, *parts in zip(asked, *known.of_brokers.values(), strict=True):
        there = [part for part in parts if part is not None]
        partitions = totals[key].partitions if key in totals else 0
        is_whole = sum(part.partitions for part in there) >= partitions
        found[key] = added_up_lags([part.lag for part in there]) if is_whole else NO_LAG
    return found


def _shown(part: _LagPart) -> BrokerLag:
    return BrokerLag(partitions=part.partitions, **msgspec.to_builtins(part.lag))


def _read_lags(answer: dict[str, Any]) -> list[_LagPart | None]:
    """Read what another broker has answered. Raises ValueError."""
    return [_read_lag(each) for each in BrokerLags.model_validate(answer).lags]


def _read_lag(said: BrokerLag | None) -> _LagPart | None:
    if said is None:
        return None
    return _LagPart(said.partitions, Lag(said.interval_ms, said.since_us, said.backlog_messages))


def _listed(
    key: SubscriptionKey, totals: SubscriptionTotals | None, lag: Lag | None
) -> ListedSubscription:
    numbers = {name: getattr(totals, name, None) for name in SUBSCRIPTION_TOTALS}
    return ListedSubscription(
        topic=key.topic,
        subscription=key.subscription,
        recent_lag=None if lag is None else lag.backlog_messages,
        **numbers,
    )
