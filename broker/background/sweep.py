"""The sweep: finds the remains of crashes, and removes them.

* Topics whose deletion was not finished: the nodes below an id that no topic has.
* Ledgers on no list: of a roll or a takeover that ended between creating and listing, or of a trim
  that ended between unlisting and deleting (``sweep_core`` says which).

One broker at a time sweeps, slowly, holding an ephemeral node. Safety does not depend on it: two
sweeps at once do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from fencelog.broker.background.sweep_core import Tag, is_garbage, tag_of
from fencelog.broker.ledger_list.codec import decode_ledger_list
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.ledger_port import Ledgers
from fencelog.broker.ledger_list.store import ledger_list_path
from fencelog.broker.ledger_list.withdrawal import WITHDRAWN, is_withdrawn
from fencelog.broker.limits import SWEEP_LEDGERS_PER_S
from fencelog.broker.registry.subscription_registry import SUBSCRIPTIONS_PATH
from fencelog.broker.registry.topic_deletion import LOGS_PATH
from fencelog.broker.registry.topics import TopicRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.metastore.paths import unavailable
from fencelog.ledgers.metastore.port import MetadataStore, Version
from fencelog.ledgers.metastore.watch import names_or_empty

LOCK_PATH = "/sweep/lock"
LAST_PATH = "/sweep/last"
BATCH = 20
"""The number of ledgers between two pauses."""

log = logging.getLogger(__name__)


class LedgerCatalogue(Protocol):
    """The list of all ledgers of the cluster, see ``LedgerStore``."""

    def list(self) -> AsyncIterator[int]: ...

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]: ...


@dataclass(slots=True)
class Swept:
    """The result of one sweep: what it found, and removed unless it only looked. ``failed``: what
    it could not remove, and why; the next sweep tries again."""

    looked_at: int = 0
    topics: list[str] = field(default_factory=list)
    """The ids of topics that were deleted, but not everything that belonged to them."""
    ledgers: list[int] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class Sweep:
    """The sweep of one broker. ``sweep`` may be called at any time."""

    def __init__(
        self,
        store: MetadataStore,
        topics: TopicRegistry,
        ledgers: Ledgers,
        catalogue: LedgerCatalogue,
        *,
        host: Host,
        grace_s: float,
    ) -> None:
        self._store = store
        self._topics = topics
        self._ledgers = ledgers
        self._catalogue = catalogue
        self._host = host
        self._grace_s = grace_s
        self._sweeping = False

    async def find(self) -> Swept:
        """Return what a sweep would remove now. Raises FencelogError(METADATA_…)."""
        return await self._all(_Pass(dry_run=True, session_id=self._store.session_id, pause_s=0))

    async def sweep(self, *, pause_s: float = 0) -> Swept:
        """Examine everything once and remove what belongs to no topic; ``pause_s`` after a batch of
        ledgers. Raises FencelogError: METADATA_CONFLICT (another sweep is in progress), METADATA_…;
        the removals until then stay."""
        if self._sweeping:
            raise _busy()
        self._sweeping = True
        try:
            lock = await self._lock()
            # From here on this session reads nothing older than this moment.
            session_id = self._store.session_id
            try:
                return await self._all(_Pass(False, session_id, pause_s))
            finally:
                with suppress(FencelogError):
                    await self._store.delete(LOCK_PATH, lock)
        finally:
            self._sweeping = False

    async def sweep_if_due(self, interval_s: float) -> Swept | None:
        """Sweep slowly, unless some broker ended a sweep within the interval, or is sweeping
        now."""
        last_us, version = await self._last_us()
        since_us = self._host.now_us() - last_us
        if abs(since_us) < interval_s * 1e6:  # far in the future: some clock was wrong
            return None
        try:
            swept = await self.sweep(pause_s=BATCH / SWEEP_LEDGERS_PER_S)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_CONFLICT:
                return None
            raise
        try:
            await self._store.set(LAST_PATH, b"%d" % self._host.now_us(), version)
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_CONFLICT:  # another sweep has ended as well
                raise
        return swept

    async def _last_us(self) -> tuple[int, Version]:
        try:
            node = await self._store.get(LAST_PATH)
            return int(node.value), node.version
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise
        return 0, await self._store.create(LAST_PATH, b"0", once=True)

    async def _lock(self) -> Version:
        try:
            return await self._store.create(LOCK_PATH, b"", ephemeral=True)
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                raise
            try:
                lock = await self._store.get(LOCK_PATH)
            except FencelogError:
                raise _busy() from error
            if lock.ephemeral_owner != self._store.session_id:
                raise _busy() from error
            return lock.version

    async def _all(self, sweep: _Pass) -> Swept:
        # The nodes below an id are read before the registry: a topic exists before its nodes do.
        ids = {
            *await names_or_empty(self._store.children(LOGS_PATH)),
            *await names_or_empty(self._store.children(SUBSCRIPTIONS_PATH)),
        }
        for topic_id in sorted(ids - await self._topics.ids()):
            sweep.found.topics.append(topic_id)
            await self._remove(sweep, f"topic {topic_id}", self._topics.deletion.finish(topic_id))
        async for ledger_id in self._catalogue.list():
            sweep.found.looked_at += 1
            if sweep.pause_s and sweep.found.looked_at % BATCH == 0:
                await asyncio.sleep(sweep.pause_s)
            garbage = await self._garbage(sweep, ledger_id)
            if garbage is not None:
                sweep.found.ledgers.append(ledger_id)
                await self._remove(sweep, f"ledger {ledger_id}", self._delete(garbage))
        return sweep.found

    async def _remove(self, sweep: _Pass, what: str, removal: Coroutine[Any, Any, None]) -> None:
        if sweep.dry_run or self._store.session_id != sweep.session_id:
            removal.close()
            if not sweep.dry_run:
                raise unavailable("sweep", "the session was lost meanwhile")
            return
        try:
            await removal
            log.info("sweep: %s belonged to nothing and was removed", what)
        except FencelogError as error:
            sweep.found.failed[what] = str(error)
            log.warning("sweep: %s belongs to nothing and could not be removed: %s", what, error)

    async def _delete(self, judged: LedgerMetadata) -> None:
        """Delete a ledger as it was judged. One of a committer is withdrawn first: an owner may
        claim it meanwhile. Raises METADATA_CONFLICT if one has."""

        def withdrawn(found: LedgerMetadata) -> Mapping[str, str] | None:
            if is_withdrawn(found.properties):
                return None
            if found.properties != judged.properties:
                raise FencelogError(
                    ErrorCode.METADATA_CONFLICT, f"ledger {found.ledger_id} was claimed meanwhile"
                )
            return {**found.properties, **WITHDRAWN}

        tag = tag_of(judged.properties)
        if tag is not None and tag.is_committers:
            await self._ledgers.describe(judged.ledger_id, withdrawn)
        await self._ledgers.delete(judged.ledger_id)

    async def _garbage(self, sweep: _Pass, ledger_id: int) -> LedgerMetadata | None:
        """Return the metadata of a ledger that can be deleted."""
        try:
            metadata, _ = await self._catalogue.get(ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            return None
        tag = tag_of(metadata.properties)
        if tag is None:
            return None
        ledger_list = await self._ledger_list(tag)
        is_gone = False
        if ledger_list is None or ledger_list.deleted:
            is_gone = await self._is_gone(sweep, tag.topic_id)
        age_s = (self._host.now_us() - metadata.created_us) / 1e6
        is_found = is_garbage(
            tag, ledger_id, ledger_list, topic_is_gone=is_gone, age_s=age_s, grace_s=self._grace_s
        )
        return metadata if is_found else None

    async def _is_gone(self, sweep: _Pass, topic_id: str) -> bool:
        """Tell whether a topic is gone. Ids are never used again: a topic that is gone stays
        gone."""
        if topic_id not in sweep.gone and topic_id not in await self._topics.ids():
            sweep.gone.add(topic_id)
        return topic_id in sweep.gone

    async def _ledger_list(self, tag: Tag) -> LedgerList | None:
        try:
            node = await self._store.get(ledger_list_path(tag.topic_id, tag.partition))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return None
            raise
        return decode_ledger_list(node.value)


class Sweeper:
    """The task that sweeps periodically. ``start`` it; ``close`` ends a sweep in progress."""

    def __init__(self, sweep: Sweep, *, interval_s: float, host: Host) -> None:
        self._sweep = sweep
        self._interval_s = interval_s
        self._host = host
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="sweeper")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            # Brokers that were started together do not ask at the same time.
            await asyncio.sleep(self._interval_s * (0.5 + self._host.fraction()) / 4)
            try:
                await self._sweep.sweep_if_due(self._interval_s)
            except FencelogError as error:
                log.warning("sweep: %s", error)
            except Exception:  # a bug must not end all later sweeps
                log.exception("sweep")


@dataclass(slots=True)
class _Pass:
    """One sweep in progress. ``gone``: ids that no topic has, for certain."""

    dry_run: bool
    session_id: int
    pause_s: float
    found: Swept = field(default_factory=Swept)
    gone: set[str] = field(default_factory=set)


def _busy() -> FencelogError:
    return FencelogError(ErrorCode.METADATA_CONFLICT, "another sweep is under way")
