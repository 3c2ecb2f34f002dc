"""Brokers and what they own: the routes by which partitions move, for operators and other brokers.

Any broker takes any of these requests and forwards it once, to the broker that it is about.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Query, Request

from fencelog.api.admin.ask_brokers import ask_brokers
from fencelog.api.admin.models import (
    BrokerDetails,
    BrokerEntry,
    Drained,
    ListedBrokers,
    Moved,
    Opened,
    OwnedPartition,
    Undrained,
    Unload,
)
from fencelog.api.http.queries import refuse_query
from fencelog.api.routing.link_frames import FORWARDED
from fencelog.api.routing.peers import LinkPeers, broker_path
from fencelog.broker.limits import MAX_LISTED_PARTITIONS
from fencelog.broker.names import TopicName
from fencelog.broker.partition.ownership import NotOwner
from fencelog.broker.partition.partition_slot import PartitionSlot
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

DEFAULT_LISTED = 100

_PARTITION = "/topics/{namespace}/{topic}/partitions/{partition}"


def add_broker_routes(router: APIRouter, broker: Broker, peers: LinkPeers) -> None:
    """Add the routes of brokers to ``router``, which has the prefix ``/v1``; handlers raise
    FencelogError."""
    _add_brokers(router, broker, peers)
    _add_table(router, broker, peers)
    _add_partitions(router, broker, peers)


def _add_brokers(router: APIRouter, broker: Broker, peers: LinkPeers) -> None:
    @router.get("/brokers/{broker_id}", tags=["cluster"])
    async def get_broker(
        broker_id: str,
        request: Request,
        limit: Annotated[int, Query(ge=0, le=MAX_LISTED_PARTITIONS)] = DEFAULT_LISTED,
    ) -> BrokerDetails:
        """Return one broker, and the partitions that it has open. Those with the most traffic
        come first."""
        url = elsewhere(broker, broker_id, request)
        if url is not None:
            path = f"{broker_path(broker_id)}?limit={limit}"
            return BrokerDetails.model_validate(await peers.ask("GET", url, path))
        return details_of(broker, limit=limit)

    @router.post("/brokers/{broker_id}:drain", tags=["cluster"])
    async def drain(broker_id: str, request: Request, force: bool = False) -> Drained:
        """Have a broker transfer all its partitions. It takes none until `:undrain` or its next
        start, and goes on forwarding requests to the owners. The answer comes when that is done,
        or its time (`--drain-seconds`) is over: another request continues.
        412 without another broker that takes partitions, unless `force`."""
        refuse_query(request, "force")
        url = elsewhere(broker, broker_id, request)
        if url is not None:
            path = broker_path(broker_id, ":drain?force=true" if force else ":drain")
            return Drained.model_validate(await peers.ask("POST", url, path))
        result = await broker.drain(force=force)
        return Drained(broker_id=broker_id, **asdict(result))

    @router.post("/brokers/{broker_id}:undrain", tags=["cluster"])
    async def undrain(broker_id: str, request: Request) -> Undrained:
        """Have a drained broker take partitions again. May be repeated."""
        refuse_query(request)
        url = elsewhere(broker, broker_id, request)
        if url is not None:
            path = broker_path(broker_id, ":undrain")
            return Undrained.model_validate(await peers.ask("POST", url, path))
        await broker.undrain()
        return Undrained(broker_id=broker_id)


def _add_table(router: APIRouter, broker: Broker, peers: LinkPeers) -> None:
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


def _add_partitions(router: APIRouter, broker: Broker, peers: LinkPeers) -> None:
    @router.post(_PARTITION + ":unload", tags=["cluster"])
    async def unload(
        namespace: str,
        topic: str,
        partition: int,
        request: Request,
        body: Annotated[Unload | None, Body()] = None,
    ) -> Moved:
        """Have the owner of a partition transfer it. To the broker ``to``, else to the least
        loaded."""
        refuse_query(request)
        name = TopicName.of(namespace, topic)
        to = None if body is None else body.to
        try:
            broker_id = await broker.unload(name, partition, to=to)
        except NotOwner as error:
            if is_forwarded(request):
                raise
            answer = await peers.ask("POST", error.url, request.url.path, {"to": to})
            return Moved.model_validate(answer)
        return Moved(partition=partition, broker_id=broker_id)

    @router.post(_PARTITION + ":open", tags=["cluster"])
    async def open_partition(
        namespace: str, topic: str, partition: int, request: Request
    ) -> Opened:
        """Have the broker that is asked own a partition if it has no owner. It answers 421 if
        the partition has another one."""
        refuse_query(request)
        log = await broker.take(TopicName.of(namespace, topic), partition)
        return Opened(partition=partition, broker_id=broker.config.broker_id, epoch=log.epoch)


def elsewhere(broker: Broker, broker_id: str, request: Request) -> str | None:
    """Return the URL of the broker to ask, or None if it is this one. Raises NOT_FOUND if no such
    broker is registered."""
    if broker_id == broker.config.broker_id:
        return None
    url = broker.directory.url_of(broker_id)
    if url is None or is_forwarded(request):
        raise FencelogError(ErrorCode.NOT_FOUND, f"no broker {broker_id} is registered")
    return url


def details_of(broker: Broker, *, limit: int) -> BrokerDetails:
    """Return the broker that is asked, with its current load."""
    slots = sorted(broker.open_slots(), key=lambda slot: -slot.meter.score)
    owned = [shown for slot in slots[:limit] if (shown := owned_partition(slot))]
    return BrokerDetails.model_validate(
        broker.directory.own() | {"partitions": len(slots), "owned": owned}
    )


def is_forwarded(request: Request) -> bool:
    """Tell whether another broker has forwarded the request."""
    return FORWARDED.decode() in request.headers


def owned_partition(slot: PartitionSlot) -> dict[str, Any] | None:
    """Return the description of an open partition, or None if it has just been closed."""
    log = slot.open_log
    if log is None:
        return None
    return OwnedPartition(
        topic=str(slot.info.name),
        partition=slot.partition,
        epoch=log.epoch,
        earliest_offset=log.earliest_offset,
        tail_offset=log.tail_offset,
        in_bytes_per_s=round(slot.meter.in_bytes_per_s),
        out_bytes_per_s=round(slot.meter.out_bytes_per_s),
        pending_bytes=log.pending_bytes,
    ).model_dump()


def _entry(answer: dict[str, Any]) -> BrokerEntry:
    """Read what a broker says of itself. Raises ValueError."""
    return BrokerEntry.model_validate(answer)


def _without_load(registered: dict[str, Any]) -> BrokerEntry:
    known = ("broker_id", "url", "started_us", "draining")
    return BrokerEntry.model_validate({name: registered[name] for name in known})
