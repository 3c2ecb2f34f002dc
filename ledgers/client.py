"""The ledger client: create, open, recover and delete ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from fencelog.ledgers.errors import ErrorCode, FencelogError, check
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.ids import LedgerIds
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore, creation_of
from fencelog.ledgers.ledger_metadata.transitions import begin_recovery
from fencelog.ledgers.ledger_metadata.update import update_metadata
from fencelog.ledgers.limits import WARM_UP_MS
from fencelog.ledgers.metastore.port import Create, MetadataStore, Version
from fencelog.ledgers.metrics import LedgerCounts
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.quorum import validate_quorums
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.recovery.fencing import fence_ledger
from fencelog.ledgers.recovery.recovery import (
    FoundEnd,
    Recovered,
    find_end,
    recover_with_last,
)
from fencelog.ledgers.rpc.bookie_port import BookieDirectory
from fencelog.ledgers.writer.options import WriterOptions
from fencelog.ledgers.writer.outbox import Outbox
from fencelog.ledgers.writer.writer import (
    LedgerWriter,
    OnAcknowledged,
    OnEnsembleChange,
    OnFailure,
)

DEFAULT_COPIES = 3
"""The number of copies of every entry. With Qa = 2, any one bookie may be lost without the loss of
anything acknowledged."""


@dataclass(frozen=True, slots=True)
class Replication:
    """The replication of a ledger: E bookies hold it, each entry goes to Qw of them and is
    acknowledged at Qa."""

    ensemble_size: int = DEFAULT_COPIES
    write_quorum: int = DEFAULT_COPIES
    ack_quorum: int = 2
    accept_ack_quorum_of_one: bool = field(default=False, compare=False)
    """Consent to Qa = 1 where Qw is larger. An acknowledged entry may then be on one bookie only:
    while a single bookie is away the ledger cannot be recovered, because that bookie alone might
    hold an entry, and if it is lost for good, acknowledged entries are lost with it (seed 000, "The
    Danger of Ack Quorum of 1"). This is not a property of a ledger, but the consent of its
    creator."""

    @classmethod
    def of_copies(cls, copies: int) -> Replication:
        """Return a replication that puts every entry on each of ``copies`` bookies and acknowledges
        it at a majority of them."""
        return cls(copies, copies, copies // 2 + 1)

    def validate(self) -> None:
        """Check the sizes. Raises FencelogError(BAD_REQUEST), also for Qa = 1 with a larger Qw
        without consent."""
        validate_quorums(
            ensemble_size=self.ensemble_size,
            write_quorum=self.write_quorum,
            ack_quorum=self.ack_quorum,
        )
        if self.ack_quorum == 1 < self.write_quorum and not self.accept_ack_quorum_of_one:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"Qa=1 with Qw={self.write_quorum}: a single absent bookie would stop recovery; "
                f"for two copies take Qw=2 Qa=2",
            )


@dataclass(frozen=True, slots=True)
class NewLedger:
    """A ledger that is still to be created, by a commit of ``change``; and the incarnations of its
    ensemble."""

    metadata: LedgerMetadata
    incarnations: Mapping[str, str]

    @property
    def ledger_id(self) -> int:
        return self.metadata.ledger_id

    @property
    def change(self) -> Create:
        return creation_of(self.metadata)


def _ignore(_before: LedgerMetadata, _after: LedgerMetadata) -> None:
    """Do nothing: nobody wants to know."""


class LedgerClient:
    """All operations of a process on ledgers. One per process; safe to use from all its tasks.
    ``on_ensemble_change`` is called after each change by a writer."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: BookieDirectory,
        *,
        host: Host,
        key: bytes = b"",
        writer_options: WriterOptions | None = None,
        metrics: LedgerCounts | None = None,
    ) -> None:
        """Create a client. ``metrics``: the figures to add to (None: its own)."""
        self.metrics = metrics or LedgerCounts()
        self.on_ensemble_change: OnEnsembleChange = _ignore
        self._bookies = bookies
        self._outbox = Outbox(bookies)
        self._host = host
        self._key = key
        self._writer_options = writer_options or WriterOptions()
        self._ids = LedgerIds(store)
        self.ledgers = LedgerStore(store)
        self._placement = Placement(bookies, host=host)

    def check_placement(self, bookies: int) -> None:
        """Check that so many bookies take adds. Raises FencelogError as ``Placement.check``."""
        self._placement.check(bookies)

    async def create(
        self,
        replication: Replication,
        *,
        on_ack: OnAcknowledged,
        on_failure: OnFailure,
        properties: Mapping[str, str] | None = None,
        exclude: Collection[str] = (),
    ) -> LedgerWriter:
        """Make a new ledger and its writer. Ids are never reused; a create whose reply was lost is
        recognised by its token.

        Raises BAD_REQUEST, NOT_ENOUGH_BOOKIES, OUT_OF_SPACE, METADATA_UNAVAILABLE, METADATA_UNKNOWN
        (an empty ledger that is not in use may be left behind).
        """
        new = await self.prepare(replication, properties=properties, exclude=exclude)
        version = await self.ledgers.create(new.metadata)
        return self._writer(new, version, on_ack, on_failure)

    async def warm_up(self) -> None:
        """Take ids of ledgers ahead, and connect to all registered bookies, so that the first
        ledgers do not wait for that: a broker that has just started is given the partitions of the
        one that it replaces, and appends wait meanwhile. Never raises FencelogError: what cannot be
        done now is done when it is needed. Ends within WARM_UP_MS."""

        async def attempt(work: Awaitable[object]) -> None:
            with suppress(FencelogError):
                await work

        with suppress(TimeoutError):
            async with asyncio.timeout(WARM_UP_MS / 1000), asyncio.TaskGroup() as group:
                group.create_task(attempt(self._ids.take_ahead()))
                for bookie_id in [*self._bookies.available(), *self._bookies.read_only()]:
                    bookie = self._bookies.client(bookie_id)
                    group.create_task(attempt(bookie.admin({"do": "status"})))

    async def prepare(
        self,
        replication: Replication,
        *,
        properties: Mapping[str, str] | None = None,
        exclude: Collection[str] = (),
    ) -> NewLedger:
        """Prepare a ledger that the caller creates together with other changes. Nothing is left
        behind if it does not. Raises BAD_REQUEST, NOT_ENOUGH_BOOKIES, OUT_OF_SPACE,
        METADATA_UNAVAILABLE."""
        replication.validate()
        ensemble = self._placement.choose(replication.ensemble_size, exclude=exclude)
        incarnations = {b: self._bookies.describe(b).incarnation for b in ensemble}
        metadata = new_metadata(
            await self._ids.next(),
            ensemble=ensemble,
            write_quorum=replication.write_quorum,
            ack_quorum=replication.ack_quorum,
            token=self._host.random_bytes(16).hex(),
            digest_type=DigestType.HMAC_SHA256 if self._key else DigestType.CRC32C,
            created_us=self._host.now_us(),
            properties=properties,
        )
        return NewLedger(metadata, incarnations)

    async def begin(
        self,
        new: NewLedger,
        version: Version | None,
        *,
        on_ack: OnAcknowledged,
        on_failure: OnFailure,
    ) -> LedgerWriter:
        """Return the writer of a ledger that was prepared and is created by now. ``version``: the
        one with which it was; None: the answer to that commit was lost, and it is known otherwise
        that it was made. Raises METADATA_UNKNOWN, METADATA_UNAVAILABLE."""
        if version is None:
            version = await self.ledgers.first_version(new.metadata)
            check(version is not None, f"ledger {new.ledger_id} is another client's")
            assert version is not None
        return self._writer(new, version, on_ack, on_failure)

    def _writer(
        self, new: NewLedger, version: Version, on_ack: OnAcknowledged, on_failure: OnFailure
    ) -> LedgerWriter:
        self.metrics.created += 1
        return LedgerWriter(
            new.metadata,
            version,
            ledgers=self.ledgers,
            bookies=self._bookies,
            outbox=self._outbox,
            placement=self._placement,
            incarnations=new.incarnations,
            key=self._key,
            on_ack=on_ack,
            on_failure=on_failure,
            options=self._writer_options,
            metrics=self.metrics,
            on_ensemble_change=self._ensemble_changed,
        )

    def _ensemble_changed(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        self.on_ensemble_change(before, after)

    async def open(self, ledger_id: int) -> LedgerReader:
        """Open for reading without fencing: a live writer is not disturbed. Raises
        LEDGER_NOT_FOUND."""
        metadata, _ = await self.ledgers.get(ledger_id)
        return self.reader(metadata)

    def reader(self, metadata: LedgerMetadata) -> LedgerReader:
        """Return a reader over metadata that the caller has already."""
        return LedgerReader(
            metadata,
            bookies=self._bookies,
            key=self._key,
            source=self.ledgers,
            metrics=self.metrics,
        )

    async def recover(self, ledger_id: int) -> LedgerMetadata:
        """Fence and close a ledger, see ``recover_with_last``. A closed ledger's metadata is
        returned as it is."""
        return (await self.recover_with_last(ledger_id)).metadata

    async def recover_with_last(self, ledger_id: int) -> Recovered:
        """Do the same as ``recover``, and return the last entry too if that has read it."""
        with self._counted_recovery():
            return await recover_with_last(
                ledger_id,
                ledgers=self.ledgers,
                bookies=self._bookies,
                placement=self._placement,
                key=self._key,
            )

    async def find_end(self, ledger_id: int) -> FoundEnd:
        """Fence a ledger and find its end; the caller closes it by a commit, see ``find_end``."""
        with self._counted_recovery():
            return await find_end(
                ledger_id,
                ledgers=self.ledgers,
                bookies=self._bookies,
                placement=self._placement,
                key=self._key,
            )

    @contextmanager
    def _counted_recovery(self) -> Iterator[None]:
        try:
            yield
        except FencelogError:
            self.metrics.recoveries_failed += 1
            raise
        self.metrics.recoveries += 1

    async def describe(
        self, ledger_id: int, properties_of: Callable[[LedgerMetadata], Mapping[str, str] | None]
    ) -> LedgerMetadata:
        """Give the ledger the properties that ``properties_of`` returns for its metadata, by
        compare-and-set on those; None: it keeps its own. Return its metadata as stored. Raises
        LEDGER_NOT_FOUND, METADATA_UNAVAILABLE, what ``properties_of`` raises."""

        def described(base: LedgerMetadata) -> LedgerMetadata | None:
            properties = properties_of(base)
            return None if properties is None else replace(base, properties=dict(properties))

        base, version = await self.ledgers.get(ledger_id)
        return (await update_metadata(self.ledgers, base, version, described))[0]

    async def delete(self, ledger_id: int, *, unfenced: bool = False) -> None:
        """Remove the ledger's metadata; bookies reclaim its space by comparison with metadata.

        A ledger that is not closed is fenced first, so that its writer cannot continue and receive
        acknowledgements for entries of a deleted ledger. ``unfenced``: delete it even where fencing
        is not possible. The deletion of a missing ledger succeeds.

        Raises RECOVERY_INCOMPLETE (naming the bookies that are missing; nothing was deleted),
        METADATA_UNAVAILABLE, METADATA_UNKNOWN.
        """
        try:
            await self._fence_for_good(ledger_id)
        except FencelogError as error:
            if error.code is ErrorCode.LEDGER_NOT_FOUND:
                return
            if not unfenced:
                raise
        await self.ledgers.delete(ledger_id)

    async def _fence_for_good(self, ledger_id: int) -> None:
        """Fence the ledger: from here on no add of its writer is acknowledged, and no change of its
        metadata by the writer succeeds."""
        base, version = await self.ledgers.get(ledger_id)
        base, _ = await update_metadata(self.ledgers, base, version, begin_recovery)
        if not base.is_closed:
            await fence_ledger(base, bookies=self._bookies)
