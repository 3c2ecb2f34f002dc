"""The writer's view of its ledger's metadata: the members, and the two changes that a writer makes.

Both are made only while the ledger is OPEN (rules 2 and 8), and are repeated until their outcome is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import replacement_of
from fencelog.ledgers.ledger_metadata.transitions import closed_by_writer, with_new_ensemble
from fencelog.ledgers.ledger_metadata.update import MetadataAccess, Transform, update_metadata
from fencelog.ledgers.metastore.port import Change, Version
from fencelog.ledgers.placement.placement import Placement
from fencelog.ledgers.rpc.bookie_port import BookieDirectory
from fencelog.ledgers.writer.core import ChangeEnsemble


class PreparedClose(NamedTuple):
    """The metadata of a ledger whose writer is about to close it, and the change that does; None:
    it is closed already."""

    metadata: LedgerMetadata
    change: Change | None


class WriterMetadata:
    """The metadata of a writer. ``metadata``: as this writer committed it last; ``incarnations``:
    those of all past and current members, as they were when they joined; ``now_us``: the wall
    clock, for the times of changes."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: Version,
        *,
        ledgers: MetadataAccess,
        bookies: BookieDirectory,
        placement: Placement,
        incarnations: Mapping[str, str],
        now_us: Callable[[], int],
    ) -> None:
        self.metadata = metadata
        self.incarnations = dict(incarnations)
        self._version = version
        self._ledgers = ledgers
        self._bookies = bookies
        self._placement = placement
        self._now_us = now_us

    async def change_ensemble(self, change: ChangeEnsemble) -> LedgerMetadata:
        """Find replacements, as many as possible, and commit them.

        A previous member that has another incarnation now is no replacement: it has fenced this
        ledger (rule 10). Raises NOT_ENOUGH_BOOKIES, METADATA_UNAVAILABLE, BAD_REQUEST (no space for
        another fragment): nothing was changed; LEDGER_FENCED: the writer has lost the ledger.
        """
        previous = self.metadata.last_fragment
        strangers = {b for b, known in self.incarnations.items() if known != self._incarnation(b)}
        ensemble = self._placement.replace(
            previous.bookies,
            change.failed,
            exclude=strangers,
            write_quorum=self.metadata.write_quorum,
        )
        joining = {b: self._incarnation(b) for b in ensemble if b not in previous.bookies}
        fragment = Fragment(change.first_entry_id, ensemble, self._now_us())
        await self._update(partial(with_new_ensemble, previous=previous, fragment=fragment))
        self.incarnations.update(joining)
        return self.metadata

    async def close(self, *, last_entry_id: int, length: int) -> LedgerMetadata:
        """Close the ledger. Raises LEDGER_FENCED (the writer has lost the ledger),
        METADATA_UNAVAILABLE (not closed)."""
        await self._update(partial(closed_by_writer, last_entry_id=last_entry_id, length=length))
        return self.metadata

    def prepare_close(self, *, last_entry_id: int, length: int) -> PreparedClose:
        """Return the change that closes the ledger, based on the version that this writer wrote
        last. It is refused if another client has changed the ledger since; ``close`` then finds out
        what that means."""
        closed = closed_by_writer(self.metadata, last_entry_id=last_entry_id, length=length)
        if closed is None:
            return PreparedClose(self.metadata, None)
        return PreparedClose(closed, replacement_of(closed, self._version))

    async def _update(self, transform: Transform) -> None:
        try:
            self.metadata, self._version = await update_metadata(
                self._ledgers, self.metadata, self._version, transform
            )
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            # Bookies may hold the pending entries: for the writer this is the same as being fenced.
            raise FencelogError(
                ErrorCode.LEDGER_FENCED, f"ledger {self.metadata.ledger_id} was deleted"
            ) from error

    def _incarnation(self, bookie_id: str) -> str:
        return self._bookies.describe(bookie_id).incarnation
