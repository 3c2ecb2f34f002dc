"""The client of a bookie that may be on the same machine: it reads entries from the bookie's files
where it can open them, and asks for the bytes where it cannot.

What a file holds is verified by the reader as what a socket brings: each entry has its digest.
"""

from __future__ import annotations

import asyncio

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.limits import BOOKIE_TIMEOUT_MS, MAX_PLACED_BYTES, MAX_READ_BYTES
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import ReadReply
from fencelog.ledgers.rpc.handshake import PLACES
from fencelog.ledgers.rpc.places import (
    FilesOfBookies,
    PlacedRuns,
    decode_places,
    end_of_runs,
)
from fencelog.ledgers.rpc.wire import READ_BODY, Flag, Op

_PLACES = int(Flag.PLACES)  # with a plain number, ``&`` makes no Flag of the result

_Ahead = tuple[int, int, int, PlacedRuns]
"""Places that were named and not read yet: their ledger, the entry that they begin with, its LAC at
that time, and where they are."""


class LocalReadsClient(TcpBookieClient):
    """A ``TcpBookieClient`` whose reads may be answered with places in ``files``."""

    def __init__(
        self,
        bookie_id: str,
        address: str,
        files: FilesOfBookies,
        *,
        timeout_ms: int = BOOKIE_TIMEOUT_MS,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(bookie_id, address, timeout_ms=timeout_ms, credentials=credentials)
        self._files = files
        self._timeout_s = timeout_ms / 1000
        self._ahead: _Ahead | None = None

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        if not fence and self._files.may_have(self.bookie_id):
            ahead, self._ahead = self._ahead, None
            if ahead is not None and ahead[:2] == (ledger_id, first_entry_id):
                reply = await self._from_file(*ahead, max_bytes)
                if reply is not None:
                    return reply
            # Places may be named of more than is read at a time.
            most = MAX_PLACED_BYTES if max_bytes == MAX_READ_BYTES else max_bytes
            body = READ_BODY.pack(ledger_id, first_entry_id, max_entries, most)
            reply = await self._read_placed(ledger_id, first_entry_id, body, max_bytes)
            if reply is not None:
                return reply
        return await super().read(
            ledger_id, first_entry_id, max_entries=max_entries, max_bytes=max_bytes, fence=fence
        )

    async def _read_placed(
        self, ledger_id: int, first: int, body: bytes, max_bytes: int
    ) -> ReadReply | None:
        """Return the entries from a file, or as the bookie sends them; None: it has to be asked for
        the bytes. Raises FencelogError: the answer to the read; CORRUPT."""
        await self._link.connect()
        if PLACES not in self._link.features:
            return None
        answer = await self._ask(Op.READ, body, flags=Flag.PLACES)
        if not answer.flags & _PLACES:
            return self._entries_of(answer)
        try:
            lac, found = decode_places(answer.body)
        except ProtocolError as error:
            raise self._corrupt(error.detail, ledger_id) from error
        return await self._from_file(ledger_id, first, lac, found, max_bytes)

    async def _from_file(
        self, ledger_id: int, first: int, lac: int, found: PlacedRuns, max_bytes: int
    ) -> ReadReply | None:
        """Return entries from the first of the places, and keep the rest for the next read; None:
        the file does not have them."""
        wanted, rest = found.split(max_bytes)
        try:
            async with asyncio.timeout(self._timeout_s):
                data = await self._files.read(self.bookie_id, wanted)
        except TimeoutError:
            # A disk that does not answer: requests to the bookie have a time limit.
            self._files.give_up(self.bookie_id)
            return None
        if data is None:
            return None
        following = end_of_runs(wanted.in_memory, data, ledger_id, first)
        if following is None:
            # Damage, or a copy of the file: the bookie reads its own, and says which it is.
            self._files.give_up(self.bookie_id)
            return None
        if rest.places:
            self._ahead = (ledger_id, following, lac, rest)
        return ReadReply(lac, data, wanted.in_memory)
