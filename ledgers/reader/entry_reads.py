"""The reads of entries: ``core`` decides which bookie is asked, this module asks it.

A run of a ledger with E = Qw comes from one bookie in one reply. With striping, neighbouring
entries lie on different bookies, so the entries of a range are read side by side. Every entry's
digest is checked before the entry is returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.format.run import (
    Buffer,
    Entry,
    RunHeader,
    check_index,
    verify_digests,
    verify_entries,
    verify_run,
)
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import MAX_READ_BYTES
from fencelog.ledgers.metrics import LedgerCounts
from fencelog.ledgers.quorum import write_set
from fencelog.ledgers.reader.core import (
    ReadRound,
    ReadVerdict,
    expected_entry_bytes,
    no_such_entry,
    read_unknown,
    side_by_side,
)
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.rpc.bookie_port import BookieDirectory, Place, ReadReply

AVOID_S = 5.0
"""The time for which a bookie that failed a read, or was slow, is asked last."""


class Verify(Protocol):
    """The check of adjacent runs whose indices are valid, by their places in ``data``: what
    ``verify_runs`` does."""

    def __call__(
        self, data: Buffer, places: Sequence[Place], *, digest_type: DigestType, key: bytes
    ) -> Sequence[Entry]: ...


def verify_runs(
    data: Buffer, places: Sequence[Place], *, digest_type: DigestType, key: bytes
) -> Sequence[Entry]:
    """Return the entries of all of them, each verified. Raises CORRUPT naming an entry."""
    view = memoryview(data)
    parts = [
        verify_entries(view[offset : offset + size], digest_type=digest_type, key=key)
        for offset, size in places
    ]
    return parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]


class EntryReads:
    """The reads of one reader. ``learn`` is called with every LAC that a reply carries."""

    def __init__(
        self,
        bookies: BookieDirectory,
        *,
        key: bytes,
        speculative_read_ms: int,
        learn: Callable[[int], None],
        metrics: LedgerCounts,
        verify: Verify = verify_runs,
    ) -> None:
        self._bookies = bookies
        self._metrics = metrics
        self._key = key
        self._speculative_s = speculative_read_ms / 1000
        self._learn = learn
        self._verify = verify
        self._avoid_until: dict[str, float] = {}
        self._entry_bytes = MAX_READ_BYTES // 4

    async def read(
        self, metadata: LedgerMetadata, first: int, last: int, *, max_bytes: int
    ) -> Sequence[Entry]:
        """Read entries ``first`` … of one fragment, in order without a gap, at least one, at most
        up to ``last``. Raises NO_SUCH_ENTRY or READ_UNKNOWN if ``first`` cannot be read."""
        if metadata.ensemble_size == metadata.write_quorum or first == last:
            return await self._run(metadata, first, last, max_bytes=max_bytes)
        return await self._side_by_side(metadata, first, last, max_bytes=max_bytes)

    async def _side_by_side(
        self, metadata: LedgerMetadata, first: int, last: int, *, max_bytes: int
    ) -> Sequence[Entry]:
        """Read each entry from its own write set, several at once, as many as ``max_bytes``
        allows."""
        loop = asyncio.get_running_loop()
        tasks: dict[int, asyncio.Task[Sequence[Entry]]] = {}
        entries: list[Entry] = []
        left, asked = max_bytes, first
        try:
            for entry_id in range(first, last + 1):
                width = side_by_side(entry_bytes=self._entry_bytes, budget_bytes=left)
                for ahead in range(asked, min(last + 1, entry_id + width)):
                    read = self._run(metadata, ahead, ahead, max_bytes=MAX_READ_BYTES)
                    tasks[ahead] = loop.create_task(read)
                    asked = ahead + 1
                try:
                    (entry,) = await tasks[entry_id]
                except FencelogError:
                    if not entries:
                        raise
                    break  # a request from here on gets the error
                size = len(entry.payload)
                self._entry_bytes = expected_entry_bytes(self._entry_bytes, size)
                left -= size
                if entries and left < 0:
                    break
                entries.append(entry)
            return entries
        finally:
            await cancel_all(tasks.values())

    async def _run(
        self, metadata: LedgerMetadata, first: int, last: int, *, max_bytes: int
    ) -> Sequence[Entry]:
        """Read a run from one bookie of the write set of ``first``, falling over to the next."""
        loop = asyncio.get_running_loop()
        round_ = ReadRound(self._candidates(metadata, first), metadata.is_closed)
        tasks: dict[asyncio.Task[Sequence[Entry]], str] = {}

        def ask(bookie_id: str | None) -> None:
            if bookie_id is not None:
                read = self._ask(bookie_id, metadata, first, last, max_bytes)
                tasks[loop.create_task(read)] = bookie_id

        try:
            ask(round_.ask_next())
            while True:
                done, _ = await asyncio.wait(
                    tasks,
                    timeout=self._speculative_s if round_.has_more else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    self._metrics.speculative_reads += round_.has_more
                    ask(round_.overdue())
                for task in [task for task in tasks if task in done]:
                    error = task.exception()
                    if error is None:
                        round_.answer(tasks.pop(task), None)
                        return task.result()
                    if not isinstance(error, FencelogError):
                        raise error
                    round_.answer(tasks.pop(task), error)
                    ask(round_.ask_next())
                if round_.verdict is not ReadVerdict.WAITING:
                    raise _failure(round_, metadata.ledger_id, first)
        finally:
            now = loop.time()
            self._avoid_until.update(dict.fromkeys(round_.unreliable, now + AVOID_S))
            await cancel_all(tasks)

    async def _ask(
        self, bookie_id: str, metadata: LedgerMetadata, first: int, last: int, max_bytes: int
    ) -> Sequence[Entry]:
        count = last - first + 1
        reply = await self._bookies.client(bookie_id).read(
            metadata.ledger_id, first, max_entries=count, max_bytes=max_bytes
        )
        entries = verified_reply(
            reply,
            metadata,
            first,
            bookie_id=bookie_id,
            key=self._key,
            whole=False,
            verify=self._verify,
        )
        self._learn(reply.lac)
        return entries[:count]

    def _candidates(self, metadata: LedgerMetadata, entry_id: int) -> tuple[str, ...]:
        """Return the write set, spread over ledgers, with bookies that failed recently at the
        end."""
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
        return tuple(order)


def _failure(round_: ReadRound, ledger_id: int, entry_id: int) -> FencelogError:
    if round_.verdict is ReadVerdict.ABSENT:
        return no_such_entry(ledger_id, entry_id)
    return read_unknown(ledger_id, f"entry {entry_id}", round_.failed)


def verified_reply(
    reply: ReadReply,
    metadata: LedgerMetadata,
    first: int,
    *,
    bookie_id: str,
    key: bytes,
    whole: bool = True,
    verify: Verify = verify_runs,
) -> Sequence[Entry]:
    """Return the entries of a read reply, proved to be the ones asked for. ``whole``: the run is
    proved as well, for those who keep it. Raises CORRUPT (= unknown)."""
    if whole or not reply.places:
        _check_run(reply, metadata, first, bookie_id, whole=whole)
        places: Sequence[Place] = [(0, len(reply.run))]
        return verify(reply.run, places, digest_type=metadata.digest_type, key=key)
    verified = partial(_verified_places, reply, metadata, first, bookie_id, key, verify)
    try:
        return verified(reply.places)
    except FencelogError:
        if len(reply.places) == 1:
            raise
        # The read of a damaged run behind the first one finds it, as where the bookie reads.
        return verified(reply.places[:1])


def _verified_places(
    reply: ReadReply,
    metadata: LedgerMetadata,
    first: int,
    bookie_id: str,
    key: bytes,
    verify: Verify,
    places: Sequence[Place],
) -> Sequence[Entry]:
    """Return the entries from ``first`` on of adjacent runs, which are whole as a file has them.
    Raises CORRUPT."""
    data, following = memoryview(reply.run), first
    for number, (offset, size) in enumerate(places):
        try:
            header = check_index(data[offset : offset + size])
        except ProtocolError as error:
            raise _wrong_reply(bookie_id, error) from error
        begins = (
            header.first_entry_id <= first if number == 0 else header.first_entry_id == following
        )
        if header.ledger_id != metadata.ledger_id or not begins or header.last_entry_id < following:
            raise _other_entries(bookie_id, metadata, following, header)
        following = header.last_entry_id + 1
    entries = verify(data, places, digest_type=metadata.digest_type, key=key)
    return entries[first - entries[0].entry_id :]


def verify_reply(
    reply: ReadReply, metadata: LedgerMetadata, first: int, *, bookie_id: str, key: bytes
) -> None:
    """Prove that run and entries of a read reply are the ones asked for. Raises CORRUPT (=
    unknown)."""
    _check_run(reply, metadata, first, bookie_id, whole=True)
    verify_digests(reply.run, digest_type=metadata.digest_type, key=key)


def _check_run(
    reply: ReadReply, metadata: LedgerMetadata, first: int, bookie_id: str, *, whole: bool
) -> None:
    try:
        header = verify_run(reply.run) if whole else check_index(reply.run)
    except ProtocolError as error:
        raise _wrong_reply(bookie_id, error) from error
    if (header.ledger_id, header.first_entry_id) != (metadata.ledger_id, first):
        raise _other_entries(bookie_id, metadata, first, header)


def _wrong_reply(bookie_id: str, error: ProtocolError) -> FencelogError:
    return FencelogError(ErrorCode.CORRUPT, f"reply of bookie {bookie_id}: {error.detail}")


def _other_entries(
    bookie_id: str, metadata: LedgerMetadata, first: int, header: RunHeader
) -> FencelogError:
    return FencelogError(
        ErrorCode.CORRUPT,
        f"bookie {bookie_id} was asked for entry {first} of ledger {metadata.ledger_id} and "
        f"answered with {header.first_entry_id} of {header.ledger_id}",
    )
