"""Changes that are made together with a ledger list, and are too many for one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.store import LedgerChanged, LedgerListLost
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_COMMIT_BYTES
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.port import Change, Create, Set, Version
from tests.support.broker_stage import Stage
from tests.support.metadata_nodes import overwrite

LEDGERS = "/ledgers/0/1", "/ledgers/0/2"
CLOSED = b"closed" * (MAX_COMMIT_BYTES // 10)
"""The metadata of a ledger that is closed: of two of them one fits a commit."""


def opened(epoch: int) -> LedgerList:
    return replace(LedgerList(), epoch=epoch)


async def closes(store: MemoryMetadataStore) -> list[Change]:
    """Create two ledgers; return the changes that close them."""
    return [Set(path, CLOSED, await store.create(path, b"open")) for path in LEDGERS]


async def values(store: MemoryMetadataStore) -> list[bytes]:
    return [(await store.get(path)).value for path in LEDGERS]


def note_commits(
    store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch, noted: list[list[str]]
) -> None:
    commit = store.commit

    async def noting(changes: Sequence[Change]) -> list[Version]:
        noted.append([change.path for change in changes])
        return await commit(changes)

    monkeypatch.setattr(store, "commit", noting)


async def test_what_does_not_fit_is_made_one_by_one_before_the_list(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim of the owner and the new ledger go with the list all the same."""
    store = await stage.store()
    node = await stage.node(store)
    first, second = await closes(store)
    commits: list[list[str]] = []
    note_commits(store, monkeypatch, commits)
    claim = Create("/owners/1-0", b"a", ephemeral=True)
    also = [Create("/ledgers/0/3", b"new", once=True), first, second, claim]
    versions = await node.change(lambda _: opened(7), also=also)
    assert commits == [[LEDGERS[0]], [LEDGERS[1]], ["/ledgers/0/3", "/owners/1-0", node.path]]
    assert versions == [(await store.get(change.path)).version for change in also]
    assert await values(store) == [CLOSED, CLOSED]
    assert (await stage.node()).ledger_list.epoch == 7


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_change_whose_answer_is_lost_is_found_to_be_made(stage: Stage, lost: int) -> None:
    store = await stage.store()
    node = await stage.node(store)
    also = await closes(store)
    store.lose_replies(lost)
    versions = await node.change(lambda _: opened(7), also=also)
    assert await values(store) == [CLOSED, CLOSED]
    assert versions == [(await store.get(path)).version for path in LEDGERS]
    await node.change(lambda ledger_list: replace(ledger_list, epoch=8))
    assert (await stage.node()).ledger_list.epoch == 8


UNKNOWN, REFUSED = ErrorCode.METADATA_UNKNOWN, ErrorCode.BAD_REQUEST


def fail_commits(
    store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch, *codes: ErrorCode | None
) -> None:
    """Fail the next commits by these codes, without effect; None: it is made."""
    commit, left = store.commit, iter(codes)

    async def failing(changes: Sequence[Change]) -> list[Version]:
        code = next(left, None)
        if code is not None:
            raise FencelogError(code, "not by this server")
        return await commit(changes)

    monkeypatch.setattr(store, "commit", failing)


async def test_a_refusal_says_nothing_of_an_attempt_whose_answer_was_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await stage.store()
    node = await stage.node(store)
    store.lose_replies(1)
    fail_commits(store, monkeypatch, None, REFUSED)
    assert await node.change(lambda _: opened(7)) is None
    assert node.ledger_list.epoch == (await stage.node()).ledger_list.epoch == 7
    await node.change(lambda _: opened(8))
    assert (await stage.node()).ledger_list.epoch == 8


async def test_nor_does_one_of_a_ledger_that_is_changed_before_the_list(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await stage.store()
    node = await stage.node(store)
    also = await closes(store)
    store.lose_replies(1)
    fail_commits(store, monkeypatch, None, REFUSED)
    versions = await node.change(lambda _: opened(7), also=also)
    assert versions == [(await store.get(path)).version for path in LEDGERS]


async def test_a_refusal_after_an_attempt_that_was_not_made_is_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await stage.store()
    mine, other = await stage.node(store), await stage.node()
    fail_commits(store, monkeypatch, UNKNOWN, REFUSED)
    with pytest.raises(FencelogError, match="not by this server"):
        await mine.change(lambda _: opened(7))
    assert mine.lost is None
    await other.change(lambda _: opened(8))
    fail_commits(store, monkeypatch, UNKNOWN, REFUSED)
    with pytest.raises(LedgerListLost):
        await mine.change(lambda _: opened(7))
    assert (await stage.node()).ledger_list.epoch == 8


async def test_a_ledger_that_another_client_has_changed_leaves_the_list_as_it_is(
    stage: Stage,
) -> None:
    store = await stage.store()
    node = await stage.node(store)
    also = await closes(store)
    await overwrite(store, LEDGERS[1], b"recovered at another end")
    with pytest.raises(LedgerChanged):
        await node.change(lambda _: opened(7), also=also)
    assert await values(store) == [CLOSED, b"recovered at another end"]
    assert (await stage.node()).ledger_list.epoch == 0
    await node.change(lambda _: opened(8))  # it is not lost
    assert (await stage.node()).ledger_list.epoch == 8


async def test_a_deleted_ledger_leaves_the_list_as_it_is(stage: Stage) -> None:
    store = await stage.store()
    node = await stage.node(store)
    also = await closes(store)
    await store.delete(LEDGERS[0], (await store.get(LEDGERS[0])).version)
    with pytest.raises(LedgerChanged):
        await node.change(lambda _: opened(7), also=also)
    assert (await stage.node()).ledger_list.epoch == 0


async def test_of_two_owners_one_changes_the_list(stage: Stage) -> None:
    """Both may close the ledgers, at the end that both have found."""
    store = await stage.store()
    mine, other = await stage.node(store), await stage.node()
    also = await closes(store)
    await other.change(lambda _: opened(7), also=also)
    with pytest.raises(LedgerListLost):
        await mine.change(lambda _: opened(7), also=also)
    assert mine.lost is not None
    assert await values(store) == [CLOSED, CLOSED]


async def test_what_fits_no_commit_by_itself_is_an_error_at_once(stage: Stage) -> None:
    node = await stage.node()
    also = [Create(path, CLOSED) for path in LEDGERS]
    with pytest.raises(FencelogError, match="are allowed in one commit"):
        await node.change(lambda _: opened(7), also=also)
    assert (await stage.node()).ledger_list.epoch == 0
