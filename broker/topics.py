"""The registry of topics: one metadata node each, and the deletion of everything behind it.

A topic's id is random and never used again. All that belongs to the topic hangs below the id, so a
topic that was deleted and created anew shares nothing with its predecessor: an owner that slept
through it holds a list of ledgers nobody reads.

Deleting removes the topic's node first. An owner that is opening a partition for the first time
makes the chain's node and then looks at the topic's again; so either the deleter finds the chain,
or the opener finds the topic gone.
"""

from __future__ import annotations

import builtins
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from fencelog.broker.chain import Chain
from fencelog.broker.chain_node import ChainLost, ChainNode, chain_path
from fencelog.broker.ledger_port import Ledgers
from fencelog.broker.names import TopicName
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MAX_PARTITIONS
from fencelog.ledgers.metadata_store import MetadataStore, Versioned, Watch

log = logging.getLogger(__name__)

TOPICS_PATH = "/topics"
FORMAT_VERSION = 1
_ID_BYTES = 12
_MISSING = (ErrorCode.METADATA_NOT_FOUND, ErrorCode.METADATA_CONFLICT)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a topic is created with; it does not change while the topic lives."""

    partitions: int = 1
    replication: Replication = field(default_factory=Replication)

    def validate(self) -> None:
        """Raises FencelogError(BAD_REQUEST)."""
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"a topic has 1 to {MAX_PARTITIONS} partitions, not {self.partitions}",
            )
        self.replication.validate()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it stands in the registry. ``created_us`` since 1970 UTC."""

    name: TopicName
    topic_id: str
    config: TopicConfig
    created_us: int


class TopicRegistry:
    """Creates, finds, lists and deletes topics."""

    def __init__(self, store: MetadataStore, *, host: Host, ledgers: Ledgers) -> None:
        self._store = store
        self._host = host
        self._ledgers = ledgers

    async def create(self, name: TopicName, config: TopicConfig) -> tuple[TopicInfo, bool]:
        """The topic, and whether it was created by this call.

        Raises FencelogError: ALREADY_EXISTS with another configuration, BAD_REQUEST, METADATA_….
        """
        config.validate()
        topic_id = self._host.random_bytes(_ID_BYTES).hex()
        wanted = TopicInfo(name, topic_id, config, self._host.now_us())
        try:
            await self._store.create(_path(name), _encode(wanted))
            return wanted, True
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                raise
            try:
                found = await self.get(name)
            except FencelogError as missing:
                # Deleted meanwhile, or a create of unknown outcome: no answer is certain.
                raise error from missing
        if found.config != config:
            raise FencelogError(
                ErrorCode.ALREADY_EXISTS, f"topic {name} exists with another configuration"
            )
        return found, found.topic_id == topic_id

    async def get(self, name: TopicName) -> TopicInfo:
        """Raises FencelogError(TOPIC_NOT_FOUND)."""
        return (await self._get(name))[0]

    def watch(self, name: TopicName, callback: Callable[[TopicInfo | None], None]) -> Watch:
        """Call back with the topic now and after every change (None: there is none)."""

        def changed(node: Versioned | None) -> None:
            try:
                callback(None if node is None else _decode(name, node.value))
            except FencelogError as error:
                log.error("%s", error)

        return self._store.watch_value(_path(name), changed)

    async def list(
        self, namespace: str | None = None, prefix: str = ""
    ) -> builtins.list[TopicInfo]:
        """Topics by name, of one namespace or all; ``prefix`` is of the topic's own name."""
        namespaces = [namespace] if namespace is not None else await self._children(TOPICS_PATH)
        found = []
        for space in namespaces:
            for topic in await self._children(f"{TOPICS_PATH}/{space}"):
                if topic.startswith(prefix):
                    with suppress(FencelogError):  # deleted since it was listed
                        found.append(await self.get(TopicName(space, topic)))
        return found

    async def delete(self, name: TopicName) -> None:
        """Delete a topic with all its messages. Owners of its partitions are fenced.

        Raises FencelogError: TOPIC_NOT_FOUND, METADATA_…; METADATA_UNKNOWN too when the topic is
        gone and some of what belongs to it is left.
        """
        info, version = await self._get(name)
        try:
            await self._store.delete(_path(name), version)
        except FencelogError as error:
            certain = error.code not in (*_MISSING, ErrorCode.METADATA_UNKNOWN)
            if certain or await self._is_alive(info):
                raise
        try:
            for partition in range(info.config.partitions):
                await self.delete_chain(info.topic_id, partition)
        except FencelogError as error:
            raise FencelogError(
                ErrorCode.METADATA_UNKNOWN,
                f"topic {name} is gone, but not all that belongs to it was removed: {error.detail}",
            ) from error
        with suppress(FencelogError):  # absent if no partition was ever opened
            await self._store.delete(f"/logs/{info.topic_id}")

    async def delete_chain(self, topic_id: str, partition: int) -> None:
        """Finish a partition: mark its chain, so that no owner can change it any more; fence its
        ledgers, so that none can write; delete them and the chain."""
        node = ChainNode(self._store, chain_path(topic_id, partition), host=self._host)
        while True:
            try:
                await node.load()
                if not node.chain.deleted:
                    await node.change(Chain.as_deleted)
                break
            except ChainLost:
                continue  # the owner was rolling: mark what it has written
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_NOT_FOUND:
                    return
                raise
        for segment in node.chain.segments:
            if segment.sealed is None:
                with suppress(FencelogError):  # what cannot be recovered now is still deleted
                    await self._ledgers.recover(segment.ledger_id)
            await self._ledgers.delete(segment.ledger_id, unfenced=True)
        with suppress(FencelogError):
            await self._store.delete(node.path)

    async def open_chain(self, info: TopicInfo, partition: int) -> ChainNode:
        """The partition's chain, loaded; made if this is the first opening.

        Raises FencelogError: TOPIC_NOT_FOUND if the topic was deleted, METADATA_….
        """
        node = ChainNode(self._store, chain_path(info.topic_id, partition), host=self._host)
        try:
            await node.load()
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise
            await node.create()
            if not await self._is_alive(info):
                await self.delete_chain(info.topic_id, partition)
                raise _not_found(info.name) from None
            await node.load()
        return node

    async def _is_alive(self, info: TopicInfo) -> bool:
        """Whether this very topic is in the registry."""
        try:
            return (await self.get(info.name)).topic_id == info.topic_id
        except FencelogError as error:
            if error.code is ErrorCode.TOPIC_NOT_FOUND:
                return False
            raise

    async def _get(self, name: TopicName) -> tuple[TopicInfo, int]:
        try:
            node = await self._store.get(_path(name))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                raise _not_found(name) from None
            raise
        return _decode(name, node.value), node.version

    async def _children(self, path: str) -> builtins.list[str]:
        try:
            return await self._store.children(path)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return []
            raise


def _path(name: TopicName) -> str:
    return f"{TOPICS_PATH}/{name.namespace}/{name.topic}"


def _not_found(name: TopicName) -> FencelogError:
    return FencelogError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")


def _encode(info: TopicInfo) -> bytes:
    replication = info.config.replication
    fields = {
        "v": FORMAT_VERSION,
        "topic_id": info.topic_id,
        "partitions": info.config.partitions,
        "replication": [
            replication.ensemble_size,
            replication.write_quorum,
            replication.ack_quorum,
        ],
        "created_us": info.created_us,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(name: TopicName, data: bytes) -> TopicInfo:
    """Raises FencelogError(CORRUPT)."""
    try:
        fields = json.loads(data)
        if fields["v"] != FORMAT_VERSION:
            raise ValueError(f"version {fields['v']}")
        ensemble_size, write_quorum, ack_quorum = map(int, fields["replication"])
        replication = Replication(
            ensemble_size, write_quorum, ack_quorum, accept_ack_quorum_of_one=True
        )  # whoever created the topic did
        config = TopicConfig(int(fields["partitions"]), replication)
        return TopicInfo(name, str(fields["topic_id"]), config, int(fields["created_us"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"topic {name} is not valid: {error}") from error
