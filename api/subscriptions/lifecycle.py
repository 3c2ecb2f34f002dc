"""The creation and deletion of subscriptions: the definition in metadata, and every cursor."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fencelog.api.http.problems import partly_done
from fencelog.api.subscriptions.dead_letters import dead_letter_topic, replay_name
from fencelog.api.subscriptions.owners import Asked, SubscriptionOwners
from fencelog.api.subscriptions.requests import CursorRequest
from fencelog.broker.names import TopicName
from fencelog.broker.registry.subscription_config import Start, SubscriptionConfig, SubscriptionInfo
from fencelog.broker.registry.subscription_registry import RegisteredSubscription
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker


class SubscriptionLifecycle:
    """Creates and deletes subscriptions of any topic, wherever its owners are."""

    def __init__(self, broker: Broker, owners: SubscriptionOwners) -> None:
        self._broker = broker
        self._owners = owners

    async def create(
        self, topic: TopicInfo, name: str, config: SubscriptionConfig, start: Start
    ) -> tuple[RegisteredSubscription, bool]:
        """Return the subscription, with its cursor in every partition, and whether it is new.

        Where a partition could not be reached the subscription is there all the same
        (METADATA_UNKNOWN): creating it again completes it. Raises FencelogError: ALREADY_EXISTS
        with other settings, LIMIT_REACHED, INVALID_NAME, BAD_REQUEST, TOPIC_NOT_FOUND, and of a
        subscription that was there what an owner says.
        """
        if config.max_deliveries is not None:
            _check_dead_letter_topic(topic.name, SubscriptionInfo(name, "", config))
        registered, created = await self._broker.subscriptions.create(
            topic.topic_id,
            name,
            config,
            start,
            partitions=topic.config.partitions,
            at_most=topic.policy.max_subscriptions,
        )
        # Partitions that the topic got before the subscription was registered, and that this
        # broker did not know of, get the request as well; the owner of a later one finds the
        # subscription in the registry.
        latest = await self._broker.topics.get(topic.name)
        if latest.topic_id != topic.topic_id:
            raise FencelogError(ErrorCode.TOPIC_NOT_FOUND, f"topic {topic.name} was deleted")
        try:
            await self._owners.open_everywhere(Asked(latest, registered))
        except FencelogError as error:
            if not created:
                raise
            what = f"subscription {name} is there, but not in every partition"
            raise partly_done(error, what) from error
        return registered, created

    async def delete(self, topic: TopicInfo, name: str) -> None:
        """Delete the subscription. Raises FencelogError: SUBSCRIPTION_NOT_FOUND, METADATA_…."""
        info = (await self._delete(topic, name)).info
        if info.config.max_deliveries is not None:
            with suppress(FencelogError):  # nothing was ever replayed
                letters = await self._broker.topic(dead_letter_topic(topic.name, info))
                await self._delete(letters, replay_name(info.subscription_id))

    async def _delete(self, topic: TopicInfo, name: str) -> RegisteredSubscription:
        registered = await self._broker.subscriptions.delete(topic.topic_id, name)
        request = CursorRequest(registered.info.subscription_id)
        await self._owners.drop_everywhere(Asked(topic, registered), request)
        return registered


def _check_dead_letter_topic(topic: TopicName, info: SubscriptionInfo) -> None:
    try:
        wanted = dead_letter_topic(topic, info)
    except FencelogError as error:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"dead_letter_topic: {error.detail}", field="dead_letter_topic"
        ) from None
    if wanted == topic:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            "dead_letter_topic is the topic itself",
            field="dead_letter_topic",
        )
