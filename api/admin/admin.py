"""Topics, owners, brokers and bookies: the part of the service that FastAPI serves."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from fencelog.api.admin.models import (
    PROBLEM_RESPONSES,
    Bookies,
    BrokerEntry,
    Brokers,
    JsonLine,
    Owners,
    PartitionOwner,
    RegisteredBookie,
    SweepReport,
    Topic,
    TopicList,
)
from fencelog.api.admin.namespace_admin import add_namespaces
from fencelog.api.admin.settings import (
    ALLOW_MISSING_BOOKIES,
    TopicChanges,
    TopicSettings,
    required_bookies,
    shown_policy,
    shown_settings,
)
from fencelog.api.http.queries import refuse_query
from fencelog.broker.names import NAME_PATTERN, TopicName, check_name
from fencelog.broker.policy import from_json
from fencelog.broker.registry.topics import TopicConfig, TopicInfo
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies
from fencelog.ledgers.rpc.bookie_port import BookieInfo

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

CONFIRMED = "confirmed"
DEFAULT_PAGE = 1000
MAX_PAGE = 10_000


def admin_router(broker: Broker, bookies: RegisteredBookies) -> APIRouter:
    """Return the administrative routes. Handlers raise FencelogError, which the application turns
    into problem documents."""
    router = APIRouter(
        prefix="/v1",
        responses=PROBLEM_RESPONSES,
        default_response_class=JsonLine,
        generate_unique_id_function=attrgetter("name"),
    )
    _add_topics(router, broker, bookies)
    _add_listings(router, broker)
    add_namespaces(router, broker, bookies)
    _add_sweep(router, broker)
    _add_cluster(router, broker, bookies)
    return router


def _add_topics(router: APIRouter, broker: Broker, bookies: RegisteredBookies) -> None:
    @router.put("/topics/{namespace}/{topic}", tags=["topics"], status_code=201)
    async def create_topic(
        namespace: str,
        topic: str,
        request: Request,
        response: Response,
        settings: Annotated[TopicSettings | None, Body()] = None,
        allow_missing_bookies: bool = False,
    ) -> Topic:
        """Create a topic. 201; 200 if it exists with the same settings, 409 with others."""
        refuse_query(request, ALLOW_MISSING_BOOKIES)
        wanted = settings or TopicSettings()
        config = TopicConfig(wanted.partitions, from_json(wanted.changes()))
        info, created = await broker.topics.create(
            TopicName.of(namespace, topic),
            config,
            bookies=required_bookies(bookies, allow_missing_bookies),
        )
        response.status_code = 201 if created else 200
        return topic_model(info)

    @router.get("/topics/{namespace}/{topic}", tags=["topics"])
    async def get_topic(
        namespace: str, topic: str, request: Request, confirmed: bool = False
    ) -> Topic:
        """Return a topic's id and settings. ``confirmed``: none older than the request, also where
        the metadata server of this broker lags behind."""
        refuse_query(request, CONFIRMED)
        async with broker.topics.latest() if confirmed else nullcontext():
            return topic_model(await broker.topics.get(TopicName.of(namespace, topic)))

    @router.patch("/topics/{namespace}/{topic}", tags=["topics"])
    async def change_topic(
        namespace: str,
        topic: str,
        request: Request,
        changes: TopicChanges,
        allow_missing_bookies: bool = False,
    ) -> Topic:
        """Change settings or raise the number of partitions. Null: inherit the setting again.
        Open partitions follow at once."""
        refuse_query(request, ALLOW_MISSING_BOOKIES)
        info = await broker.topics.update(
            TopicName.of(namespace, topic),
            changes.changes(),
            partitions=changes.partitions,
            bookies=required_bookies(bookies, allow_missing_bookies),
        )
        broker.topic_changed(info)
        return topic_model(info)

    @router.delete("/topics/{namespace}/{topic}", tags=["topics"], status_code=204)
    async def delete_topic(namespace: str, topic: str, request: Request) -> None:
        """Delete a topic and everything in it."""
        refuse_query(request)
        await broker.topics.delete(TopicName.of(namespace, topic))


def _add_listings(router: APIRouter, broker: Broker) -> None:
    @router.get("/topics", tags=["topics"])
    async def list_topics(
        request: Request,
        namespace: Annotated[str, Query(json_schema_extra={"pattern": f"^{NAME_PATTERN}$"})]
        | None = None,
        prefix: str = "",
        start_after: str = "",
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE,
        confirmed: bool = False,
    ) -> TopicList:
        """List topics by name, of one namespace or of all. ``prefix`` is the beginning of the
        topic's own name; ``confirmed`` as for one topic."""
        refuse_query(request, "namespace", "prefix", "start_after", "limit", CONFIRMED)
        if namespace is not None:
            check_name("namespace", namespace)
        async with broker.topics.latest() if confirmed else nullcontext():
            found = await broker.topics.list(
                namespace, prefix, start_after=start_after, limit=limit + 1
            )
        return topic_page(found, limit)

    @router.get("/topics/{namespace}/{topic}/owners", tags=["cluster"])
    async def list_owners(namespace: str, topic: str, request: Request) -> Owners:
        """List the brokers that currently own the topic's partitions. Unused partitions have no
        owner."""
        refuse_query(request)
        found = await broker.owners(TopicName.of(namespace, topic))
        return Owners(owners=[PartitionOwner.model_validate(owner) for owner in found])


def _add_cluster(router: APIRouter, broker: Broker, bookies: RegisteredBookies) -> None:
    @router.get("/brokers", tags=["cluster"])
    async def list_brokers(request: Request) -> Brokers:
        """List the registered brokers, as they have registered. A load is published only when it
        has changed materially; `/v1/admin/brokers` has the current one."""
        refuse_query(request)
        return Brokers(brokers=[BrokerEntry.model_validate(b) for b in broker.brokers()])

    @router.get("/bookies", tags=["cluster"])
    async def list_bookies(request: Request) -> Bookies:
        """List the registered bookies, as they have registered. With address, rack and the space
        of the fullest disk."""
        refuse_query(request)
        addresses, ids = bookies.addresses(), {*bookies.available(), *bookies.read_only()}
        found = [
            registered_bookie(bookies.describe(each), addresses.get(each)) for each in sorted(ids)
        ]
        return Bookies(bookies=found)


def _add_sweep(router: APIRouter, broker: Broker) -> None:
    @router.post("/sweep", tags=["cluster"])
    async def sweep(request: Request, dry_run: bool = False) -> SweepReport:
        """Remove ledgers on no list and leftovers of deleted topics. Brokers do it every hour;
        `dry_run` only reports what would be removed."""
        refuse_query(request, "dry_run")
        swept = await (broker.sweep.find() if dry_run else broker.sweep.sweep())
        return SweepReport.model_validate(asdict(swept))


def registered_bookie(info: BookieInfo, address: str | None) -> RegisteredBookie:
    return RegisteredBookie(
        bookie_id=info.bookie_id,
        address=address,
        rack=info.rack,
        is_read_only=info.is_read_only,
        is_full=info.is_full,
        free_bytes=info.free_bytes if info.total_bytes else None,
        total_bytes=info.total_bytes or None,
    )


def topic_model(info: TopicInfo) -> Topic:
    policy = info.policy
    return Topic(
        namespace=info.name.namespace,
        topic=info.name.topic,
        topic_id=str(info.topic_id),
        partitions=info.config.partitions,
        ensemble_size=policy.ensemble_size,
        write_quorum=policy.write_quorum,
        ack_quorum=policy.ack_quorum,
        created_us=info.created_us,
        settings=shown_settings(info.config.overrides),
        effective=shown_policy(policy),
    )


def topic_page(found: list[TopicInfo], limit: int) -> TopicList:
    """Build a page of topics. ``found``: the page, and one more topic if there is another page."""
    page = found[:limit]
    more = len(found) > limit
    return TopicList(
        topics=[topic_model(info) for info in page],
        next_start_after=str(page[-1].name) if more else None,
    )
