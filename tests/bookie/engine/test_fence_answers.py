"""The answer to FENCE: that of a fencing LAC read, and of the reads that would follow."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.server.read_requests import read_request_of
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import slice_run
from fencelog.ledgers.limits import FENCE_READ_BYTES
from fencelog.ledgers.rpc.bookie_port import FenceAnswer
from fencelog.ledgers.rpc.fences import decode_answers, encode_fences
from fencelog.ledgers.rpc.handshake import FEATURES
from fencelog.ledgers.rpc.wire import Frame, Op
from tests.support.bookie_stage import OpenBookie, Requests


async def asked(bookie: Bookie, *ledgers: tuple[int, int]) -> list[FenceAnswer | FencelogError]:
    """Ask as a connection does, that fences first."""
    body = encode_fences(ledgers)
    request = read_request_of(bookie, Frame(Op.FENCE, 0, 0, 1, body), FEATURES)
    for ledger_id in request.fences:
        bookie.fence(ledger_id)
    parts, _ = await request.answer()
    return list(decode_answers(b"".join(parts), len(ledgers), bookie.bookie_id))


async def test_the_end_of_a_ledger_comes_with_its_fence(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 3, lac=-1))
    await requests.add(bookie, requests.run(1, 3, 2, lac=2))
    whole = requests.run(1, 0, 3, lac=-1), requests.run(1, 3, 2, lac=2)
    (told,) = await asked(bookie, (1, -1))
    assert isinstance(told, FenceAnswer)
    assert (told.lac, told.absent) == (2, 5)
    assert slice_run(told.run, 2, 2) == slice_run(whole[0], 2, 2)
    assert slice_run(told.run, 3, 4) == whole[1]
    refused = await requests.add(bookie, requests.run(1, 5, lac=4))
    assert refused is not None
    assert refused.code is ErrorCode.LEDGER_FENCED


async def test_a_higher_start_may_be_missing(open_bookie: OpenBookie, requests: Requests) -> None:
    """The entry before the last fragment is on other bookies."""
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 7, 2, lac=5))
    (told,) = await asked(bookie, (1, 6))
    assert told == FenceAnswer(5, requests.run(1, 7, 2, lac=5), 9)
    assert await asked(bookie, (1, 8)) == [
        FenceAnswer(5, slice_run(requests.run(1, 7, 2, lac=5), 8, 8), 9)
    ]
    assert await asked(bookie, (1, 20)) == [FenceAnswer(5, b"", 21)]


async def test_ledgers_that_are_not_known_are_fenced(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(3, 0, lac=-1))
    assert await asked(bookie, (2, -1), (3, -1), (4, 7)) == [
        FenceAnswer(-1, b"", 0),
        FenceAnswer(-1, requests.run(3, 0, lac=-1), 1),
        FenceAnswer(-1, b"", 8),
    ]
    for ledger_id in (2, 3, 4):
        refused = await requests.add(bookie, requests.run(ledger_id, 9))
        assert refused is not None
        assert refused.code is ErrorCode.LEDGER_FENCED


async def test_in_limbo_nothing_is_missing(open_bookie: OpenBookie, requests: Requests) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 2, lac=-1))
    await requests.write_lac(bookie, 1, 0)
    for ledger_id in (1, 2):
        bookie.fence_forgotten(ledger_id)
    await bookie.forgotten_are_fenced()
    known, unknown = await asked(bookie, (1, -1), (2, -1))
    assert known == FenceAnswer(0, requests.run(1, 0, 2, lac=-1), None)
    assert isinstance(unknown, FencelogError)
    assert unknown.code is ErrorCode.LEDGER_IN_LIMBO


async def test_a_deleted_ledger_is_not_there(open_bookie: OpenBookie, requests: Requests) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, lac=-1))
    await bookie.shard(1).remove(1, deleted=True)
    (told,) = await asked(bookie, (1, -1))
    assert isinstance(told, FencelogError)
    assert told.code is ErrorCode.NO_SUCH_LEDGER


async def test_large_entries_are_read_by_themselves(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, lac=-1))
    await requests.add(bookie, requests.run(1, 1, lac=-1, size=FENCE_READ_BYTES))
    await requests.add(bookie, requests.run(1, 2, lac=-1))
    assert await asked(bookie, (1, -1)) == [FenceAnswer(-1, requests.run(1, 0, lac=-1), None)]
    assert await asked(bookie, (1, 0)) == [FenceAnswer(-1, requests.run(1, 0, lac=-1), None)]


async def test_the_fence_takes_effect_before_the_answer(
    open_bookie: OpenBookie, requests: Requests
) -> None:
    bookie = await open_bookie()
    body = encode_fences([(1, -1)])
    request = read_request_of(bookie, Frame(Op.FENCE, 0, 0, 1, body), FEATURES)
    assert list(request.fences) == [1]
    fencing = asyncio.get_running_loop().create_task(bookie.fence_and_read(1, -1))
    await asyncio.sleep(0)
    adding = requests.add(bookie, requests.run(1, 0))
    refused = await adding
    assert refused is not None
    assert refused.code is ErrorCode.LEDGER_FENCED
    assert await fencing == FenceAnswer(-1, b"", 0)


@pytest.mark.parametrize("features", [frozenset(), FEATURES - {"fence"}])
async def test_fence_has_to_be_agreed_on(open_bookie: OpenBookie, features: frozenset[str]) -> None:
    bookie = await open_bookie()
    with pytest.raises(FencelogError):
        read_request_of(bookie, Frame(Op.FENCE, 0, 0, 1, encode_fences([(1, -1)])), features)
