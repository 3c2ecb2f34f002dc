"""The brokers over HTTP with their current loads: each is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from fencelog.api.admin.ask_brokers import ask_brokers
from fencelog.api.admin.broker_admin import details_of
from fencelog.api.admin.models import BrokerEntry
from fencelog.api.http.queries import refuse_query
from fencelog.api.routing.peers import LinkPeers

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker


class ListedBrokers(BaseModel):
    """The registered brokers, with the loads that they have now. Of ``unanswered`` ones, no load is
    known."""

    brokers: list[BrokerEntry]
    unanswered: list[str]


def add_broker_table(router: APIRouter, broker: Broker, peers: LinkPeers) -> None:
    """Add the route to ``router``, which has the prefix ``/v1``."""

    @router.get("/admin/brokers", tags=["cluster"])
    async def table_of_brokers(request: Request) -> ListedBrokers:
        """List the registered brokers with their current loads. Each is asked; of one that does not
        answer within 2 s, no load is known."""
        refuse_query(request)
        own = _entry(details_of(broker, limit=0).model_dump())
        found, unanswered = await ask_brokers(broker, peers, own, "?limit=0", _entry)
        registered = {each["broker_id"]: each for each in broker.brokers()}
        silent = [_without_load(registered[each]) for each in unanswered if each in registered]
        rows = sorted([*found.values(), *silent], key=lambda row: row.broker_id)
        return ListedBrokers(brokers=rows, unanswered=unanswered)


def _entry(answer: dict[str, Any]) -> BrokerEntry:
    """Read what a broker says of itself. Raises ValueError."""
    return BrokerEntry.model_validate(answer)


def _without_load(registered: dict[str, Any]) -> BrokerEntry:
    known = ("broker_id", "url", "started_us", "draining")
    return BrokerEntry.model_validate({name: registered[name] for name in known})
