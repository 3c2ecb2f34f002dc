"""One bookie as a ledger client sees it, over TCP or embedded in the same process.

``ledgers.rpc.bookie_client.TcpBookieClient`` and ``bookie.local.LocalBookieClient`` implement it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.availability import Range
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import Buffer, Run

AddCallback = Callable[[FencelogError | None], None]

AddToken = Any
"""The name of one of many adds, or LACs, in its answer, with a meaning for the caller alone."""

AddsCallback = Callable[[Sequence[AddToken], FencelogError | None], None]
"""The callback for many adds, or LACs: it gets the tokens of those that have this outcome."""

Place = tuple[int, int]
"""The offset and the size of a run."""

LedgerLac = tuple[int, int]
"""A ledger, and a LAC of it."""

NO_LAC = -1
"""The LAC of a ledger of which no entry is known to be acknowledged."""

DEFAULT_RACK = "default"
"""The rack of a bookie that does not name one."""


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """The contents of a bookie's registration. ``incarnation`` is empty when it is not known: no
    running bookie has that one."""

    bookie_id: str
    incarnation: str = ""
    rack: str = DEFAULT_RACK
    free_bytes: int = 0
    """The free space on its disks; 0: not stated."""
    is_read_only: bool = False
    is_full: bool = False
    """Tells whether it is read-only because its disks have no space for adds."""
    total_bytes: int = 0
    """The size of the disk that has so little free space; 0: not stated."""
    started_us: int = 0
    """The start of its process, in µs since 1970 UTC by its clock; 0: not stated. An incarnation
    outlives processes."""


@dataclass(frozen=True, slots=True)
class ReadReply:
    """The reply to a read. ``lac``: as far as this bookie knows (-1: none); ``run`` begins with the
    requested entry."""

    lac: int
    run: Buffer
    places: Sequence[Place] = ()
    """The places of adjacent runs in ``run``, if it is a part of a file: whole as they were stored.
    The first one holds the requested entry, the last one may go on behind those that were asked
    for."""


@dataclass(frozen=True, slots=True)
class FenceAnswer:
    """The end of a ledger as a bookie tells it that has fenced the ledger: its LAC; ``run``,
    unverified, the entries that it holds from there on, as far as they are small (empty: none is
    told); and an entry that it certainly does not hold, if it tells one."""

    lac: int
    run: bytes = b""
    absent: int | None = None


class BookieClient(Protocol):
    """The port to one bookie, which handles requests in the order of the calls (FIFO per
    client)."""

    @property
    def bookie_id(self) -> str: ...

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        """Store a run durably. ``on_reply`` is called exactly once, on the event loop, later: None
        = durable on this bookie; otherwise LEDGER_FENCED, BOOKIE_UNAVAILABLE (never sent),
        REQUEST_TIMEOUT (unknown), OVERLOADED, READ_ONLY, STORAGE_FAILED, ….

        A regular add names the incarnation that the bookie had when it joined the writer's
        ensemble; a bookie that now has another never receives it: WRONG_INCARNATION (PROTOCOL.md
        rule 10). A recovery add of a recoverer goes to any incarnation: None; that of a replication
        worker to one (rule 11).

        Never raises and never calls back from within the call.
        """

    def add_many(
        self,
        runs: Sequence[Run],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        """Store runs of any ledgers, in this order, as regular adds; ``tokens[i]`` stands for
        ``runs[i]``. Each ends as it would by itself in ``add``.

        ``on_replies(tokens, error)`` is called once or more, on the event loop, later: each token
        is in exactly one call. Neither side changes the sequences afterwards.

        Never raises and never calls back from within the call.
        """

    def write_lacs(
        self,
        lacs: Sequence[LedgerLac],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        """Store the LACs of idle writers durably; ``tokens[i]`` stands for ``lacs[i]``. Each ends
        by itself, and is answered as adds are in ``add_many``; the protocol's safety does not
        depend on them."""

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        """Read consecutive entries from ``first_entry_id`` on that this bookie holds, at least one.

        With ``fence`` the ledger is durably fenced before any reply. Raises FencelogError:
        NO_SUCH_ENTRY / NO_SUCH_LEDGER are explicit negatives from intact storage; every other code
        means unknown. Entries are unverified: the caller checks their digests.
        """

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> Sequence[Buffer]:
        """Read entries of several ranges, at most MAX_READ_RANGES, ascending and apart: runs of
        entries that this bookie holds, ascending, each within a range, with at least one entry.
        Nothing follows from an entry that is not among them.

        Raises FencelogError if it found none: as ``read`` of the first one; UNSUPPORTED_VERSION: an
        older bookie, which was not asked. Entries are unverified.
        """

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        """Return the highest LAC that this bookie has seen for the ledger (-1: none).

        With ``fence`` an unknown ledger is created and fenced (rule 6), so NO_SUCH_LEDGER is raised
        only without it. With ``wait_ms`` (long poll, at most MAX_LAC_WAIT_MS) the answer comes when
        the LAC is greater than ``above``, the ledger is fenced, or that time is over. Raises
        FencelogError.
        """

    def fence_and_read(self, ledger_id: int, above: int) -> asyncio.Future[FenceAnswer]:
        """Fence a ledger, and read its LAC and what is there at its end, in one request: the entry
        at the LAC, or at ``above`` if that is higher, and those that follow. Requests of one turn
        of the loop are sent together, and those with many others in flight a little later: behind
        requests that were made after them.

        The future gives the same as ``read_lac`` with ``fence``, and what ``read`` gives after it;
        from a bookie that does not know this request the LAC alone. Raises FencelogError as
        ``read_lac``. The caller may cancel the future.
        """

    async def list_entries(
        self, ledger_id: int, from_entry: int = 0, *, incarnation: str | None = None
    ) -> EntryList:
        """List the entries of a ledger that this bookie has, durably, from ``from_entry`` on,
        according to its index and its cache: no entry is read (BP-34). Ask again from
        ``next_entry`` until it is None.

        ``incarnation``: the only one whose answer counts, as for ``add``. Raises FencelogError:
        NO_SUCH_LEDGER is an explicit negative; UNSUPPORTED_VERSION: an older bookie, which was not
        asked; WRONG_INCARNATION; every other code means unknown. The absence of an entry from
        the list is a negative for it, unless the list says that the ledger is in limbo.
        """

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an operator's request to a running bookie: ``{"do": verb, …}``
        (bookie/engine/admin.py). Request and answer are JSON objects of at most MAX_ADMIN_BYTES.

        Raises FencelogError: BAD_REQUEST for a verb or an argument that it does not know;
        REQUEST_TIMEOUT, INTERNAL, STORAGE_FAILED: it may have taken effect.
        """

    async def close(self) -> None: ...


class SingleAdds(ABC):
    """The base of clients that carry out ``add_many`` as single adds, each answered by itself."""

    @abstractmethod
    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        """Store a run durably: see ``BookieClient.add``."""

    def add_many(
        self,
        runs: Sequence[Run],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        for run, token in zip(runs, tokens, strict=True):
            on_reply = partial(on_replies, (token,))
            self.add(run.data, recovery=False, incarnation=incarnation, on_reply=on_reply)


class BookieDirectory(Protocol):
    """The port to the bookies of a cluster. Implemented over the metadata store; tests pass a fixed
    table."""

    def client(self, bookie_id: str) -> BookieClient:
        """Return the client of a bookie; it connects when first used. Never raises: a bookie that
        is not registered answers BOOKIE_UNAVAILABLE."""

    def available(self) -> list[str]:
        """Return the ids of the bookies that are registered now and accept regular adds, sorted."""

    def read_only(self) -> list[str]:
        """Return the registered bookies that take no adds, sorted."""

    def describe(self, bookie_id: str) -> BookieInfo:
        """Return the contents of the bookie's last registration; for an unknown bookie nothing but
        its id."""
