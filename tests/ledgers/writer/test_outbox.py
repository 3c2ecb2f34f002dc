"""One call for each bookie in a turn, whatever the runs are of; a bug in one writer stays there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Run, build_run, run_of
from fencelog.ledgers.rpc.bookie_port import AddsCallback, AddToken, LedgerLac
from fencelog.ledgers.writer.core import PendingRun, Send
from fencelog.ledgers.writer.outbox import Outbox


class Bookies:
    """Bookies that note what they are handed: the bookie, its incarnation, the ledgers."""

    def __init__(self) -> None:
        self.bookie_id = ""
        self.calls: list[tuple[str, str | None, list[int]]] = []
        self.lacs: list[tuple[str, str | None, list[LedgerLac]]] = []
        self.order: list[str] = []
        self.answers: list[tuple[AddsCallback, Sequence[AddToken]]] = []

    def client(self, bookie_id: str) -> Any:
        self.bookie_id = bookie_id
        return self

    def add_many(
        self,
        runs: Sequence[Run],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        self.calls.append((self.bookie_id, incarnation, [run.header.ledger_id for run in runs]))
        self.order.append("runs")
        self.answers.append((on_replies, tokens))

    def write_lacs(
        self,
        lacs: Sequence[LedgerLac],
        tokens: Sequence[AddToken],
        *,
        incarnation: str | None,
        on_replies: AddsCallback,
    ) -> None:
        self.lacs.append((self.bookie_id, incarnation, list(lacs)))
        self.order.append("LACs")
        self.answers.append((on_replies, tokens))


class Sender:
    """A writer of which only sending is of interest."""

    def __init__(self, outbox: Outbox, ledger_id: int, members: str = "b1 b2") -> None:
        self.outbox = outbox
        self.run = run_of(build_run(ledger_id, 0, [b"x"], lac=-1, length_before=0))
        self.members = members.split()
        self.replies: list[tuple[str, FencelogError | None]] = []

    def flush(self) -> None:
        pending = PendingRun(0, 0, 1, self.run.data, (0, 1))
        sends = [Send(pending, place, name) for place, name in enumerate(self.members)]
        incarnations = {name: f"life of {name}" for name in self.members}
        self.outbox.send(self.run, sends, incarnations, self.on_reply)

    def on_reply(self, send: Send, error: FencelogError | None) -> None:
        self.replies.append((send.bookie_id, error))


@pytest.fixture
def bookies() -> Bookies:
    return Bookies()


@pytest.fixture
def outbox(bookies: Bookies) -> Outbox:
    return Outbox(bookies)  # type: ignore[arg-type]  # has the outbox's methods


async def test_all_that_a_turn_brings_is_one_call_for_each_bookie(
    outbox: Outbox, bookies: Bookies
) -> None:
    senders = [Sender(outbox, 1), Sender(outbox, 2, "b2 b3"), Sender(outbox, 1)]
    for sender in senders:
        outbox.flush_soon(sender.flush)
    assert not bookies.calls
    await asyncio.sleep(0)
    assert bookies.calls == [
        ("b1", "life of b1", [1, 1]),
        ("b2", "life of b2", [1, 2, 1]),
        ("b3", "life of b3", [2]),
    ]
    for on_replies, tokens in bookies.answers:
        on_replies(tokens, None)
    assert [sender.replies for sender in senders] == [
        [("b1", None), ("b2", None)],
        [("b2", None), ("b3", None)],
        [("b1", None), ("b2", None)],
    ]
    await asyncio.sleep(0)
    assert len(bookies.calls) == 3


async def test_what_is_appended_in_a_turn_leaves_in_it(outbox: Outbox, bookies: Bookies) -> None:
    """Whoever asked first, the writers are flushed after all have appended."""
    senders = [Sender(outbox, ledger_id, "b1") for ledger_id in (1, 2, 3)]
    outbox.flush_soon(senders[0].flush)
    for sender in senders[1:]:
        outbox.append_soon(partial(outbox.flush_soon, sender.flush))
    await asyncio.sleep(0)
    assert bookies.calls == [("b1", "life of b1", [1, 2, 3])]
    outbox.append_soon(lambda: outbox.append_soon(senders[0].flush))
    await asyncio.sleep(0)
    assert len(bookies.calls) == 1
    await asyncio.sleep(0)
    assert len(bookies.calls) == 2


async def test_what_is_handed_over_at_once_is_before_what_follows(
    outbox: Outbox, bookies: Bookies
) -> None:
    first, second = Sender(outbox, 1, "b1"), Sender(outbox, 2, "b1")
    first.flush()
    outbox.hand_over()
    second.flush()
    assert bookies.calls == [("b1", "life of b1", [1])]
    await asyncio.sleep(0)
    assert bookies.calls == [("b1", "life of b1", [1]), ("b1", "life of b1", [2])]


async def test_a_bug_in_one_writer_keeps_nothing_from_the_others(
    outbox: Outbox, bookies: Bookies, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reports.append(report))
    wrong, right = Sender(outbox, 1, "b1"), Sender(outbox, 2, "b1")

    def fail(*_: object) -> None:
        raise RuntimeError("bug")

    outbox.append_soon(fail)
    outbox.flush_soon(fail)
    monkeypatch.setattr(wrong, "on_reply", fail)
    for sender in (wrong, right):
        outbox.flush_soon(sender.flush)
    await asyncio.sleep(0)
    assert bookies.calls == [("b1", "life of b1", [1, 2])]
    ((on_replies, tokens),) = bookies.answers
    on_replies(tokens, None)
    assert right.replies == [("b1", None)]
    assert [str(report["exception"]) for report in reports] == ["bug", "bug", "bug"]


async def test_the_lacs_of_a_turn_are_one_call_for_each_bookie_behind_the_runs(
    outbox: Outbox, bookies: Bookies
) -> None:
    replies: list[tuple[int, str, FencelogError | None]] = []

    def note(ledger_id: int, name: str, error: FencelogError | None) -> None:
        replies.append((ledger_id, name, error))

    lives = {name: f"life of {name}" for name in ("b1", "b2", "b3")}
    for ledger_id, members in ((1, "b1 b2"), (2, "b2 b3"), (3, "b1 b2")):
        outbox.send_lac((ledger_id, 7), members.split(), lives, partial(note, ledger_id))
    outbox.flush_soon(Sender(outbox, 9, "b2").flush)
    await asyncio.sleep(0)
    assert bookies.lacs == [
        ("b1", "life of b1", [(1, 7), (3, 7)]),
        ("b2", "life of b2", [(1, 7), (2, 7), (3, 7)]),
        ("b3", "life of b3", [(2, 7)]),
    ]
    assert bookies.order == ["runs", "LACs", "LACs", "LACs"]
    fenced = FencelogError(ErrorCode.LEDGER_FENCED, "")
    on_replies, tokens = bookies.answers[2]
    on_replies(tokens[1:2], fenced)
    on_replies([tokens[0], tokens[2]], None)
    assert replies == [(2, "b2", fenced), (1, "b2", None), (3, "b2", None)]
    await asyncio.sleep(0)
    assert len(bookies.lacs) == 3


async def test_a_lac_is_for_the_incarnation_that_the_writer_chose(
    outbox: Outbox, bookies: Bookies
) -> None:
    """Two writers may have met different ones of a bookie."""
    for ledger_id, incarnation in ((1, "old"), (2, "new"), (3, "old")):
        outbox.send_lac((ledger_id, 0), ["b1"], {"b1": incarnation}, lambda name, error: None)
    outbox.hand_over()
    assert bookies.lacs == [("b1", "old", [(1, 0), (3, 0)]), ("b1", "new", [(2, 0)])]
