"""A bookie is started on an image, and what it was known to hold is compared with what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar
from zlib import crc32

from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.crash.client import Client, Note
from tests.crash.disk import CrashDisk
from tests.crash.loop import run
from tests.crash.promises import (
    Add,
    Fence,
    Knowledge,
    Lac,
    Ledger,
    Mark,
    Removal,
    entries_of,
    entry,
    run_of,
)

T = TypeVar("T")

_MANY = 4096
_ALL_BYTES = 1 << 22
FRESH_LEDGERS = (70, 71)
"""The ledgers that are new in the second life."""


class Broken(Exception):
    """A promise was broken; says which."""


def live_on(
    disk: CrashDisk, knowledge: Knowledge, config: BookieConfig, life: str
) -> list[tuple[int, Mark]]:
    """Start a bookie on what a crash left, look at all it says, use it, close it and look again.

    Returns the marks of this life, each with the number of effects before it; ``knowledge`` has
    taken them. Raises Broken.
    """
    marks: list[tuple[int, Mark]] = []

    def note(mark: Mark) -> None:
        marks.append((len(disk.effects), mark))
        knowledge.take(mark)

    try:
        run(_live_on(disk, knowledge, config, life, note))
    except FencelogError as error:
        raise Broken(f"refused: {error.code.name} {error.detail}") from error
    except Broken:
        raise
    except Exception as error:  # whatever it is: a healthy disk is no reason for it
        raise Broken(f"failed: {error!r}") from error
    return marks


async def _live_on(
    disk: CrashDisk, knowledge: Knowledge, config: BookieConfig, life: str, note: Note
) -> None:
    served = knowledge.incarnation
    client = await _open(disk, knowledge, config, life, note)
    _check_incarnation(client, knowledge, served)
    await _look(client.bookie, knowledge, note)
    # What nobody changes any more has to come through flush and restart as replay found it: of the
    # ledgers every other one, in each second life the others.
    await _use(client, knowledge, note, left_out=crc32(life.encode()) % 2)
    await client.flush()
    await client.collect(0.9)
    await _look(client.bookie, knowledge, note)
    await client.close()
    client = await _open(disk, knowledge, config, f"{life} again", note)
    await _look(client.bookie, knowledge, note)
    await _use(client, knowledge, note)
    await _look(client.bookie, knowledge, note)
    await client.close()


async def _open(
    disk: CrashDisk, knowledge: Knowledge, config: BookieConfig, life: str, note: Note
) -> Client:
    ledgers = sorted(knowledge.ledgers)
    return await Client.open(disk, config, life=life, note=note, ledgers=ledgers)


def _check_incarnation(client: Client, knowledge: Knowledge, served: str | None) -> None:
    """Check that only a bookie that may have lost data takes a new incarnation, and that it
    must."""
    if served is None:
        return
    if knowledge.is_synced and (client.forgot or client.bookie.incarnation != served):
        raise Broken("it says that it may have forgotten something")
    if client.forgot and client.bookie.incarnation == served:
        raise Broken("it forgot, and serves under the incarnation that made the promises")


async def _look(bookie: Bookie, knowledge: Knowledge, note: Note) -> None:
    """All the bookie says, against all that is known. What it told is a promise from now on."""
    for ledger_id in sorted(knowledge.ledgers):
        look = _Look(bookie, ledger_id, knowledge.ledger(ledger_id))
        await look.take()
        for mark in look.marks(is_synced=knowledge.is_synced):
            note(mark)
    if (code := await _answer(bookie.read_lac(999_999))) is not ErrorCode.NO_SUCH_LEDGER:
        raise Broken(f"of a ledger that nobody sent it says {code}")


class _Look:
    """The check of one ledger."""

    def __init__(self, bookie: Bookie, ledger_id: int, known: Ledger) -> None:
        self._bookie = bookie
        self._id = ledger_id
        self._known = known
        self._found: list[bytes] = []
        self._entries: set[int] = set()
        self._told: int | ErrorCode = -1
        self._removal = ""
        """What was found to have been done to it, of what may have been done."""

    async def take(self) -> None:
        """Check the answers. Raises Broken."""
        known = self._known
        self._told = told = await _answer(self._bookie.read_lac(self._id))
        must = known.required | known.answered
        if told is ErrorCode.NO_SUCH_LEDGER:
            was_never_here = "" in known.removal and not must and known.fenced != {True}
            if "deleted" in known.removal and not was_never_here:
                self._removal = "deleted"
            elif not was_never_here:
                raise self._broken(f"unknown, of which {sorted(must) or 'the fence'} was promised")
            await self._read_all({ErrorCode.NO_SUCH_LEDGER})
            return
        if known.is_gone:
            raise self._broken(f"deleted, and says LAC {told}")
        if "dropped" in known.removal and told is ErrorCode.LEDGER_IN_LIMBO:
            self._removal = "dropped"
        self._check_lac(told)
        negatives = {False: ErrorCode.NO_SUCH_ENTRY, True: ErrorCode.LEDGER_IN_LIMBO}
        await self._read_all({negatives[is_in] for is_in in known.limbo})
        missing = must - self._entries
        if missing and not (self._removal and "" in known.removal):
            raise self._broken(f"entries {sorted(missing)} were acknowledged and are not there")
        listed = await self._bookie.list_entries(self._id)
        if {
            at for first, last in listed.availability.ranges() for at in range(first, last + 1)
        } != (self._entries):
            raise self._broken(f"{sorted(self._entries)} are read, and listed {listed}")
        if listed.in_limbo not in known.limbo:
            raise self._broken(f"the list of entries says {listed.in_limbo} of limbo")

    def marks(self, *, is_synced: bool) -> list[Mark]:
        """Return what it told."""
        marks = [Mark(Add.of(run), True) for run in self._found]
        if self._removal and self._known.removal != {self._removal}:
            marks = [Mark(Removal(self._id, self._removal == "deleted"), True), *marks]
        if is_synced and isinstance(self._told, int):
            marks.append(Mark(Lac(self._id, self._told), True))
        return marks

    def _check_lac(self, told: int | ErrorCode) -> None:
        known = self._known
        least = max(known.lac, known.answered_lac)
        if told is ErrorCode.LEDGER_IN_LIMBO:
            if True not in known.limbo:
                raise self._broken("in limbo, where it never was put")
            if least != -1 and not self._removal:
                raise self._broken(f"LAC {least} was told, and now it knows none")
        elif isinstance(told, ErrorCode):
            raise self._broken(f"asked for its LAC it says {told.name}")
        elif not least <= told <= known.sent_lac:
            raise self._broken(f"LAC {told} is not in {least}..{known.sent_lac}")
        elif told == -1 and known.limbo == {True}:
            raise self._broken("LAC -1, although it is in limbo")

    async def _read_all(self, negatives: set[ErrorCode]) -> None:
        at, end = 0, max(self._known.sent, default=-1) + 1
        while at <= end:
            request = self._bookie.read(self._id, at, max_entries=_MANY, max_bytes=_ALL_BYTES)
            reply = await _answer(request)
            if isinstance(reply, ErrorCode):
                if reply not in negatives:
                    raise self._broken(f"of entry {at} it says {reply.name}, not {negatives}")
                at += 1
                continue
            self._found.append(bytes(reply.run))
            for entry_id, data in entries_of(bytes(reply.run)):
                if entry_id not in self._known.sent or data != entry(self._id, entry_id):
                    raise self._broken(f"entry {entry_id} was never sent so")
                self._entries.add(entry_id)
                at = entry_id + 1

    def _broken(self, what: str) -> Broken:
        return Broken(f"ledger {self._id}: {what}")


async def _use(
    client: Client, knowledge: Knowledge, note: Note, *, left_out: int | None = None
) -> None:
    """Regular and recovery adds to every ledger, or all but the even (0) or odd (1) ones; then
    ledgers that are new."""
    for ledger_id, known in sorted(knowledge.ledgers.items()):
        if ledger_id % 2 == left_out:
            continue
        following = max(known.sent, default=-1) + 1
        code = await _code(client, ledger_id, following, recovery=False)
        if code not in (None, ErrorCode.LEDGER_FENCED) or (code is None) not in _not(known.fenced):
            raise Broken(f"ledger {ledger_id}: fenced {known.fenced}, an add was answered {code}")
        if code is None:
            note(Mark(Add.of(run_of(ledger_id, following)), True))
        else:
            note(Mark(Fence(ledger_id), True))
        again = max(following - 1, 0)
        if "deleted" not in known.removal:
            await client.add(ledger_id, again, 3, recovery=True)
            continue
        code = await _code(client, ledger_id, again, recovery=True)
        if code not in (None, ErrorCode.NO_SUCH_LEDGER) or (code is None and known.is_gone):
            raise Broken(f"ledger {ledger_id}: {known.removal}, a recovery add was answered {code}")
        if code is None:
            note(Mark(Add.of(run_of(ledger_id, again)), True))
        else:
            note(Mark(Removal(ledger_id, True), True))
    for ledger_id in FRESH_LEDGERS:
        if ledger_id not in knowledge.ledgers:
            await client.add(ledger_id, 0, 2)
            await client.fence(ledger_id)


async def _code(client: Client, ledger_id: int, first: int, *, recovery: bool) -> ErrorCode | None:
    answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
    run_ = run_of(ledger_id, first)
    client.bookie.add(run_, recovery=recovery, on_reply=answer.set_result)
    error = await answer
    return None if error is None else error.code


def _not(values: set[bool]) -> set[bool]:
    return {not value for value in values}


async def _answer(request: Awaitable[T]) -> T | ErrorCode:
    try:
        return await request
    except FencelogError as error:
        return error.code
