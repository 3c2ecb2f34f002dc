"""The registry of subscriptions: one metadata node each, ``/subscriptions/{topic id}/{name}``.

A node defines the subscription; its progress stands in each partition's state log. Its id is random
and never used again, so that cursors of a subscription that was deleted can never be mistaken for
those of a new one with the same name.

The value of a node never changes: it is created and deleted.
"""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from fencelog.broker.names import check_name
from fencelog.broker.registry.subscription_config import Start, SubscriptionConfig, SubscriptionInfo
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.instance import catch_up, check_session
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned, Watch
from fencelog.ledgers.metastore.watch import names_or_empty

SUBSCRIPTIONS_PATH = "/subscriptions"
FORMAT_VERSION = 1
_ID_BYTES = 12

_MAX_REMEMBERED = 4096
"""The subscriptions in use at one broker at a time, each with a watch; above it the memory starts
empty again."""


@dataclass(frozen=True, slots=True)
class RegisteredSubscription:
    """A subscription and the facts at its creation: ``partitions``: the number that the topic had
    then; those added later are read from their beginning."""

    info: SubscriptionInfo
    partitions: int
    created_us: int


class SubscriptionRegistry:
    """The registry of subscriptions: creates, finds, lists and deletes them. ``close`` ends its
    watches."""

    def __init__(self, store: MetadataStore, *, host: Host) -> None:
        self._store = store
        self._host = host
        self._known: dict[tuple[str, str], tuple[RegisteredSubscription, Watch]] = {}

    def close(self) -> None:
        for _, watch in self._known.values():
            watch.close()
        self._known.clear()

    async def create(
        self,
        topic_id: str,
        name: str,
        config: SubscriptionConfig,
        start: Start,
        *,
        partitions: int,
        at_most: int,
    ) -> tuple[RegisteredSubscription, bool]:
        """Return the subscription, and whether it was created by this call. ``at_most``: the limit
        per topic.

        Raises FencelogError: ALREADY_EXISTS with another configuration, LIMIT_REACHED,
        INVALID_NAME, METADATA_….
        """
        check_name("subscription", name)
        existing = await self.list_names(topic_id)
        if name not in existing and len(existing) >= at_most:
            raise FencelogError(
                ErrorCode.LIMIT_REACHED, f"the topic has {len(existing)} subscriptions already"
            )
        own_id = self._host.random_bytes(_ID_BYTES).hex()
        info = SubscriptionInfo(name, own_id, config, start)
        wanted = RegisteredSubscription(info, partitions, self._host.now_us())
        try:
            await self._store.create(_path(topic_id, name), encode_registered(wanted))
            return wanted, True
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                raise
            # A new session's server may still show one that had this name before.
            is_known = error.code is ErrorCode.METADATA_EXISTS
            try:
                found = await (self.get if is_known else self._get_latest)(topic_id, name)
            except FencelogError as missing:
                # Deleted meanwhile, or a create of unknown outcome: no answer is certain.
                raise error from missing
        if (found.info.config, found.info.start) != (config, start):
            raise FencelogError(
                ErrorCode.ALREADY_EXISTS, f"subscription {name} exists with other settings"
            )
        return found, found.info.subscription_id == own_id

    async def get(self, topic_id: str, name: str) -> RegisteredSubscription:
        """Return a subscription. Raises FencelogError(SUBSCRIPTION_NOT_FOUND), METADATA_…."""
        return (await self._get(topic_id, name))[0]

    async def find(self, topic_id: str, name: str) -> RegisteredSubscription:
        """Return the same as ``get``, remembered until a watch reports its deletion."""
        known = self._known.get((topic_id, name))
        if known is not None:
            return known[0]
        found = await self.get(topic_id, name)
        if len(self._known) >= _MAX_REMEMBERED:
            self.close()
        if (topic_id, name) not in self._known:
            subscription_id = found.info.subscription_id
            watch = self._store.watch_value(
                _path(topic_id, name), partial(self._on_node, topic_id, name, subscription_id)
            )
            self._known[topic_id, name] = (found, watch)
        return self._known[topic_id, name][0]

    async def list_names(self, topic_id: str) -> builtins.list[str]:
        """Return the names of a topic's subscriptions, sorted."""
        try:
            return await self._store.children(f"{SUBSCRIPTIONS_PATH}/{topic_id}")
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return []
            raise

    async def list(self, topic_id: str) -> builtins.list[RegisteredSubscription]:
        """Return a topic's subscriptions, by name."""
        found = []
        for name in await self.list_names(topic_id):
            try:
                found.append(await self.get(topic_id, name))
            except FencelogError as error:
                if error.code is not ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise  # a missing one was deleted since it was listed
        return found

    async def list_latest(self, topic_id: str) -> builtins.list[RegisteredSubscription]:
        """Return a topic's subscriptions, by name, none older than this call. It costs the store a
        write. Raises FencelogError: METADATA_…, CORRUPT."""
        session_id = await catch_up(self._store)
        found = await self.list(topic_id)
        check_session(self._store, session_id, f"list the subscriptions of topic {topic_id}")
        return found

    async def topic_ids(self) -> set[str]:
        """Return the ids of topics that have, or have had, a subscription; no others have one, as
        far as this session's server knows."""
        return set(await names_or_empty(self._store.children(SUBSCRIPTIONS_PATH)))

    async def delete(self, topic_id: str, name: str) -> RegisteredSubscription:
        """Remove a subscription; the caller drops its cursors.

        Raises FencelogError: SUBSCRIPTION_NOT_FOUND, METADATA_….
        """
        found, version = await self._get(topic_id, name)
        try:
            await self._store.delete(_path(topic_id, name), version)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                raise _not_found(name) from None
            if error.code is not ErrorCode.METADATA_UNKNOWN or not await self._is_gone(
                topic_id, found.info
            ):
                raise
        self._forget(topic_id, name)
        return found

    async def _is_gone(self, topic_id: str, info: SubscriptionInfo) -> bool:
        """Tell whether it is certain that the subscription was deleted: a caller that relies on
        this drops its cursors, and with them the protection of messages that were not yet
        delivered."""
        try:
            latest = await self._get_latest(topic_id, info.name)
        except FencelogError as error:
            return error.code is ErrorCode.SUBSCRIPTION_NOT_FOUND
        return latest.info.subscription_id != info.subscription_id

    async def _get_latest(self, topic_id: str, name: str) -> RegisteredSubscription:
        """Return the same as ``get``, not older than this call. It costs the store a write."""
        session_id = await catch_up(self._store)
        try:
            return await self.get(topic_id, name)
        finally:
            check_session(self._store, session_id, f"find subscription {name}")

    def _on_node(
        self, topic_id: str, name: str, subscription_id: str, node: Versioned | None
    ) -> None:
        """Forget a subscription that was deleted, or whose name another has now."""
        if node is None or decode_registered(node.value).info.subscription_id != subscription_id:
            self._forget(topic_id, name)

    def _forget(self, topic_id: str, name: str) -> None:
        known = self._known.pop((topic_id, name), None)
        if known is not None:
            known[1].close()

    async def _get(self, topic_id: str, name: str) -> tuple[RegisteredSubscription, Version]:
        try:
            node = await self._store.get(_path(topic_id, name))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                raise _not_found(name) from None
            raise
        return decode_registered(node.value), node.version


def _path(topic_id: str, name: str) -> str:
    check_name("subscription", name)
    return f"{SUBSCRIPTIONS_PATH}/{topic_id}/{name}"


def _not_found(name: str) -> FencelogError:
    return FencelogError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"there is no subscription {name}")


def encode_registered(registered: RegisteredSubscription) -> bytes:
    """Return the value of the subscription's node."""
    fields = {
        "v": FORMAT_VERSION,
        **registered.info.to_json(),
        "partitions": registered.partitions,
        "created_us": registered.created_us,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_registered(data: bytes) -> RegisteredSubscription:
    """Decode the value of a subscription's node. Raises FencelogError(CORRUPT)."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields["v"] != FORMAT_VERSION:
            raise ValueError(f"version {fields['v']}")
        info = SubscriptionInfo.from_json(fields)
        return RegisteredSubscription(info, int(fields["partitions"]), int(fields["created_us"]))
    except (KeyError, TypeError, ValueError, FencelogError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"a subscription is not valid: {error}") from error
