"""The ledgers that lack copies, as the auditor marks them and replication workers repair them.

One node each, ``/underreplication/ledgers/HI/LO``: the bookies whose copies are missing, why, and
since when. A mark is a hint for a worker to look, never a proof: the worker compares the metadata
of the ledger with the bookies' own lists of entries before it does anything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from dataclasses import astuple, dataclass
from enum import Enum
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import (
    MARKS_PATH,
    ledger_path,
    list_ledgers,
    read_ledgers,
)
from fencelog.ledgers.ledger_metadata.update import retry_pauses
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned
from fencelog.ledgers.metastore.until_known import until_known

OVERTAKEN = (
    ErrorCode.METADATA_CONFLICT,
    ErrorCode.METADATA_EXISTS,
    ErrorCode.METADATA_NOT_FOUND,
)
"""The answers to a change for which another process was faster: read the node again."""

_FORMAT_VERSION = 1


class Cause(Enum):
    """The reason why a bookie's copies of a ledger have to be made elsewhere, or again."""

    LOST_BOOKIE = "lost_bookie"
    """The bookie has been away for longer than the grace time."""
    MISSING_COPIES = "missing_copies"
    """The bookie answers, and lacks entries that the metadata assigns to it."""
    DAMAGED = "damaged"
    """The bookie has copies whose digests do not match."""
    DECOMMISSION = "decommission"
    """The bookie is to leave the cluster."""
    PLACEMENT = "placement"
    """The bookie shares a rack with too many others of a write set."""
    BALANCE = "balance"
    """The bookie is fuller than another one, to which ``moves`` gives its place. It lacks
    nothing."""


@dataclass(frozen=True, slots=True)
class FragmentMove:
    """A move of a bookie's copies of one fragment to ``target``, for a better balance."""

    first_entry_id: int
    bookie_id: str
    target: str


@dataclass(frozen=True, slots=True)
class UnderReplicatedLedger:
    """The mark of a ledger. ``missing``: the bookies whose copies are missing, and the causes;
    ``since_us``: the time of the first mark; ``moves``: those for BALANCE."""

    ledger_id: int
    missing: Mapping[str, frozenset[Cause]]
    since_us: int
    version: Version
    moves: tuple[FragmentMove, ...] = ()

    @property
    def lacking(self) -> dict[str, frozenset[Cause]]:
        """Return the bookies that are marked for another cause than balance, with these causes."""
        others = {b: causes - {Cause.BALANCE} for b, causes in self.missing.items()}
        return {bookie: causes for bookie, causes in others.items() if causes}

    @property
    def is_for_balance(self) -> bool:
        """Tell whether the ledger has all its copies as far as the mark says."""
        return not self.lacking


class UnderReplicatedLedgers:
    """The store of marks."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def mark(
        self, ledger_id: int, *, missing: Collection[str], why: Cause, now_us: int
    ) -> None:
        """Mark a ledger, in addition to what its mark says already; the first ``since_us`` stays.

        The node gets a new version even if it says the same already: a worker that has looked
        before this call cannot remove the mark. It is safe to repeat. Raises FencelogError:
        METADATA_UNAVAILABLE, METADATA_UNKNOWN (the ledger may be marked), CORRUPT.
        """
        causes = dict.fromkeys(missing, frozenset({why}))

        async def add() -> None:
            pauses = retry_pauses()
            while True:
                if await self._add(ledger_id, causes, now_us):
                    return
                await asyncio.sleep(next(pauses))

        await until_known(add)

    async def mark_moves(
        self, ledger_id: int, moves: Collection[FragmentMove], *, now_us: int
    ) -> bool:
        """Mark a ledger for a better balance, unless it is marked already: what lacks copies comes
        first. Tell whether this call has marked it, as far as that is known. Raises FencelogError:
        METADATA_UNAVAILABLE, METADATA_UNKNOWN (the ledger may be marked)."""
        missing = {move.bookie_id: frozenset({Cause.BALANCE}) for move in moves}

        async def create() -> bool:
            try:
                await self._store.create(_path(ledger_id), _encode(missing, now_us, moves))
            except FencelogError as error:
                if error.code is not ErrorCode.METADATA_EXISTS:
                    raise
                return False
            return True

        return await until_known(create)

    async def get(self, ledger_id: int) -> UnderReplicatedLedger | None:
        """Return the mark of a ledger, None if it has none; it may be slightly stale. Raises
        FencelogError: METADATA_UNAVAILABLE, CORRUPT."""
        try:
            node = await self._store.get(_path(ledger_id))
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return None
            raise
        return _decode(ledger_id, node)

    async def list_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all marked ledgers, as ``list_ledgers`` does."""
        async for ledger_id in list_ledgers(self._store, MARKS_PATH):
            yield ledger_id

    async def list(
        self, on_unreadable: Callable[[FencelogError], None] | None = None
    ) -> AsyncGenerator[UnderReplicatedLedger, None]:
        """Yield all marks, as ``read_ledgers`` does: none older than this call. ``on_unreadable``
        gets the error of a mark that cannot be read, and the others are yielded; without it that
        error, CORRUPT, is raised."""

        async def get(ledger_id: int) -> UnderReplicatedLedger | None:
            try:
                return await self.get(ledger_id)
            except FencelogError as error:
                if on_unreadable is None or error.code is not ErrorCode.CORRUPT:
                    raise
                on_unreadable(error)
                return None

        async for mark in read_ledgers(self._store, MARKS_PATH, get):
            yield mark

    async def unmark(self, ledger_id: int, version: Version) -> bool:
        """Remove the mark that was read at this version; tell whether the ledger has no mark now.
        False: it was marked again since. Raises FencelogError: METADATA_UNAVAILABLE,
        METADATA_UNKNOWN (it may have been removed)."""

        async def delete() -> bool:
            try:
                await self._store.delete(_path(ledger_id), version)
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_CONFLICT:
                    return False
                if error.code is not ErrorCode.METADATA_NOT_FOUND:
                    raise
            return True

        return await until_known(delete)

    async def withdraw(self, ledger_id: int, bookie_id: str, why: Cause) -> None:
        """Remove one cause from the mark of a ledger; the mark goes if it says nothing else. A
        ledger that is not marked for it stays as it is. Raises FencelogError:
        METADATA_UNAVAILABLE, METADATA_UNKNOWN (safe to repeat), CORRUPT."""

        async def remove() -> None:
            pauses = retry_pauses()
            while True:
                if await self._remove(ledger_id, bookie_id, why):
                    return
                await asyncio.sleep(next(pauses))

        await until_known(remove)

    async def _remove(self, ledger_id: int, bookie_id: str, why: Cause) -> bool:
        """Tell whether the mark is without the cause; if not, another process was faster."""
        path, old = _path(ledger_id), await self.get(ledger_id)
        if old is None or why not in old.missing.get(bookie_id, ()):
            return True
        missing = {**old.missing, bookie_id: old.missing[bookie_id] - {why}}
        missing = {bookie: causes for bookie, causes in missing.items() if causes}
        try:
            if missing:
                await self._store.set(path, _encode(missing, old.since_us, old.moves), old.version)
            else:
                await self._store.delete(path, old.version)
        except FencelogError as error:
            if error.code not in OVERTAKEN:
                raise
            return False
        return True

    async def _add(
        self, ledger_id: int, causes: Mapping[str, frozenset[Cause]], now_us: int
    ) -> bool:
        """Tell whether the causes were added; if not, another process was faster."""
        path, old = _path(ledger_id), await self.get(ledger_id)
        try:
            if old is None:
                await self._store.create(path, _encode(causes, now_us))
            else:
                missing = _merged(old.missing, causes)
                value = _encode(missing, min(old.since_us, now_us), old.moves)
                await self._store.set(path, value, old.version)
        except FencelogError as error:
            if error.code not in OVERTAKEN:
                raise
            return False
        return True


def _merged(
    first: Mapping[str, frozenset[Cause]], second: Mapping[str, frozenset[Cause]]
) -> dict[str, frozenset[Cause]]:
    none = frozenset[Cause]()
    bookies = sorted(first.keys() | second.keys())
    return {b: first.get(b, none) | second.get(b, none) for b in bookies}


def _path(ledger_id: int) -> str:
    return ledger_path(MARKS_PATH, ledger_id)


def _encode(
    missing: Mapping[str, frozenset[Cause]], since_us: int, moves: Collection[FragmentMove] = ()
) -> bytes:
    fields: dict[str, Any] = {
        "v": _FORMAT_VERSION,
        "missing": {bookie: sorted(c.value for c in missing[bookie]) for bookie in sorted(missing)},
        "since_us": since_us,
    }
    if moves:
        fields["moves"] = [list(astuple(move)) for move in moves]
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(ledger_id: int, node: Versioned) -> UnderReplicatedLedger:
    try:
        fields: Any = json.loads(node.value)
        if fields["v"] != _FORMAT_VERSION:
            raise ValueError(f"version {fields['v']}")
        missing = {
            str(bookie): frozenset(map(Cause, causes))
            for bookie, causes in fields["missing"].items()
        }
        moves = tuple(
            FragmentMove(int(first), str(bookie), str(target))
            for first, bookie, target in fields.get("moves", ())
        )
        since_us = int(fields["since_us"])
        return UnderReplicatedLedger(ledger_id, missing, since_us, node.version, moves)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FencelogError(
            ErrorCode.CORRUPT, f"{_path(ledger_id)} is not valid: {error}"
        ) from error
