"""The choice of ledgers that a bookie need not keep, by the metadata, and their removal.

A ledger is removed only by a complete listing of the metadata of the cluster that this bookie
belongs to (its instance id is read before and after in the same session: an empty store must not
empty the bookies). A ledger that was not known here before the listing began is kept: its metadata
may be younger than the listing. So is a ledger whose id was never given, by the same metadata: that
metadata is then an older backup, without the ledgers that were created later. And each ledger is
looked up once more, right before it is removed, by a read for which no server is too far behind.
After any error, no more ledgers are removed.

* A ledger that is not there, for the grace time, was deleted: a tombstone stays, so that a writer
  that was suspended before the deletion cannot bring it back. The grace time is for the metadata
  store: one that is restored from a backup names the ledgers of that time again.
* A closed ledger of which no fragment names this bookie, for the grace time, is held by others,
  unless it is marked as lacking copies: then it stays (BK#4668). The metadata is read once more
  after the mark was found absent, since a worker names this bookie and then removes the mark. The
  And the bookies that the metadata names have to list all entries that are here: the metadata of a
  restored backup names bookies from which the entries were moved since, and the only copies may be
  here. The ledger is left in limbo, since a process that copies it here may be about to name this
  bookie: an entry that it then misses is unknown, not "no", and the integrity check copies it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.gc.core import Garbage, choose_ledgers, is_over_replicated
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ids import last_given_id
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, has_node
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore

_log = logging.getLogger(__name__)

_AT_ONCE = 64
"""Number of ledgers looked up and removed concurrently: their journal records share a sync, and
adds do not wait behind more of them. As many are compared with other bookies, by a request for each
of theirs."""

Instance = Callable[[], Awaitable[str | None]]
"""A function that reads the instance id of the cluster from its metadata store; None: it has
none."""


Doubt = Callable[[LedgerMetadata], Awaitable[str | None]]
"""A function that tells why it is not certain that the bookies which the metadata names hold all
entries of the ledger that are here; None: it is certain."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The metadata of the cluster that a bookie belongs to, and the means to verify that."""

    store: MetadataStore
    instance: Instance
    own_instance: str
    """The instance id in the bookie's cookie."""


class LedgerGarbage:
    """The removal of ledgers of one bookie."""

    def __init__(
        self, bookie: Bookie, metadata: ClusterMetadata, doubt: Doubt, *, grace_ms: int
    ) -> None:
        self._bookie = bookie
        self._metadata = metadata
        self._ledgers = LedgerStore(metadata.store)
        self._doubt = doubt
        self._grace_ms = grace_ms
        self._loop = asyncio.get_running_loop()
        self._since_ms: dict[Garbage, int] = {}
        self.ahead = 0
        """Number of ledgers with ids that the metadata had never given, at the last check."""
        self.doubts: dict[int, str] = {}
        """The over-replicated ledgers that stayed at the last check, as others may lack entries of
        them, and why."""

    async def collect(self, *, grace_of_deleted: bool = True) -> list[int]:
        """Remove the ledgers that need not be here; return which. Their entries leave the index
        with the next flush. ``grace_of_deleted``: False: deleted ledgers go without the grace time.

        Raises FencelogError: BAD_REQUEST (not our cluster), METADATA_UNAVAILABLE, METADATA_UNKNOWN,
        CORRUPT (then no ledger is removed), or an error from the removal of a single ledger.
        """
        local = {
            ledger_id: state.last_entry >= 0
            for shard in self._bookie.shards
            for ledger_id, state in shard.states.items()
            if not state.deleted and not state.removing
        }
        listed, given_id = await self._listed(local)
        choice = choose_ledgers(
            local,
            listed,
            last_given_id=given_id,
            since_ms=self._since_ms,
            now_ms=round(self._loop.time() * 1000),
            grace_ms=self._grace_ms,
            grace_of_deleted=grace_of_deleted,
        )
        self._since_ms = dict(choice.since_ms)
        self.ahead = len(choice.ahead)
        if choice.ahead:
            _log.error(
                "bookie %s keeps %d ledgers, %d first, of which the metadata has never given the "
                "id: is it that of an older backup?",
                self._bookie.bookie_id,
                self.ahead,
                choice.ahead[0],
            )
        removed = await self._each(choice.deleted, self._remove_deleted)
        before, self.doubts = self.doubts, {}
        removed += await self._each(choice.over_replicated, self._remove_over_replicated)
        self._tell_doubts(before)
        return removed

    def _tell_doubts(self, before: Mapping[int, str]) -> None:
        """Log the ledgers that stay, when there are others than at the previous check."""
        if new := sorted(self.doubts.keys() - before.keys()):
            _log.warning(
                "bookie %s keeps %d over-replicated ledgers, as other bookies may lack their "
                "entries; %d first: %s",
                self._bookie.bookie_id,
                len(self.doubts),
                new[0],
                self.doubts[new[0]],
            )

    async def _listed(self, local: dict[int, bool]) -> tuple[dict[int, bool], int]:
        """Return which of the local ledgers the metadata has, and whether they are over-replicated;
        and the last id that any ledger may have."""
        session_id = self._metadata.store.session_id
        await self._check_instance()
        listed = {
            metadata.ledger_id: is_over_replicated(metadata, self._bookie.bookie_id)
            async for metadata in self._ledgers.read_all()
            if metadata.ledger_id in local
        }
        given_id = await last_given_id(self._metadata.store)
        await self._check_instance()
        if self._metadata.store.session_id != session_id:
            raise FencelogError(
                ErrorCode.METADATA_UNAVAILABLE, "the session was lost while ledgers were listed"
            )
        return listed, given_id

    async def _check_instance(self) -> None:
        found, own = await self._metadata.instance(), self._metadata.own_instance
        if found != own:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"metadata is of instance {found}, bookie {self._bookie.bookie_id} of {own}",
            )

    async def _each(
        self, ledger_ids: Iterable[int], remove: Callable[[int], Awaitable[bool]]
    ) -> list[int]:
        """Remove ledgers, some at a time; return those that were removed. Raises the first error
        among concurrent removals, once all of them are done."""
        ids, removed = list(ledger_ids), list[int]()
        for at in range(0, len(ids), _AT_ONCE):
            chunk = ids[at : at + _AT_ONCE]
            results = await asyncio.gather(*map(remove, chunk), return_exceptions=True)
            for ledger_id, result in zip(chunk, results, strict=True):
                if isinstance(result, BaseException):
                    raise result
                if result:
                    removed.append(ledger_id)
        return removed

    async def _remove_deleted(self, ledger_id: int) -> bool:
        try:
            await self._ledgers.get(ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            await self._bookie.shard(ledger_id).remove(ledger_id, deleted=True)
            return True
        return False

    async def _remove_over_replicated(self, ledger_id: int) -> bool:
        metadata = await self._over_replicated(ledger_id)
        if metadata is None:
            return False
        if (doubt := await self._doubt(metadata)) is not None:
            self.doubts[ledger_id] = doubt
            return False
        if await has_node(self._metadata.store, MARKS_PATH, ledger_id):
            return False  # its entries may be here because this bookie is about to be named
        # Or it has just been named: the mark goes only after that.
        if await self._over_replicated(ledger_id) != metadata:
            return False
        await self._bookie.shard(ledger_id).remove(ledger_id, deleted=False)
        return True

    async def _over_replicated(self, ledger_id: int) -> LedgerMetadata | None:
        """Return the metadata, not older than this call, of a ledger that is over-replicated by it;
        None: it is not."""
        try:
            metadata, _ = await self._ledgers.get_latest(ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            return None  # deleted just now: the next listing says so
        return metadata if is_over_replicated(metadata, self._bookie.bookie_id) else None
