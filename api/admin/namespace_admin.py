"""The routes of namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Request, Response

from fencelog.api.admin.models import Namespace, NamespaceList
from fencelog.api.admin.settings import (
    ALLOW_MISSING_BOOKIES,
    Settings,
    required_bookies,
    shown_policy,
    shown_settings,
)
from fencelog.api.http.queries import refuse_query
from fencelog.broker.names import check_name
from fencelog.broker.policy import from_json
from fencelog.broker.registry.namespaces import NamespaceInfo
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker


def add_namespaces(router: APIRouter, broker: Broker, bookies: RegisteredBookies) -> None:
    """Add the routes. Handlers raise FencelogError, which the application turns into problem
    documents."""

    @router.get("/namespaces", tags=["namespaces"])
    async def list_namespaces(request: Request) -> NamespaceList:
        """List all namespaces. Those that were created, and those that have topics."""
        refuse_query(request)
        found = await broker.topics.namespaces.list()
        return NamespaceList(namespaces=[namespace_model(info) for info in found])

    @router.put("/namespaces/{namespace}", tags=["namespaces"], status_code=201)
    async def create_namespace(
        namespace: str,
        request: Request,
        response: Response,
        settings: Annotated[Settings | None, Body()] = None,
        allow_missing_bookies: bool = False,
    ) -> Namespace:
        """Create a namespace. 201; 200 if it exists with the same settings, 409 with others."""
        refuse_query(request, ALLOW_MISSING_BOOKIES)
        check_name("namespace", namespace)
        wanted = from_json((settings or Settings()).changes())
        required = required_bookies(bookies, allow_missing_bookies)
        info, created = await broker.topics.namespaces.create(namespace, wanted, bookies=required)
        response.status_code = 201 if created else 200
        return namespace_model(info)

    @router.get("/namespaces/{namespace}", tags=["namespaces"])
    async def get_namespace(namespace: str, request: Request) -> Namespace:
        """Return the settings of a namespace, and the settings that its topics inherit."""
        refuse_query(request)
        check_name("namespace", namespace)
        return namespace_model(await broker.topics.namespaces.get(namespace))

    @router.patch("/namespaces/{namespace}", tags=["namespaces"])
    async def change_namespace(
        namespace: str,
        request: Request,
        changes: Settings,
        allow_missing_bookies: bool = False,
    ) -> Namespace:
        """Change settings. Null: inherit the setting again. Open partitions of its topics follow
        at once."""
        refuse_query(request, ALLOW_MISSING_BOOKIES)
        check_name("namespace", namespace)
        changed = await broker.topics.namespaces.update(
            namespace,
            changes.changes(),
            bookies=required_bookies(bookies, allow_missing_bookies),
        )
        return namespace_model(changed)

    @router.delete("/namespaces/{namespace}", tags=["namespaces"], status_code=204)
    async def delete_namespace(namespace: str, request: Request) -> None:
        """Delete a namespace that has no topics."""
        refuse_query(request)
        check_name("namespace", namespace)
        await broker.topics.namespaces.delete(namespace)


def namespace_model(info: NamespaceInfo) -> Namespace:
    return Namespace(
        namespace=info.name,
        created_us=info.created_us,
        settings=shown_settings(info.overrides),
        effective=shown_policy(info.policy),
    )
