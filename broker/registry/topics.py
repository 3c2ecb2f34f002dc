"""The registry of topics: one metadata node each, with the topic's own settings.

A topic's id is random and never used again. All nodes of the topic lie below the id, so a topic
that was deleted and created again shares nothing with its predecessor: an owner that slept through
the deletion has a ledger list that is no longer read. ``topic_deletion`` deletes topics.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from fencelog.broker.ledger_list.ledger_port import Ledgers
from fencelog.broker.ledger_list.store import LedgerListStore, ledger_list_path
from fencelog.broker.names import TopicName
from fencelog.broker.policy import Overrides, Policy, changed_overrides
from fencelog.broker.registry.namespaces import TOPICS_PATH, Namespaces
from fencelog.broker.registry.topic_deletion import TopicDeletion
from fencelog.broker.registry.topic_node import (
    TopicConfig,
    TopicInfo,
    TopicWatch,
    decode_topic,
    encode_topic,
    topic_path,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.instance import catch_up, check_session
from fencelog.ledgers.metastore.port import MetadataStore, Watch
from fencelog.ledgers.metastore.watch import names_or_empty

__all__ = ["TopicConfig", "TopicInfo", "TopicRegistry"]

_ID_BYTES = 12
_MISSING = (ErrorCode.METADATA_NOT_FOUND, ErrorCode.METADATA_CONFLICT)


class TopicRegistry:
    """The registry of topics: creates, finds, changes, lists and deletes them. ``policy``: the
    cluster's settings."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        host: Host,
        ledgers: Ledgers,
        policy: Policy | None = None,
    ) -> None:
        self._store = store
        self._host = host
        self.namespaces = Namespaces(store, host=host, default=policy or Policy())
        self.deletion = TopicDeletion(store, host=host, ledgers=ledgers)

    async def create(
        self, name: TopicName, config: TopicConfig, *, bookies: int | None = None
    ) -> tuple[TopicInfo, bool]:
        """Return the topic, and whether it was created by this call. ``bookies``: the number that a
        new topic's ledgers have to be content with.

        Raises FencelogError: ALREADY_EXISTS with other settings, BAD_REQUEST, NOT_ENOUGH_BOOKIES,
        METADATA_….
        """
        inherited = await self._inherited(name.namespace)
        config.validate(inherited)
        topic_id = self._host.random_bytes(_ID_BYTES).hex()
        policy = inherited.inherited_by(config.overrides)
        wanted = TopicInfo(name, topic_id, config, self._host.now_us(), policy)
        await self._check_bookies(wanted, bookies)
        try:
            version = await self._store.create(topic_path(name), encode_topic(wanted))
            return replace(wanted, version=version), True
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                raise
            # A new session's server may still show one that had this name before.
            is_known = error.code is ErrorCode.METADATA_EXISTS
            try:
                found = await (self.get if is_known else self._get_latest)(name)
            except FencelogError as missing:
                # Deleted meanwhile, or a create of unknown outcome: no answer is certain.
                raise error from missing
        if found.config != config:
            raise FencelogError(
                ErrorCode.ALREADY_EXISTS, f"topic {name} exists with another configuration"
            )
        return found, found.topic_id == topic_id

    async def _check_bookies(self, wanted: TopicInfo, bookies: int | None) -> None:
        try:
            wanted.policy.check_bookies(bookies)
        except FencelogError as error:
            try:
                await self.get(wanted.name)
            except FencelogError as missing:
                raise error from missing

    async def get(self, name: TopicName) -> TopicInfo:
        """Return a topic. Raises FencelogError(TOPIC_NOT_FOUND)."""
        return await self._get(name)

    @asynccontextmanager
    async def latest(self) -> AsyncIterator[None]:
        """Have the registry read nothing inside that is older than the beginning: a server that
        lags behind knows less. It costs the store a write. Raises METADATA_…."""
        session_id = await catch_up(self._store)
        try:
            yield
        finally:
            check_session(self._store, session_id, "find topics")

    async def look_up(self, name: TopicName) -> TopicInfo:
        """Return the same as ``get``, in one request where the namespace is watched: for a watcher
        of the topic."""
        overrides = self.namespaces.watched(name.namespace)
        default = self.namespaces.default
        inherited = None if overrides is None else default.inherited_by(overrides)
        return await self._get(name, inherited)

    async def update(
        self,
        name: TopicName,
        changes: Overrides,
        *,
        partitions: int | None = None,
        bookies: int | None = None,
    ) -> TopicInfo:
        """Change the topic's own settings (None: removes a setting), or raise the number of its
        partitions: existing messages stay where they are, new messages with a key may go to another
        partition than earlier ones. ``bookies``: as in ``create``.

        Raises FencelogError: TOPIC_NOT_FOUND, BAD_REQUEST (fewer partitions too),
        NOT_ENOUGH_BOOKIES, LIMIT_REACHED (too often), METADATA_….
        """
        while True:
            inherited = await self._inherited(name.namespace)
            info = await self._get(name, inherited)
            wanted = info.config.partitions if partitions is None else partitions
            if wanted < info.config.partitions:
                raise FencelogError(
                    ErrorCode.BAD_REQUEST,
                    f"topic {name} has {info.config.partitions} partitions; it cannot have fewer",
                    field="partitions",
                )
            config = TopicConfig(wanted, changed_overrides(info.config.overrides, changes))
            config.validate(inherited)
            policy = inherited.inherited_by(config.overrides)
            policy.check_bookies(bookies, info.policy)
            previous = info.previous_counts
            if wanted > info.config.partitions:
                previous = info.grown_at(self._host.now_us())
            changed = replace(info, config=config, policy=policy, previous_counts=previous)
            try:
                # The version is that of this very topic: a new one with the same name stays as it
                # is.
                path, value = topic_path(name), encode_topic(changed)
                return replace(changed, version=await self._store.set(path, value, info.version))
            except FencelogError as error:
                if error.code not in _MISSING:
                    raise

    def watch(self, name: TopicName, callback: Callable[[TopicInfo | None], None]) -> Watch:
        """Call back with the topic now and after every change of it or of its namespace's settings
        (None: there is none)."""
        return TopicWatch(self._store, self.namespaces, name, callback)

    async def list(
        self,
        namespace: str | None = None,
        prefix: str = "",
        *,
        start_after: str = "",
        limit: int | None = None,
    ) -> builtins.list[TopicInfo]:
        """Return topics by full name, of one namespace or all; ``prefix``: that of the topic's own
        name. At most ``limit`` topics, whose full names come after ``start_after``: no others are
        read."""
        names = await self.names(namespace, prefix)
        after = sorted((name for name in names if str(name) > start_after), key=str)
        return await self.get_all(after, limit=limit)

    async def names(
        self, namespace: str | None = None, prefix: str = ""
    ) -> builtins.list[TopicName]:
        """Return the names of topics as ``list`` does, in any order, without reading the topics."""
        namespaces = (
            [namespace]
            if namespace is not None
            else await names_or_empty(self._store.children(TOPICS_PATH))
        )
        return [
            TopicName(space, topic)
            for space in namespaces
            for topic in await names_or_empty(self._store.children(f"{TOPICS_PATH}/{space}"))
            if topic.startswith(prefix)
        ]

    async def get_all(
        self, names: Iterable[TopicName], *, limit: int | None = None
    ) -> builtins.list[TopicInfo]:
        """Return the topics of these names that exist, ``limit`` of them at most."""
        inherited: dict[str, Policy] = {}
        found: builtins.list[TopicInfo] = []
        for name in names:
            if len(found) == limit:
                break
            space = name.namespace
            if space not in inherited:
                inherited[space] = await self._inherited(space)
            try:
                found.append(await self._get(name, inherited[space]))
            except FencelogError as error:  # it may have been deleted since it was listed
                if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                    raise
        return found

    async def ids(self) -> set[str]:
        """Return the ids of all topics; a topic that is created or deleted meanwhile may be
        included."""
        return {info.topic_id for info in await self.list()}

    async def delete(self, name: TopicName) -> None:
        """Delete a topic with all its messages. Owners of its partitions are fenced.

        Raises FencelogError: TOPIC_NOT_FOUND, METADATA_…; METADATA_UNKNOWN also when the topic is
        gone and some of its nodes or ledgers are left, which the sweep removes.
        """
        while True:
            info = await self._get(name, self.namespaces.default)
            try:
                await self._store.delete(topic_path(name), info.version)
                break
            except FencelogError as error:
                certain = error.code not in (*_MISSING, ErrorCode.METADATA_UNKNOWN)
                if certain:
                    raise
                try:
                    is_alive = await self._is_alive(info)
                except FencelogError as unread:
                    if not error.may_have_effect:
                        raise
                    raise error from unread
                if not is_alive:
                    break
                if error.code is not ErrorCode.METADATA_CONFLICT:
                    raise
        try:
            await self.deletion.finish(info.topic_id)
        except FencelogError as error:
            raise FencelogError(
                ErrorCode.METADATA_UNKNOWN,
                f"topic {name} is gone, but not all that belongs to it was removed: {error.detail}",
            ) from error

    async def open_ledger_list(self, info: TopicInfo, partition: int) -> LedgerListStore:
        """Return the partition's ledger list, loaded; created if this is the first opening.

        Raises FencelogError: TOPIC_NOT_FOUND if the topic was deleted, METADATA_….
        """
        node = LedgerListStore(
            self._store, ledger_list_path(info.topic_id, partition), host=self._host
        )
        try:
            await node.load()
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise
            if not await node.create():
                await node.load()
        if node.ledger_list.epoch == 0 and not await self._is_alive(info):
            # It was never taken over: if it was created too late, its creator is about to remove
            # it. No server that lags can make a living topic look deleted here. ``info`` was
            # read, or written, before the list was, so the topic's node is older than the list; and
            # a read after a write, a refused one, or another read has seen what those have seen.
            # Within a session that is the store's promise, for any server. A session that follows
            # one that has expired begins with a write of its own at ZooKeeper, and its first read
            # is synced (``ZooKeeperSession``). A create of unknown outcome does not reach this
            # point.
            await self.deletion.delete_ledger_list(info.topic_id, partition)
            raise _not_found(info.name)
        return node

    async def _get_latest(self, name: TopicName) -> TopicInfo:
        """Return a topic, not older than this call. It costs the store a write."""
        async with self.latest():
            return await self._get(name)

    async def _is_alive(self, info: TopicInfo) -> bool:
        """Tell whether this very topic is in the registry."""
        try:
            found = await self._get(info.name, info.policy)
            return found.topic_id == info.topic_id
        except FencelogError as error:
            if error.code is ErrorCode.TOPIC_NOT_FOUND:
                return False
            raise

    async def _inherited(self, namespace: str) -> Policy:
        overrides = await self.namespaces.overrides(namespace)
        return self.namespaces.default.inherited_by(overrides)

    async def _get(self, name: TopicName, inherited: Policy | None = None) -> TopicInfo:
        try:
            node = await self._store.get(topic_path(name))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                raise _not_found(name) from None
            raise
        inherited = inherited or await self._inherited(name.namespace)
        return decode_topic(name, node, inherited)


def _not_found(name: TopicName) -> FencelogError:
    return FencelogError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")
