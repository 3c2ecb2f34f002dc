"""A subscription that is created while its topic is deleted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.api.subscriptions.lifecycle import SubscriptionLifecycle
from fencelog.api.subscriptions.owners import Asked
from fencelog.broker.names import TopicName
from fencelog.broker.registry.subscription_config import SubscriptionConfig, SubscriptionInfo
from fencelog.broker.registry.subscription_registry import RegisteredSubscription
from fencelog.broker.registry.topics import TopicConfig, TopicInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError

TOPIC = TopicInfo(TopicName.of("shop", "orders"), "first", TopicConfig(), 0)
SUBSCRIPTION = RegisteredSubscription(
    SubscriptionInfo("s", "id-s", SubscriptionConfig(), "earliest"), 1, 0
)


@pytest.mark.parametrize("topic_id", ["first", "second"])
async def test_no_cursor_of_it_is_opened_in_the_topic_that_has_the_name_by_now(
    topic_id: str,
) -> None:
    opened: list[str] = []

    async def create(*_: object, **__: object) -> tuple[RegisteredSubscription, bool]:
        return SUBSCRIPTION, True

    async def get(_: TopicName) -> TopicInfo:
        return replace(TOPIC, topic_id=topic_id)

    async def open_everywhere(asked: Asked) -> None:
        opened.append(asked.topic.topic_id)

    broker: Any = SimpleNamespace(
        subscriptions=SimpleNamespace(create=create), topics=SimpleNamespace(get=get)
    )
    owners: Any = SimpleNamespace(open_everywhere=open_everywhere)
    creating = SubscriptionLifecycle(broker, owners).create(
        TOPIC, "s", SubscriptionConfig(), "earliest"
    )
    if topic_id == "first":
        assert await creating == (SUBSCRIPTION, True)
        assert opened == ["first"]
        return
    with pytest.raises(FencelogError) as raised:
        await creating
    assert raised.value.code is ErrorCode.TOPIC_NOT_FOUND
    assert opened == []
