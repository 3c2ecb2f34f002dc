"""The loop that changes metadata: what it does with lost answers, conflicts and absent stores."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState, new_metadata
from fencelog.ledgers.ledger_metadata.transitions import begin_recovery, closed_by_writer
from fencelog.ledgers.ledger_metadata.update import RETRY_MAX_S, retry_pauses, update_metadata
from fencelog.ledgers.metastore.port import NOT_ASKED, Version
from tests.support.metadata_nodes import later

OPEN = new_metadata(1, ensemble=("a", "b", "c"), write_quorum=3, ack_quorum=2, token="t")
FIRST = Version(7, 0)


class Scripted:
    """``answers`` to the next reads and writes, in order: codes, or None for the truth. A write
    that answers METADATA_UNKNOWN takes effect if ``lands``."""

    def __init__(self) -> None:
        self.value, self.version = OPEN, FIRST
        self.reads: list[ErrorCode | None] = []
        self.writes: list[ErrorCode | None] = []
        self.lands = False
        self.asked: list[str] = []

    async def get(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        self.asked.append("get")
        if self.reads and (code := self.reads.pop(0)) is not None:
            raise FencelogError(code, "scripted")
        return self.value, self.version

    async def update(self, metadata: LedgerMetadata, version: Version) -> Version:
        self.asked.append("set")
        code = self.writes.pop(0) if self.writes else None
        if code is None or (code is ErrorCode.METADATA_UNKNOWN and self.lands):
            if version != self.version:
                raise FencelogError(ErrorCode.METADATA_CONFLICT, "scripted")
            self.value, self.version = metadata, later(version, 1)
        if code is not None:
            raise FencelogError(code, "scripted")
        return self.version


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return what was waited for; nothing takes time."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def note(delay: float) -> None:
        waited.append(delay)
        await sleep(0)

    monkeypatch.setattr("fencelog.ledgers.ledger_metadata.update.asyncio.sleep", note)
    return waited


def test_pauses_begin_with_none_and_have_an_end() -> None:
    pauses = list(islice(retry_pauses(), 12))
    assert pauses[0] == 0
    assert pauses[1:] == sorted(pauses[1:])
    assert 0 < pauses[1] < pauses[2] <= pauses[-1] == RETRY_MAX_S


async def test_a_lost_reply_of_a_change_that_landed_is_read_back() -> None:
    store = Scripted()
    store.writes, store.lands = [ErrorCode.METADATA_UNKNOWN], True
    found, version = await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert (found.state, version) == (LedgerState.IN_RECOVERY, later(FIRST, 1))
    assert store.asked == ["set", "get"]


@pytest.mark.parametrize("code", [ErrorCode.METADATA_UNKNOWN, ErrorCode.METADATA_CONFLICT])
async def test_the_pace_is_bounded_where_writes_fail_for_long(
    pauses: list[float], code: ErrorCode
) -> None:
    store = Scripted()
    store.writes.extend([code] * 20)
    _, version = await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert version == later(FIRST, 1)
    assert store.asked.count("set") == 21
    assert pauses == list(islice(retry_pauses(), 20))


@pytest.mark.parametrize("code", NOT_ASKED)
async def test_once_unknown_it_goes_on_until_it_knows(pauses: list[float], code: ErrorCode) -> None:
    store = Scripted()
    store.writes = [ErrorCode.METADATA_UNKNOWN, code, code]
    store.reads = [*[code] * 5, ErrorCode.METADATA_UNKNOWN]
    found, version = await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert (found, version) == (OPEN.in_recovery(), later(FIRST, 1))
    assert len(pauses) == store.asked.count("get")
    assert pauses[-1] > pauses[1]


async def test_a_write_that_lands_after_the_read_is_found_by_the_next_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Scripted()
    store.writes = [ErrorCode.METADATA_UNKNOWN]
    get = store.get

    async def land_late(ledger_id: int) -> tuple[LedgerMetadata, Version]:
        seen = await get(ledger_id)
        store.value, store.version = OPEN.in_recovery(), later(FIRST, 1)
        return seen

    monkeypatch.setattr(store, "get", land_late)
    found, version = await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert (found.state, version) == (LedgerState.IN_RECOVERY, later(FIRST, 1))
    assert store.asked == ["set", "get", "set", "get"]


@pytest.mark.parametrize("code", NOT_ASKED)
@pytest.mark.parametrize("before", [[], [ErrorCode.METADATA_CONFLICT]])
async def test_a_definite_error_is_raised_where_nothing_was_changed(
    before: list[ErrorCode], code: ErrorCode
) -> None:
    store = Scripted()
    store.writes = [*before, code]
    store.reads = [code]
    with pytest.raises(FencelogError) as caught:
        await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert caught.value.code is code
    assert store.value == OPEN


@pytest.mark.parametrize("script", ["write", "read"])
async def test_a_ledger_that_is_gone_ends_it(script: str) -> None:
    store = Scripted()
    gone = ErrorCode.LEDGER_NOT_FOUND
    store.writes = [gone] if script == "write" else [ErrorCode.METADATA_UNKNOWN]
    store.reads = [gone]
    with pytest.raises(FencelogError) as caught:
        await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert caught.value.code is gone


async def test_what_another_wrote_is_the_base_of_the_next_attempt() -> None:
    store = Scripted()
    store.value, store.version = OPEN.closed(last_entry_id=3, length=9), later(FIRST, 4)
    close = partial(closed_by_writer, last_entry_id=3, length=9)
    assert await update_metadata(store, OPEN, FIRST, close) == (store.value, later(FIRST, 4))
    assert store.asked == ["set", "get"]


REFUSED, UNKNOWN = ErrorCode.BAD_REQUEST, ErrorCode.METADATA_UNKNOWN


@pytest.mark.parametrize(
    ("writes", "reads"), [([UNKNOWN, REFUSED], []), ([UNKNOWN], [ErrorCode.CORRUPT])]
)
async def test_a_refusal_says_nothing_of_an_attempt_whose_answer_was_lost(
    writes: list[ErrorCode | None], reads: list[ErrorCode | None]
) -> None:
    store = Scripted()
    store.writes, store.reads = writes, reads
    with pytest.raises(FencelogError) as caught:
        await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert caught.value.code is UNKNOWN


async def test_after_such_a_refusal_its_own_change_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first read came from a server that lags behind."""
    store = Scripted()
    store.writes, store.lands = [UNKNOWN, REFUSED], True
    get = store.get

    async def lagging(ledger_id: int) -> tuple[LedgerMetadata, Version]:
        latest = await get(ledger_id)
        return latest if store.asked.count("get") > 1 else (OPEN, FIRST)

    monkeypatch.setattr(store, "get", lagging)
    found, version = await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert (found.state, version) == (LedgerState.IN_RECOVERY, later(FIRST, 1))
    assert store.asked == ["set", "get", "set", "get"]


async def test_a_refusal_before_any_doubt_is_one() -> None:
    store = Scripted()
    store.writes = [ErrorCode.METADATA_CONFLICT, REFUSED]
    with pytest.raises(FencelogError) as caught:
        await update_metadata(store, OPEN, FIRST, begin_recovery)
    assert caught.value.code is REFUSED
