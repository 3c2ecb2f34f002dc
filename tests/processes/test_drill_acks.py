"""The accounting of bookie drills, and the conditions of a clean report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from fencelog.api.drills.bookie.acks import BookieAcks, OwnCopies, joined, own_copies
from fencelog.api.drills.bookie.bookie import BookieReport
from fencelog.api.drills.bookie.load import BurstLoad
from fencelog.api.drills.harness.account import Account
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.rpc.bookie_port import BookieClient, ReadReply

LEDGER = 7
LOAD = BurstLoad(entry_bytes=20)


def run(first: int, *payloads: bytes, ledger_id: int = LEDGER) -> bytes:
    return build_run(ledger_id, first, payloads, lac=-1, length_before=0)


def entries(first: int, last: int) -> bytes:
    """The run of these entries that a writer of the drill sends."""
    return run(first, *(LOAD.payload(LEDGER, entry_id) for entry_id in range(first, last + 1)))


@dataclass
class Shelf:
    """A bookie that answers a read with the run, or the error, that is kept for its first entry."""

    answers: dict[int, bytes | ErrorCode] = field(default_factory=dict)

    async def read(self, ledger_id: int, first_entry_id: int, **_: object) -> ReadReply:
        answer = self.answers[first_entry_id]
        if isinstance(answer, ErrorCode):
            raise FencelogError(answer, "as the test wants it")
        return ReadReply(-1, answer)


def acknowledged(*runs: bytes) -> BookieAcks:
    acks = BookieAcks()
    for each in runs:
        acks.watch(each, lambda error: None)(None)
    return acks


async def copies(acks: BookieAcks, answers: dict[int, bytes | ErrorCode]) -> OwnCopies:
    return await own_copies(cast(BookieClient, Shelf(answers)), acks, LOAD.payload)


async def test_a_bookie_that_shows_everything_is_clean() -> None:
    acks = acknowledged(entries(0, 3), entries(4, 5), entries(9, 9))
    found = await copies(acks, {0: entries(0, 2), 3: entries(3, 5), 9: entries(9, 9)})
    assert (found, found.is_clean) == (OwnCopies(read=7), True)
    assert acks.acknowledged == 7


@pytest.mark.parametrize("negative", [ErrorCode.NO_SUCH_ENTRY, ErrorCode.NO_SUCH_LEDGER])
async def test_no_such_entry_is_a_wrong_negative(negative: ErrorCode) -> None:
    found = await copies(acknowledged(entries(0, 2)), {0: entries(0, 0), 1: negative, 2: negative})
    assert (found, found.is_clean) == (OwnCopies(read=1, wrong_negatives=2), False)


@pytest.mark.parametrize("error", [ErrorCode.LEDGER_IN_LIMBO, ErrorCode.CORRUPT])
async def test_any_other_error_is_unknown(error: ErrorCode) -> None:
    found = await copies(acknowledged(entries(0, 1)), {0: error, 1: entries(1, 1)})
    assert (found, found.is_clean) == (OwnCopies(read=1, unknown=1), True)


@pytest.mark.parametrize(
    "other",
    [run(0, b"other bytes"), entries(1, 1), run(0, LOAD.payload(LEDGER, 0), ledger_id=8)],
    ids=["bytes", "entry", "ledger"],
)
async def test_another_entry_is_different(other: bytes) -> None:
    found = await copies(acknowledged(entries(0, 0)), {0: other})
    assert (found, found.is_clean) == (OwnCopies(different=1), False)


def test_a_refused_run_is_not_asked_for() -> None:
    told: list[FencelogError | None] = []
    acks = BookieAcks()
    refusal = FencelogError(ErrorCode.READ_ONLY, "full")
    acks.watch(entries(0, 0), told.append)(refusal)
    assert told == [refusal]
    assert (acks.ranges, dict(acks.refusals)) == ({}, {ErrorCode.READ_ONLY: 1})


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([(4, 5), (0, 3)], [(0, 5)]),
        ([(0, 9), (2, 3), (11, 11)], [(0, 9), (11, 11)]),
        ([(0, 3), (2, 7)], [(0, 7)]),
    ],
)
def test_joined(ranges: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    assert joined(ranges) == expected


def report(account: Account, own: OwnCopies) -> BookieReport:
    return BookieReport("kill-bookie", account, own, {"restarts": 1})


def test_a_report_is_clean_only_if_everything_is() -> None:
    assert report(Account(acknowledged=1), OwnCopies(unknown=1)).is_clean
    assert not report(Account(), OwnCopies()).is_clean
    assert not report(Account(acknowledged=1, lost=1), OwnCopies()).is_clean
    assert not report(Account(acknowledged=1), OwnCopies(wrong_negatives=1)).is_clean
    assert not report(Account(acknowledged=1), OwnCopies(different=1)).is_clean
    broken = report(Account(acknowledged=1), OwnCopies())
    broken.expect(True, "it rained")
    was_clean = broken.is_clean
    broken.expect(False, "nothing happened")
    assert (was_clean, broken.is_clean) == (True, False)
    assert broken.as_json()["notes"] == ["nothing happened"]
    assert broken.as_json()["restarts"] == 1
