"""Reading a ledger: from any bookie of a write set, verified, never past what is confirmed.

A read goes to one bookie and falls over to the next; every entry's digest is checked before it
leaves here. "No such entry" is said only of a closed ledger, when the whole write set says so
explicitly; a timeout, an error or a damaged copy makes the answer unknown (PROTOCOL.md rule 7).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from fencelog.ledgers.bookie_port import BookieClient, BookieDirectory, ReadReply
from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.limits import MAX_READ_BYTES, MAX_RUN_ENTRIES
from fencelog.ledgers.metadata import NO_ENTRY, LedgerMetadata
from fencelog.ledgers.quorum import write_set
from fencelog.ledgers.run import Entry, verify_entries, verify_run

AVOID_S = 5.0
"""How long a bookie that failed a read is asked last."""


class MetadataSource(Protocol):
    """Where newer metadata of an open ledger comes from (``LedgerStore``)."""

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, int]: ...


class LedgerReader:
    """Reads one ledger without fencing it. Made by ``LedgerClient.open`` or ``.reader``.

    ``last_confirmed`` bounds every read: the last entry of a closed ledger, else the highest LAC
    that was learnt from bookies or told by the writer (``confirm``).
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        *,
        bookies: BookieDirectory,
        key: bytes = b"",
        source: MetadataSource | None = None,
    ) -> None:
        self.metadata = metadata
        self._bookies = bookies
        self._key = key
        self._source = source
        self._confirmed = NO_ENTRY
        self._avoid_until: dict[str, float] = {}

    @property
    def last_confirmed(self) -> int:
        return self.metadata.last_entry_id if self.metadata.is_closed else self._confirmed

    def confirm(self, lac: int) -> None:
        """The caller knows that entries up to ``lac`` are acknowledged."""
        self._confirmed = max(self._confirmed, lac)

    def update(self, metadata: LedgerMetadata) -> None:
        """Use newer metadata: the fragments of an open ledger change, an open one is closed."""
        self.metadata = metadata

    async def read_lac(self) -> int:
        """The last entry that may be read now. For an open ledger it trails the writer's LAC.

        Raises READ_UNKNOWN if no bookie of the last fragment answers.
        """
        if not self.metadata.is_closed and self._source is not None:
            self.metadata, _ = await self._source.get(self.metadata.ledger_id)
        if self.metadata.is_closed:
            return self.metadata.last_entry_id
        ledger_id = self.metadata.ledger_id
        members = self.metadata.last_fragment.bookies
        answers = await asyncio.gather(
            *(self._bookies.client(bookie).read_lac(ledger_id) for bookie in members),
            return_exceptions=True,
        )
        failures: dict[str, FencelogError] = {}
        for bookie, answer in zip(members, answers, strict=True):
            if isinstance(answer, int):
                self.confirm(answer)
            elif not isinstance(answer, FencelogError):
                raise answer
            elif not answer.code.is_negative:
                failures[bookie] = answer
        if len(failures) == len(members):
            raise _unknown(ledger_id, "the LAC", failures)
        # A fragment starts at LAC + 1, so what lies before the last one is confirmed.
        self.confirm(self.metadata.last_fragment.first_entry_id - 1)
        return self._confirmed

    async def read(self, first: int, last: int, *, max_bytes: int = MAX_READ_BYTES) -> list[Entry]:
        """Entries ``first`` … in order without a gap, at least one, at most up to ``last``.

        Fewer than asked for come where ``max_bytes`` or a fragment ends: ask again from the next.
        Raises BAD_REQUEST (beyond ``last_confirmed``), NO_SUCH_ENTRY (the whole write set of a
        closed ledger says so), READ_UNKNOWN (some bookie may have it).
        """
        if not 0 <= first <= min(last, self.last_confirmed):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"entries {first}..{last} of ledger {self.metadata.ledger_id} are not within "
                f"0..{self.last_confirmed}",
            )
        return await self.read_unbounded(first, min(last, self.last_confirmed), max_bytes=max_bytes)

    async def read_unbounded(self, first: int, last: int, *, max_bytes: int) -> list[Entry]:
        """``read`` without the bound, for the recoverer, which knows what it does."""
        last = min(last, self._fragment_end(first), first + MAX_RUN_ENTRIES - 1)
        failures: dict[str, FencelogError] = {}
        for bookie in self._candidates(first):
            try:
                return await self._read_from(
                    self._bookies.client(bookie), first, last, max_bytes=max_bytes
                )
            except FencelogError as error:
                failures[bookie] = error
                if not error.code.is_negative:
                    loop = asyncio.get_running_loop()
                    self._avoid_until[bookie] = loop.time() + AVOID_S
        absent = all(error.code.is_negative for error in failures.values())
        # The ensemble of an open ledger may have changed since its metadata was read.
        if absent and self.metadata.is_closed:
            raise FencelogError(
                ErrorCode.NO_SUCH_ENTRY,
                f"ledger {self.metadata.ledger_id} has no entry {first}",
                ledger_id=self.metadata.ledger_id,
                entry_id=first,
            )
        raise _unknown(self.metadata.ledger_id, f"entry {first}", failures)

    async def read_last(self) -> Entry | None:
        """The last confirmed entry, None if the ledger is empty."""
        last = self.last_confirmed
        if last == NO_ENTRY:
            return None
        (entry,) = await self.read(last, last)
        return entry

    async def _read_from(
        self, client: BookieClient, first: int, last: int, *, max_bytes: int
    ) -> list[Entry]:
        ledger_id = self.metadata.ledger_id
        reply = await client.read(
            ledger_id, first, max_entries=last - first + 1, max_bytes=max_bytes
        )
        entries = verified_reply(
            reply, self.metadata, first, bookie_id=client.bookie_id, key=self._key
        )
        self.confirm(reply.lac)
        return entries[: last - first + 1]

    def _candidates(self, entry_id: int) -> list[str]:
        """The write set, spread over ledgers, with bookies that failed lately at the end."""
        metadata = self.metadata
        ensemble = metadata.fragment_of(entry_id).bookies
        members = write_set(
            entry_id, ensemble_size=metadata.ensemble_size, write_quorum=metadata.write_quorum
        )
        turn = metadata.ledger_id % len(members)
        order = [ensemble[index] for index in sorted(members)]
        order = order[turn:] + order[:turn]
        if self._avoid_until:
            now = asyncio.get_running_loop().time()
            order.sort(key=lambda bookie: self._avoid_until.get(bookie, 0.0) > now)
        return order

    def _fragment_end(self, entry_id: int) -> int:
        """The last entry id that lies on the same ensemble as ``entry_id``."""
        for fragment in self.metadata.fragments:
            if fragment.first_entry_id > entry_id:
                return fragment.first_entry_id - 1
        return 2**63 - 1


def verified_reply(
    reply: ReadReply, metadata: LedgerMetadata, first: int, *, bookie_id: str, key: bytes
) -> list[Entry]:
    """The entries of a read reply, proved to be the ones asked for. Raises CORRUPT (= unknown)."""
    try:
        header = verify_run(reply.run)
    except ProtocolError as error:
        raise FencelogError(
            ErrorCode.CORRUPT, f"reply of bookie {bookie_id}: {error.detail}"
        ) from error
    if (header.ledger_id, header.first_entry_id) != (metadata.ledger_id, first):
        raise FencelogError(
            ErrorCode.CORRUPT,
            f"bookie {bookie_id} was asked for entry {first} of ledger {metadata.ledger_id} and "
            f"answered with {header.first_entry_id} of {header.ledger_id}",
        )
    return verify_entries(reply.run, digest_type=metadata.digest_type, key=key)


def _unknown(ledger_id: int, what: str, failures: dict[str, FencelogError]) -> FencelogError:
    reasons = "; ".join(f"{bookie}: {error}" for bookie, error in sorted(failures.items()))
    return FencelogError(
        ErrorCode.READ_UNKNOWN,
        f"{what} of ledger {ledger_id} cannot be read now ({reasons})",
        ledger_id=ledger_id,
        missing_bookies=sorted(failures),
    )
