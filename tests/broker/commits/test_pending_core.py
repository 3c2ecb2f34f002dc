"""A ledger of a committer: claimed or withdrawn, whoever comes first, and never both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fencelog.broker.commits.pending_core import claimed, facts_of, withdrawn
from fencelog.broker.ledger_list.ledger_list import Sealed
from fencelog.broker.ledger_list.withdrawal import is_withdrawn
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, KIND_STATE, EntryHeader
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata

MADE = {"log": "t1/0", "committer": "q"}


def ledger(**properties: str) -> LedgerMetadata:
    return new_metadata(
        7,
        ensemble=("b1",),
        write_quorum=1,
        ack_quorum=1,
        token="",
        properties=MADE | properties,
    )


def claim(metadata: LedgerMetadata, epoch: int = 3) -> dict[str, str]:
    return dict(claimed(metadata, log="t1/0", committer="q", epoch=epoch))


def withdraw(metadata: LedgerMetadata, epoch: int = 3) -> dict[str, str] | None:
    found = withdrawn(metadata, log="t1/0", committer="q", epoch=epoch)
    return None if found is None else dict(found)


def test_a_claim_names_the_epoch_of_the_owner_and_is_always_written() -> None:
    assert claim(ledger()) == MADE | {"epoch": "3"}
    assert claim(ledger(epoch="2")) == MADE | {"epoch": "3"}
    assert claim(ledger(epoch="3")) == MADE | {"epoch": "3"}


def test_a_withdrawn_ledger_is_never_claimed() -> None:
    properties = withdraw(ledger(epoch="3"))
    assert properties == MADE | {"epoch": "3", "withdrawn": "yes"}
    gone = replace(ledger(), properties=properties)
    assert is_withdrawn(gone.properties)
    assert not is_withdrawn(ledger().properties)
    assert withdraw(gone) is None
    with pytest.raises(FencelogError) as raised:
        claim(gone)
    assert raised.value.code is ErrorCode.LEDGER_NOT_FOUND


def test_what_a_later_owner_has_claimed_is_left_to_it() -> None:
    steps: tuple[Callable[[LedgerMetadata], object], ...] = (claim, withdraw)
    for step in steps:
        with pytest.raises(FencelogError) as raised:
            step(ledger(epoch="4"))
        assert raised.value.code is ErrorCode.NO_OWNER


@pytest.mark.parametrize("other", [{"log": "t1/1"}, {"log": "t2/0"}, {"committer": "r"}])
def test_ledgers_of_others_are_refused(other: dict[str, str]) -> None:
    steps: tuple[Callable[[LedgerMetadata], object], ...] = (claim, withdraw)
    for step in steps:
        with pytest.raises(FencelogError) as raised:
            step(ledger(**other))
        assert raised.value.code is ErrorCode.BAD_REQUEST


CLOSED = ledger().closed(last_entry_id=1, length=90)
LAST = EntryHeader(KIND_MESSAGES, 32, count=4, first_number=6, publish_time_us=5)


def test_the_facts_are_those_of_the_last_entry() -> None:
    facts = facts_of(CLOSED, LAST, messages=10, now_us=8)
    assert facts == Sealed(entries=2, messages=10, size=90, last_publish_us=0, sealed_us=8)


@pytest.mark.parametrize(
    ("last", "messages"),
    [
        (None, 0),
        (LAST, 9),
        (replace(LAST, kind=KIND_STATE), 10),
        (replace(LAST, range_count=1), 10),
        (replace(LAST, previous_range_entry=0), 10),
    ],
)
def test_a_ledger_that_holds_something_else_is_refused(
    last: EntryHeader | None, messages: int
) -> None:
    with pytest.raises(FencelogError) as raised:
        facts_of(CLOSED, last, messages=messages, now_us=8)
    assert raised.value.code is ErrorCode.BAD_REQUEST
