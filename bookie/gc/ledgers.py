"""Which ledgers a bookie need not keep, by the metadata, and letting go of them.

Removed is only what the metadata says, of a listing that is whole, of the cluster that this bookie
belongs to (its instance id, read before and after in the same session: an empty store must not
empty the bookies). What was not known here before the listing began is left alone: its metadata may
be younger than the listing. So is a ledger whose id was never given, by the same metadata: that is
an older backup then, which does not know what came after. And each ledger is looked up once more,
right before it is removed, with a look that no server is too far behind for. Any error, and nothing
more is removed.

* A ledger that is not there was deleted: a tombstone stays, so that no writer that sleeps since
  before can bring it back.
* A closed ledger of which no fragment names this bookie, for the grace time: others hold it. It is
  left in limbo, since somebody who copies it here may be about to name us: what he will miss then
  is unknown, not "no", and the integrity check brings it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.gc.core import choose_ledgers, is_over_replicated
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ids import last_given_id
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore

_log = logging.getLogger(__name__)

_AT_ONCE = 64
"""Ledgers looked up and removed side by side: their journal records share a sync, and adds do not
wait behind more of them."""

Instance = Callable[[], Awaitable[str | None]]
"""Reads the instance id of the cluster from its metadata store; None: it has none."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The metadata of the cluster that a bookie belongs to, and how to know that it is."""

    store: MetadataStore
    instance: Instance
    own_instance: str
    """What the bookie's cookie says."""


class LedgerGarbage:
    """The ledgers of one bookie."""

    def __init__(self, bookie: Bookie, metadata: ClusterMetadata, *, grace_ms: int) -> None:
        self._bookie = bookie
        self._metadata = metadata
        self._ledgers = LedgerStore(metadata.store)
        self._grace_ms = grace_ms
        self._loop = asyncio.get_running_loop()
        self._since_ms: dict[int, int] = {}
        self.ahead = 0
        """Ledgers with ids that the metadata has never given, at the last look."""

    async def collect(self) -> list[int]:
        """Remove what need not be here; returns which ledgers. Their entries leave the index with
        the next flush.

        Raises FencelogError: BAD_REQUEST (not our cluster), METADATA_UNAVAILABLE, METADATA_UNKNOWN,
        CORRUPT (then nothing is removed), or what came up while they were removed one by one.
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
        return removed + await self._each(choice.over_replicated, self._remove_over_replicated)

    async def _listed(self, local: dict[int, bool]) -> tuple[dict[int, bool], int]:
        """Of the local ledgers those that the metadata has: whether they are over-replicated. And
        the last id that any ledger may have."""
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
        """Raises what one of them raises, when those beside it are done."""
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
        try:
            metadata, _ = await self._ledgers.get_latest(ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            return False  # deleted just now: the next listing says so
        if not is_over_replicated(metadata, self._bookie.bookie_id):
            return False
        await self._bookie.shard(ledger_id).remove(ledger_id, deleted=False)
        return True
