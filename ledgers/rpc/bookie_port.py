"""One bookie as a ledger client sees it, over TCP or embedded in the same process.

``ledgers.bookie_client.TcpBookieClient`` and ``bookie.local.LocalBookieClient`` implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.entry_list import EntryList

AddCallback = Callable[[FencelogError | None], None]

NO_LAC = -1
"""No entry of a ledger is known to be acknowledged."""

DEFAULT_RACK = "default"
"""Of a bookie that does not say where it stands."""


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """What a bookie says of itself in its registration. ``incarnation`` is empty when it is not
    known: no running bookie has that one."""

    bookie_id: str
    incarnation: str = ""
    rack: str = DEFAULT_RACK
    free_bytes: int = 0
    """On its disks; 0: it does not say."""
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class ReadReply:
    """``lac`` as far as this bookie knows (-1: none); ``run`` begins with the entry asked for."""

    lac: int
    run: bytes


class BookieClient(Protocol):
    """Requests are handled by the bookie in the order of the calls (FIFO per client)."""

    @property
    def bookie_id(self) -> str: ...

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        """Store a run durably. ``on_reply`` is called exactly once, on the event loop, later:
        None = durable on this bookie; else LEDGER_FENCED, BOOKIE_UNAVAILABLE (never sent),
        REQUEST_TIMEOUT (unknown), OVERLOADED, READ_ONLY, STORAGE_FAILED, ….

        A regular add names the incarnation that the bookie had when it joined the writer's
        ensemble; one that has another by now never gets it: WRONG_INCARNATION (PROTOCOL.md rule
        10). A recovery add goes to whichever is there: None.

        Never raises and never calls back from within the call.
        """

    def write_lac(
        self, ledger_id: int, lac: int, *, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        """Tell the bookie the LAC of an idle writer, durably. Answers as ``add`` does; nothing of
        the protocol's safety depends on it."""

    async def read(
        self,
        ledger_id: int,
        first_entry_id: int,
        *,
        max_entries: int,
        max_bytes: int,
        fence: bool = False,
    ) -> ReadReply:
        """Consecutive entries from ``first_entry_id`` on that this bookie holds, at least one.

        With ``fence`` the ledger is durably fenced before any reply. Raises FencelogError:
        NO_SUCH_ENTRY / NO_SUCH_LEDGER are explicit negatives from intact storage; every other
        code means unknown. Entries come unverified: digests are the caller's to check.
        """

    async def read_lac(
        self, ledger_id: int, *, fence: bool = False, above: int = NO_LAC, wait_ms: int = 0
    ) -> int:
        """The highest LAC this bookie has seen for the ledger (-1: none).

        With ``fence`` an unknown ledger is created and fenced (rule 6), so NO_SUCH_LEDGER comes
        only without. With ``wait_ms`` (long poll, at most MAX_LAC_WAIT_MS) the answer comes when
        the LAC is greater than ``above``, the ledger is fenced, or that time is over. Raises
        FencelogError.
        """

    async def list_entries(self, ledger_id: int, from_entry: int = 0) -> EntryList:
        """Which entries of a ledger this bookie has, from ``from_entry`` on, as its index and its
        cache say: no entry is looked at (BP-34). Ask again from ``next_entry`` until it is None.

        Raises FencelogError: NO_SUCH_LEDGER is an explicit negative; UNSUPPORTED_VERSION: an older
        bookie, which was not asked; every other code means unknown. That an entry is not in the
        list is a negative for it, unless the list says that the ledger is in limbo.
        """

    async def admin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out what an operator asks of a running bookie: ``{"do": verb, …}``
        (bookie/engine/admin.py). Both are JSON objects of at most MAX_ADMIN_BYTES.

        Raises FencelogError: BAD_REQUEST for a verb or an argument that it does not know;
        REQUEST_TIMEOUT, INTERNAL, STORAGE_FAILED: it may have taken effect.
        """

    async def close(self) -> None: ...


class BookieDirectory(Protocol):
    """Finds bookies. Implemented over the metadata store; tests pass a fixed table."""

    def client(self, bookie_id: str) -> BookieClient:
        """The client of a bookie; connects when first used. Never raises: a bookie that is not
        registered answers BOOKIE_UNAVAILABLE."""

    def available(self) -> list[str]:
        """Ids of the bookies that are registered now and take regular adds, sorted."""

    def describe(self, bookie_id: str) -> BookieInfo:
        """What the bookie registered last; of an unknown one nothing but its id."""
