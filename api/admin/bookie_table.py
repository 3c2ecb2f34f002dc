"""Bookies for people: their registrations, what each says of itself, and has of a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from fencelog.api.admin.autorecovery_routes import LedgerId
from fencelog.api.admin.doctor.limits import ASKED_AT_ONCE
from fencelog.api.http.queries import refuse_query
from fencelog.api.streams.ledger_check import (
    Holding,
    as_far_as_confirmed,
    check_bookie,
    members_of,
)
from fencelog.broker.limits import ADMIN_ANSWER_S
from fencelog.broker.partition.stats.topic_totals import RecentTotals
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

if TYPE_CHECKING:
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin
    from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies

MAX_COMPARED_ENTRIES = 1_000_000
"""The entries of a striped ledger that are compared with the lists of its bookies: the comparison
takes a step for each few of them, and the service waits meanwhile."""


class ListedDirectory(BaseModel):
    """A directory of a bookie, the kinds of data in it, and the space of its disk."""

    path: str
    holds: list[str]
    total_bytes: int
    free_bytes: int


class ListedBookie(BaseModel):
    """A registered bookie. ``read_only_for``: why it takes no entries; ``ledgers`` that it has a
    part of, and those ``in_limbo``, of which it may have lost entries; ``left_bytes`` until it
    takes no entries; ``full_in_s``: until then at the pace of the last hours, null if that is not
    foretold. What only the bookie itself can say is null where it did not answer, see
    ``problem``."""

    bookie_id: str
    address: str | None
    rack: str
    is_read_only: bool
    is_full: bool
    read_only_for: list[str] | None
    ledgers: int | None
    in_limbo: int | None
    left_bytes: int | None
    full_in_s: int | None
    directories: list[ListedDirectory] | None
    problem: str | None


class ListedBookies(BaseModel):
    bookies: list[ListedBookie]


class ListedCopies(BaseModel):
    """The entries that a bookie is to have of a ledger, those that it has, and the first ranges of
    those that it lacks. ``in_limbo``: it may have forgotten what is missing; ``problem``: why it
    did not say, and what is counted is not known."""

    bookie_id: str
    expected: int
    held: int
    missing: list[tuple[int, int]]
    are_more: bool
    in_limbo: bool
    problem: str | None


class LedgerCopies(BaseModel):
    """The copies of a ledger up to an entry (-1: it has none), by the lists of its bookies."""

    ledger_id: int
    last_entry: int
    asked_us: int
    bookies: list[ListedCopies]


def add_bookie_table(
    router: APIRouter, bookies: RegisteredBookies, healing: AutorecoveryAdmin
) -> None:
    """Add the routes to ``router``, which has the prefix ``/v1``."""
    recent = RecentTotals(lambda: _ask_all(bookies))

    @router.get("/admin/bookies", tags=["cluster"])
    async def table_of_bookies(request: Request) -> ListedBookies:
        """List the registered bookies with their racks, directories and disks. Each is asked, and
        answers are up to two seconds old; one that does not answer in time says why."""
        refuse_query(request)
        return await recent.get()

    @router.get("/admin/ledgers/{ledger_id}/copies", tags=["cluster"])
    async def copies_of_ledger(ledger_id: LedgerId, request: Request) -> LedgerCopies:
        """Return what the bookies of a ledger have of it, by their own lists. No entry is read; of
        a ledger that is open, all that is confirmed counts. A bookie that does not answer within
        2 s says why."""
        refuse_query(request)
        metadata = await healing.ledger(ledger_id)
        return await _copies(metadata, bookies, healing.now_us())


async def _copies(found: LedgerMetadata, bookies: RegisteredBookies, asked_us: int) -> LedgerCopies:
    try:
        async with asyncio.timeout(ADMIN_ANSWER_S):
            metadata = await as_far_as_confirmed(found, bookies)
    except TimeoutError:
        raise FencelogError(
            ErrorCode.READ_UNKNOWN,
            f"where the ledger ends is not known within {ADMIN_ANSWER_S:g} s",
        ) from None
    is_striped = metadata.ensemble_size > metadata.write_quorum
    if is_striped and metadata.last_entry_id >= MAX_COMPARED_ENTRIES:
        raise FencelogError(
            ErrorCode.LIMIT_REACHED,
            f"a striped ledger of {metadata.last_entry_id + 1} entries is compared here up to "
            f"{MAX_COMPARED_ENTRIES}; see `fencelog ledger check`",
        )

    async def ask(bookie_id: str) -> ListedCopies:
        holding = Holding(bookie_id)
        try:
            async with asyncio.timeout(ADMIN_ANSWER_S):
                holding = await check_bookie(metadata, bookies, bookie_id)
            problem = None if holding.unknown is None else holding.unknown.detail
        except TimeoutError:
            problem = f"no answer within {ADMIN_ANSWER_S:g} s"
        return ListedCopies(
            bookie_id=bookie_id,
            expected=holding.expected,
            held=holding.held,
            missing=holding.missing,
            are_more=holding.are_more,
            in_limbo=holding.in_limbo,
            problem=problem,
        )

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(bookie_id)) for bookie_id in members_of(metadata)]
    return LedgerCopies(
        ledger_id=metadata.ledger_id,
        last_entry=metadata.last_entry_id,
        asked_us=asked_us,
        bookies=[task.result() for task in asked],
    )


async def _ask_all(bookies: RegisteredBookies) -> ListedBookies:
    turns = asyncio.Semaphore(ASKED_AT_ONCE)
    ids = sorted({*bookies.available(), *bookies.read_only()})

    async def ask(bookie_id: str) -> ListedBookie:
        async with turns:
            return _listed(bookies, bookie_id, await _status(bookies, bookie_id))

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(bookie_id)) for bookie_id in ids]
    return ListedBookies(bookies=[task.result() for task in asked])


async def _status(bookies: RegisteredBookies, bookie_id: str) -> Mapping[str, Any] | str:
    """Return what a bookie says of itself, or why it does not."""
    try:
        async with asyncio.timeout(ADMIN_ANSWER_S):
            return await bookies.client(bookie_id).admin({"do": "status"})
    except TimeoutError:
        return f"no answer within {ADMIN_ANSWER_S:g} s"
    except FencelogError as error:
        return error.detail


def _listed(
    bookies: RegisteredBookies, bookie_id: str, status: Mapping[str, Any] | str
) -> ListedBookie:
    info = bookies.describe(bookie_id)
    said: Mapping[str, Any] = {} if isinstance(status, str) else status
    disk = said.get("disk", {})
    return ListedBookie(
        bookie_id=bookie_id,
        address=bookies.addresses().get(bookie_id),
        rack=info.rack,
        is_read_only=info.is_read_only,
        is_full=info.is_full,
        read_only_for=said.get("read_only_for"),
        ledgers=said.get("ledgers"),
        in_limbo=said.get("ledgers_in_limbo"),
        left_bytes=disk.get("left_bytes"),
        full_in_s=disk.get("full_in_s"),
        directories=said.get("directories"),
        problem=status if isinstance(status, str) else None,
    )
