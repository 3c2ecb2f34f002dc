"""Namespaces: a name that topics share, and settings that they inherit.

A namespace has a metadata node, ``/namespaces/{name}``, only if it was created explicitly; without
it its topics have the cluster's settings. So a topic can be created in a namespace without a node,
and no reader of settings needs the node.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from fencelog.broker.policy import Overrides, Policy, changed_overrides
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.instance import catch_up, check_session
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned, Watch
from fencelog.ledgers.metastore.watch import names_or_empty

log = logging.getLogger(__name__)

NAMESPACES_PATH = "/namespaces"
TOPICS_PATH = "/topics"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """A namespace. ``overrides``: its own settings; ``policy``: the settings that its topics
    inherit. ``created_us`` is None where it has topics and no node."""

    name: str
    overrides: Overrides
    policy: Policy
    created_us: int | None = None


@dataclass(slots=True)
class _Shared:
    """One watch of the store, shared by all watchers of a namespace."""

    watch: Watch | None = None
    overrides: Overrides | None = None
    """The last overrides, None until they were read."""
    listeners: dict[object, Callable[[Overrides], None]] = field(default_factory=dict)
    """Watchers, each by its ``Watch``: there are thousands, and any of them may end."""


class Namespaces:
    """The registry of namespaces: creates, changes, lists and deletes them. ``default``: the
    cluster's settings."""

    def __init__(self, store: MetadataStore, *, host: Host, default: Policy) -> None:
        self._store = store
        self._host = host
        self.default = default
        self._shared: dict[str, _Shared] = {}

    async def overrides(self, name: str) -> Overrides:
        """Return the namespace's own settings; nothing if it has no node."""
        found = await self._get(name)
        return {} if found is None else found[0].overrides

    def watched(self, name: str) -> Overrides | None:
        """Return the same as a watch last reported it, which will report the next change too; None
        if the namespace is not watched, or nothing was reported yet."""
        shared = self._shared.get(name)
        return None if shared is None else shared.overrides

    async def get(self, name: str) -> NamespaceInfo:
        """Return a namespace. Raises FencelogError(NAMESPACE_NOT_FOUND) if it has neither node nor
        topic."""
        found = await self._get(name)
        if found is not None:
            return found[0]
        if await names_or_empty(self._store.children(f"{TOPICS_PATH}/{name}")):
            return NamespaceInfo(name, {}, self.default)
        raise _not_found(name)

    async def list(self) -> list[NamespaceInfo]:
        """Return all namespaces, by name."""
        names = {
            *await names_or_empty(self._store.children(NAMESPACES_PATH)),
            *await names_or_empty(self._store.children(TOPICS_PATH)),
        }
        found = []
        for name in sorted(names):
            try:
                found.append(await self.get(name))
            except FencelogError as error:
                if error.code is not ErrorCode.NAMESPACE_NOT_FOUND:
                    raise
        return found

    async def create(
        self, name: str, overrides: Overrides, *, bookies: int | None = None
    ) -> tuple[NamespaceInfo, bool]:
        """Return the namespace, and whether this call created its node. ``bookies``: the number
        that the ledgers of its topics have to be content with.

        Raises FencelogError: ALREADY_EXISTS with other settings, BAD_REQUEST, NOT_ENOUGH_BOOKIES,
        METADATA_….
        """
        policy = self.default.with_overrides(overrides)
        policy.check_bookies(bookies, self.default)
        wanted = NamespaceInfo(name, dict(overrides), policy, self._host.now_us())
        try:
            await self._store.create(_path(name), _encode(wanted))
            return wanted, True
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                raise
            try:
                is_known = error.code is ErrorCode.METADATA_EXISTS
                found = await (self._get if is_known else self._get_latest)(name)
            except FencelogError as unread:
                if is_known:
                    raise
                raise error from unread
            if found is None:
                raise  # deleted meanwhile, or a create of unknown outcome: no answer is certain
        if found[0].overrides != overrides:
            raise FencelogError(
                ErrorCode.ALREADY_EXISTS, f"namespace {name} exists with another configuration"
            )
        return found[0], found[0].created_us == wanted.created_us

    async def update(
        self, name: str, changes: Overrides, *, bookies: int | None = None
    ) -> NamespaceInfo:
        """Change the namespace's own settings (None: removes a setting). A namespace that has only
        topics gets its node. ``bookies``: as in ``create``. Raises FencelogError:
        NAMESPACE_NOT_FOUND, BAD_REQUEST, NOT_ENOUGH_BOOKIES, METADATA_…."""
        while True:
            found = await self._get(name)
            if found is None:
                await self.get(name)
                try:
                    await self.create(name, {})
                except FencelogError as error:
                    if error.code is not ErrorCode.ALREADY_EXISTS:  # by another request meanwhile
                        raise
                continue
            info, version = found
            overrides = changed_overrides(info.overrides, changes)
            policy = self.default.with_overrides(overrides)
            policy.check_bookies(bookies, info.policy)
            wanted = NamespaceInfo(name, overrides, policy, info.created_us)
            try:
                await self._store.set(_path(name), _encode(wanted), version)
                return wanted
            except FencelogError as error:
                if error.code not in (ErrorCode.METADATA_CONFLICT, ErrorCode.METADATA_NOT_FOUND):
                    raise

    async def delete(self, name: str) -> None:
        """Remove an empty namespace with its settings. A topic that is created at the same moment
        then has the cluster's settings. Raises FencelogError: NAMESPACE_NOT_FOUND,
        NAMESPACE_NOT_EMPTY, METADATA_…."""
        # A server that lags behind may not say that there is no topic.
        session_id = await catch_up(self._store)
        await self.get(name)
        topics = f"{TOPICS_PATH}/{name}"
        try:
            await self._delete(topics)
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_CONFLICT:
                raise
            count = len(await names_or_empty(self._store.children(topics)))
            raise FencelogError(
                ErrorCode.NAMESPACE_NOT_EMPTY, f"namespace {name} has {count} topics", topics=count
            ) from None
        check_session(self._store, session_id, f"delete namespace {name}")
        while True:
            try:
                return await self._delete(_path(name))
            except FencelogError as error:
                if error.code is not ErrorCode.METADATA_CONFLICT:  # its settings were changed
                    raise

    def watch(self, name: str, callback: Callable[[Overrides], None]) -> Watch:
        """Call back with the namespace's overrides now and after every change."""
        shared = self._shared.setdefault(name, _Shared())
        listening = _Listening(self, name)
        shared.listeners[listening] = callback
        if shared.watch is None:
            shared.watch = self._store.watch_value(
                _path(name), lambda node: self._on_change(name, shared, node)
            )
        elif shared.overrides is not None:
            callback(shared.overrides)
        return listening

    def _on_change(self, name: str, shared: _Shared, node: Versioned | None) -> None:
        try:
            shared.overrides = {} if node is None else self._decode(name, node.value).overrides
        except FencelogError as error:
            log.error("%s", error)
            return
        for callback in list(shared.listeners.values()):
            callback(shared.overrides)

    def unlisten(self, name: str, listening: object) -> None:
        shared = self._shared[name]
        del shared.listeners[listening]
        if not shared.listeners and shared.watch is not None:
            shared.watch.close()
            del self._shared[name]

    async def _get_latest(self, name: str) -> tuple[NamespaceInfo, Version] | None:
        """Return the same as ``_get``, not older than this call. It costs the store a write."""
        session_id = await catch_up(self._store)
        found = await self._get(name)
        check_session(self._store, session_id, f"find namespace {name}")
        return found

    async def _get(self, name: str) -> tuple[NamespaceInfo, Version] | None:
        try:
            node = await self._store.get(_path(name))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return None
            raise
        return self._decode(name, node.value), node.version

    async def _delete(self, path: str) -> None:
        try:
            node = await self._store.get(path)
            await self._store.delete(path, node.version)
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise

    def _decode(self, name: str, data: bytes) -> NamespaceInfo:
        """Decode the value of a node. Raises FencelogError(CORRUPT)."""
        try:
            fields = json.loads(data)
            if fields["v"] != FORMAT_VERSION:
                raise ValueError(f"version {fields['v']}")
            overrides = dict(fields["settings"])
            policy = self.default.inherited_by(overrides)
            return NamespaceInfo(name, overrides, policy, int(fields["created_us"]))
        except (KeyError, TypeError, ValueError) as error:
            raise FencelogError(
                ErrorCode.CORRUPT, f"namespace {name} is not valid: {error}"
            ) from error


class _Listening:
    """The ``Watch`` of one watcher of a shared watch."""

    __slots__ = ("_name", "_namespaces")

    def __init__(self, namespaces: Namespaces, name: str) -> None:
        self._namespaces: Namespaces | None = namespaces
        self._name = name

    def close(self) -> None:
        if self._namespaces is not None:
            self._namespaces.unlisten(self._name, self)
            self._namespaces = None


def _path(name: str) -> str:
    return f"{NAMESPACES_PATH}/{name}"


def _not_found(name: str) -> FencelogError:
    return FencelogError(ErrorCode.NAMESPACE_NOT_FOUND, f"there is no namespace {name}")


def _encode(info: NamespaceInfo) -> bytes:
    fields = {"v": FORMAT_VERSION, "settings": dict(info.overrides), "created_us": info.created_us}
    return json.dumps(fields, separators=(",", ":")).encode()
