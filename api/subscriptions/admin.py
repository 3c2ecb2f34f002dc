"""The routes that create, show, list and delete subscriptions: the part that FastAPI serves."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Request, Response

from fencelog.api.http.queries import refuse_query
from fencelog.api.subscriptions.lifecycle import SubscriptionLifecycle
from fencelog.api.subscriptions.models import (
    Subscription,
    SubscriptionList,
    SubscriptionSettings,
    subscription_model,
)
from fencelog.broker.names import TopicName, check_name

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

_PATH = "/topics/{namespace}/{topic}/subscriptions"
_TAGS: list[str | Enum] = ["subscriptions"]


def add_subscription_routes(
    router: APIRouter, broker: Broker, lifecycle: SubscriptionLifecycle
) -> None:
    """Add the routes. Handlers raise FencelogError, which the application turns into problem
    documents."""

    @router.put(f"{_PATH}/{{subscription}}", tags=_TAGS, status_code=201)
    async def create_subscription(
        namespace: str,
        topic: str,
        subscription: str,
        request: Request,
        response: Response,
        settings: Annotated[SubscriptionSettings | None, Body()] = None,
    ) -> Subscription:
        """Create a subscription in every partition. 201; 200 if it exists with the same settings,
        409 with others."""
        refuse_query(request)
        info = await broker.topic(TopicName.of(namespace, topic))
        wanted = settings or SubscriptionSettings()
        registered, created = await lifecycle.create(
            info, check_name("subscription", subscription), wanted.config(), wanted.start_of()
        )
        response.status_code = 201 if created else 200
        return subscription_model(registered)

    @router.get(f"{_PATH}/{{subscription}}", tags=_TAGS)
    async def get_subscription(
        namespace: str, topic: str, subscription: str, request: Request
    ) -> Subscription:
        """Return a subscription's id and settings."""
        refuse_query(request)
        info = await broker.topic(TopicName.of(namespace, topic))
        return subscription_model(await broker.subscriptions.get(info.topic_id, subscription))

    @router.delete(f"{_PATH}/{{subscription}}", tags=_TAGS, status_code=204)
    async def delete_subscription(
        namespace: str, topic: str, subscription: str, request: Request
    ) -> None:
        """Delete a subscription with its place in every partition."""
        refuse_query(request)
        await lifecycle.delete(await broker.topic(TopicName.of(namespace, topic)), subscription)

    @router.get(_PATH, tags=_TAGS)
    async def list_subscriptions(namespace: str, topic: str, request: Request) -> SubscriptionList:
        """List a topic's subscriptions, by name."""
        refuse_query(request)
        info = await broker.topic(TopicName.of(namespace, topic))
        found = await broker.subscriptions.list(info.topic_id)
        return SubscriptionList(subscriptions=[subscription_model(one) for one in found])
