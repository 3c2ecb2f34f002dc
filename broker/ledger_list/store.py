"""A ledger list in the metadata store: read, and changed by one compare-and-set at a time.

Every change carries a fresh random token. A reply that was lost is resolved by sending the same
change again and, on a conflict, reading back: our token there means that it had been made. So a
listed ledger is never taken for an unlisted one (Pravega#4721 lost a log that way). Anything else
means that another owner has changed the ledger list: this instance has lost it, for good.

Several parts of a log change its ledger list (rolls, the state log, trims, compaction): ``change``
makes one change at a time, and completes one whose caller has gone away, since the next must know
what became of it.

What is changed together with the list is made one by one before it where all of it does not fit one
commit. Those are closes of ledgers, and safe alone: each is a compare-and-set of its own, and
recovery in BookKeeper closes ledgers before the list changes, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from fencelog.broker.ledger_list.codec import decode_ledger_list, encode_ledger_list
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MAX_COMMIT_BYTES
from fencelog.ledgers.metastore.instance import catch_up, check_session
from fencelog.ledgers.metastore.paths import commit_bytes
from fencelog.ledgers.metastore.port import (
    NO_VERSION,
    Change,
    MetadataStore,
    Set,
    Version,
    Versioned,
)

RETRY_S = 0.25
"""Pause before an unanswered change is sent again."""

_REFUSED = (
    ErrorCode.METADATA_CONFLICT,
    ErrorCode.METADATA_NOT_FOUND,
    ErrorCode.METADATA_EXISTS,
)
_WAITED_OUT = (
    ErrorCode.METADATA_UNAVAILABLE,
    ErrorCode.METADATA_UNKNOWN,
    ErrorCode.METADATA_UNAUTHORIZED,
)
"""The errors after which a change is sent again. The last one says nothing of an attempt before;
it ends when an operator has given this broker the credentials, or opened the nodes."""


class LedgerListLost(FencelogError):
    """The error that another instance has changed the ledger list. ``ledger_list`` is the current
    one, None if there is none."""

    def __init__(self, path: str, ledger_list: LedgerList | None) -> None:
        gone = ledger_list is None or ledger_list.deleted
        super().__init__(
            ErrorCode.TOPIC_NOT_FOUND if gone else ErrorCode.NO_OWNER,
            f"{path} was deleted" if gone else f"{path} was taken over by another broker",
        )
        self.ledger_list = ledger_list


class LedgerChanged(FencelogError):
    """The error that a change of the list was not made, since another client has changed a ledger
    that was to be changed with it. The list is as it was."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(ErrorCode.NO_OWNER, f"{path} could not be changed: {why}")


def ledger_list_path(topic_id: str, partition: int) -> str:
    return f"/logs/{topic_id}/{partition}"


class LedgerListStore:
    """The access of one instance to a ledger list; ``ledger_list`` is the last value it read or
    wrote.

    ``lost`` is set, and the callback of ``call_when_lost`` called, once another instance has
    changed the ledger list: every later change raises it again.
    """

    def __init__(self, store: MetadataStore, path: str, *, host: Host) -> None:
        self._store = store
        self.path = path
        self._host = host
        self._version = NO_VERSION
        self._turn = asyncio.Lock()
        self._changing: asyncio.Task[list[Version] | None] | None = None
        self.ledger_list = LedgerList()
        self.lost: LedgerListLost | None = None
        self._closed = False
        self._on_lost: Callable[[LedgerListLost], None] = lambda lost: None

    @property
    def topic_id(self) -> str:
        """Return the id of the topic whose partition this is, the last part but one of the path."""
        return self.path.split("/")[-2]

    def call_when_lost(self, on_lost: Callable[[LedgerListLost], None]) -> None:
        """Call ``on_lost``, once, when the ledger list is lost. There is one such callback: that of
        the log which was opened from the list."""
        self._on_lost = on_lost

    async def load(self) -> None:
        """Read the ledger list. Raises METADATA_NOT_FOUND, METADATA_UNAVAILABLE, CORRUPT."""
        node = await self._store.get(self.path)
        self.ledger_list, self._version = decode_ledger_list(node.value), node.version

    async def create(self) -> bool:
        """Create the node with an empty ledger list. False: it exists, and is still to be
        loaded."""
        try:
            self._version = await self._store.create(self.path, encode_ledger_list(LedgerList()))
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_EXISTS:
                raise
            return False
        self.ledger_list = LedgerList()
        return True

    async def delete(self) -> None:
        """Remove the node, if it is as it was last read or written here; nothing is done if it does
        not exist. Raises METADATA_CONFLICT if it was changed meanwhile, METADATA_…."""
        try:
            await self._store.delete(self.path, self._version)
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise

    async def check_unchanged(self) -> None:
        """Check that no other instance had changed the ledger list when this was called, however
        far behind a server of the store is: that costs a write. Waits out a store that cannot be
        reached. Raises LedgerListLost if one had."""
        async with self._turn:
            if self._changing is not None:
                await asyncio.wait((self._changing,))
            self.check_held()
            found, _ = await self._read_latest()
            if found is None or found.token != self.ledger_list.token:
                lost = LedgerListLost(self.path, found)
                self._lose(lost)
                raise lost

    async def check_epoch(self) -> None:
        """Check that no later owner is known to the server of the store that answers, which may lag
        behind: that costs one read. Raises LedgerListLost if there is one; METADATA_…."""
        node = await self._store.get(self.path)
        if decode_ledger_list(node.value).epoch > self.ledger_list.epoch:
            await self.check_unchanged()

    async def change(
        self, next_of: Callable[[LedgerList], LedgerList], *, also: Sequence[Change] = ()
    ) -> list[Version] | None:
        """Replace the ledger list by the result of ``next_of`` on it, and make the changes ``also``
        in the same step; return once the new list is in the store. Where that is too much for one
        step, each ``Set`` of ``also`` is made before, in one of its own. The result is the versions
        after ``also``; None if the answer to the change was lost.

        Raises LedgerListLost; LedgerChanged if one of ``also`` was refused; BAD_REQUEST if the list
        is too large, NO_OWNER if this access has ended (nothing was written); METADATA_UNKNOWN if
        it ends meanwhile; what ``next_of`` raises.
        Retries while the store does not answer, or lets nobody in, since a change of unknown
        outcome must be resolved before the next. The change continues if the caller is cancelled.
        """
        async with self._turn:
            if self._changing is not None:
                await asyncio.wait((self._changing,))  # its caller has gone away
            self.check_held()
            ledger_list = replace(
                next_of(self.ledger_list), token=self._host.random_bytes(16).hex()
            )
            value = encode_ledger_list(ledger_list)
            changing = self._changing = asyncio.get_running_loop().create_task(
                self._commit(ledger_list, value, also)
            )
            changing.add_done_callback(self._changed)
            await asyncio.wait((changing,))
            if changing.cancelled():
                raise FencelogError(
                    ErrorCode.METADATA_UNKNOWN,
                    f"{self.path} was closed while it was changed: the change may be made, or not",
                )
            return changing.result()

    def check_held(self) -> None:
        """Check that this instance may change the ledger list. Raises LedgerListLost, or NO_OWNER,
        if it may not any more."""
        if self.lost is not None:
            raise LedgerListLost(self.path, self.lost.ledger_list)
        if self._closed:
            raise FencelogError(ErrorCode.NO_OWNER, f"{self.path} was closed here")

    async def close(self) -> None:
        """Change nothing any more. Ends a change that is still in flight: the next owner finds out
        what became of it."""
        self._closed = True
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.wait((self._changing,))

    async def _commit(
        self, ledger_list: LedgerList, value: bytes, also: Sequence[Change]
    ) -> list[Version] | None:
        try:
            made: dict[int, Version] = {}
            if commit_bytes([*also, Set(self.path, value, self._version)]) > MAX_COMMIT_BYTES:
                for place, change in enumerate(also):
                    if isinstance(change, Set):
                        made[place] = await self._set_alone(change)
            rest = [change for place, change in enumerate(also) if place not in made]
            self._version, versions = await self._set(value, ledger_list.token, rest)
        except LedgerListLost as lost:
            self._lose(lost)
            raise
        self.ledger_list = ledger_list
        if versions is None:
            return None
        made_last = iter(versions)
        return [made[place] if place in made else next(made_last) for place in range(len(also))]

    def _changed(self, change: asyncio.Task[list[Version] | None]) -> None:
        """Note the end of a change. Its error is the caller's, which may have gone away."""
        self._changing = None
        if not change.cancelled():
            change.exception()

    def _lose(self, lost: LedgerListLost) -> None:
        if self.lost is None:
            self.lost = lost
            self._on_lost(lost)

    async def _set(
        self, value: bytes, token: str, also: Sequence[Change]
    ) -> tuple[Version, list[Version] | None]:
        may_be_made = False
        while True:
            try:
                own = Set(self.path, value, self._version)
                *versions, version = await self._store.commit([*also, own])
                return version, versions
            except FencelogError as error:
                is_refused = error.code in _REFUSED
                if error.code not in _WAITED_OUT:
                    if not (is_refused or may_be_made):
                        raise
                    # Whatever refuses an attempt says nothing of one before whose answer was lost.
                    read = self._read_back if is_refused else self._read_latest
                    found, version = await read()
                    if found is not None and found.token == token:
                        return version, None
                    if version != self._version:
                        raise LedgerListLost(self.path, found) from error
                    if is_refused:
                        raise LedgerChanged(self.path, error.detail) from error
                    raise
                may_be_made = True
            await asyncio.sleep(RETRY_S)

    async def _set_alone(self, change: Set) -> Version:
        """Make a change of another node; return the version after it. Raises LedgerChanged if it is
        refused, unless the node is as it would be: then an attempt whose answer was lost has made
        it, or another client the same one."""
        may_be_made = False
        while True:
            try:
                (version,) = await self._store.commit([change])
                return version
            except FencelogError as error:
                is_refused = error.code in _REFUSED
                if error.code not in _WAITED_OUT:
                    if not (is_refused or may_be_made):
                        raise
                    read = self._node_at if is_refused else self._latest_node_at
                    node = await read(change.path)
                    if node is not None and node.value == change.value:
                        return node.version
                    if is_refused:
                        raise LedgerChanged(self.path, error.detail) from error
                    raise
                may_be_made = True
            await asyncio.sleep(RETRY_S)

    async def _read_latest(self) -> tuple[LedgerList | None, Version]:
        return _decoded(await self._latest_node_at(self.path))

    async def _latest_node_at(self, path: str) -> Versioned | None:
        """Read a node as ``_node_at``, however far behind a server of the store is."""
        while True:
            try:
                session_id = await catch_up(self._store)
                node = await self._node_at(path)
                check_session(self._store, session_id, f"read {path}")
                return node
            except FencelogError as error:
                if error.code not in _WAITED_OUT:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _read_back(self) -> tuple[LedgerList | None, Version]:
        return _decoded(await self._node_at(self.path))

    async def _node_at(self, path: str) -> Versioned | None:
        """Read a node; None: it is not there. Waits out a store that cannot be reached."""
        while True:
            try:
                return await self._store.get(path)
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_NOT_FOUND:
                    return None
                if error.code not in _WAITED_OUT:
                    raise
            await asyncio.sleep(RETRY_S)


def _decoded(node: Versioned | None) -> tuple[LedgerList | None, Version]:
    """Return the list in a node, and its version; None if there is no node."""
    if node is None:
        return None, NO_VERSION
    return decode_ledger_list(node.value), node.version
