"""The rates of the last minutes over HTTP: samples of all brokers added up, and each broker's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from fencelog.api.admin.ask_brokers import StatsOfBrokers
from fencelog.api.admin.broker_admin import elsewhere
from fencelog.api.admin.subscription_table_routes import TOPIC_PATTERN
from fencelog.api.http.queries import refuse_query
from fencelog.api.routing.peers import LinkPeers, broker_path
from fencelog.broker.background.rate_history import RateSamples
from fencelog.broker.limits import RATE_SAMPLE_MS
from fencelog.broker.names import TopicName

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

_INTERVAL_US = RATE_SAMPLE_MS * 1000

TopicParameter = Annotated[str, Query(json_schema_extra={"pattern": TOPIC_PATTERN})] | None


class BrokerRates(BaseModel):
    """Samples of bytes written and read per second, taken every ``interval_ms`` from ``since_us``
    on, the newest last; null: not sampled. ``since_us`` is null without any sample."""

    interval_ms: int = RATE_SAMPLE_MS
    since_us: int | None = None
    in_bytes_per_s: list[int | None] = []
    out_bytes_per_s: list[int | None] = []


class Rates(BrokerRates):
    """The samples of all brokers added up. ``unanswered``: brokers that are left out."""

    unanswered: list[str]


def rates_of(samples: RateSamples | None) -> BrokerRates:
    """Return the samples of one broker."""
    if samples is None:
        return BrokerRates()
    into, out = samples.into.values(), samples.out.values()
    since_us = (samples.into.newest - len(into) + 1) * _INTERVAL_US
    return BrokerRates(since_us=since_us, in_bytes_per_s=into, out_bytes_per_s=out)


def added_up(of_brokers: Iterable[BrokerRates]) -> BrokerRates:
    """Return the sums of all brokers, to the time that all have reached. Before its first sample a
    broker had no traffic; where it missed one, the sum is not known."""
    parts = [
        (each.since_us // _INTERVAL_US, each.in_bytes_per_s, each.out_bytes_per_s)
        for each in of_brokers
        if each.since_us is not None
    ]
    if not parts:
        return BrokerRates()
    begin = min(first for first, _, _ in parts)
    ticks = range(begin, min(first + len(into) for first, into, _ in parts))
    return BrokerRates(
        since_us=begin * _INTERVAL_US,
        in_bytes_per_s=[_sum([(first, into) for first, into, _ in parts], at) for at in ticks],
        out_bytes_per_s=[_sum([(first, out) for first, _, out in parts], at) for at in ticks],
    )


def _sum(parts: Sequence[tuple[int, Sequence[int | None]]], tick: int) -> int | None:
    values = [values[tick - first] for first, values in parts if tick >= first]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def add_rates(router: APIRouter, broker: Broker, peers: LinkPeers, stats: StatsOfBrokers) -> None:
    """Add the routes to ``router``, which has the prefix ``/v1``; handlers raise FencelogError."""

    def own(topic: str | None) -> BrokerRates:
        history = broker.rate_history
        return rates_of(history.total() if topic is None else history.of(topic))

    @router.get("/admin/rates", tags=["cluster"])
    async def list_rates(request: Request, topic: TopicParameter = None) -> Rates:
        """Return the rates of the last 5 minutes. Of everything, or of one topic: samples of all
        brokers added up, without those that do not answer at once: they are `unanswered`."""
        refuse_query(request, "topic")
        name = None if topic is None else str(TopicName.parse(topic))
        verb = "/rates" if name is None else f"/rates?topic={name}"
        known = await stats.get(own(name), verb, _read)
        sums = added_up(known.of_brokers.values()).model_dump()
        return Rates(**sums, unanswered=known.unanswered)

    @router.get("/brokers/{broker_id}/rates", tags=["cluster"])
    async def rates_of_broker(
        broker_id: str, request: Request, topic: TopicParameter = None
    ) -> BrokerRates:
        """Return the rates of the last 5 minutes at one broker. Of everything that it has open, or
        of one topic."""
        refuse_query(request, "topic")
        name = None if topic is None else str(TopicName.parse(topic))
        url = elsewhere(broker, broker_id, request)
        if url is not None:
            verb = "/rates" if name is None else f"/rates?topic={name}"
            path = broker_path(broker_id, verb)
            return BrokerRates.model_validate(await peers.ask("GET", url, path))
        return own(name)


def _read(answer: dict[str, Any]) -> BrokerRates:
    """Read what another broker has answered. Raises ValueError."""
    return BrokerRates.model_validate(answer)
