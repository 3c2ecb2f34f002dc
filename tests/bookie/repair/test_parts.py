"""Sources that rest, ledgers that wait, a rate that is kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fencelog.bookie.disk.rate_limit import Pace
from fencelog.bookie.repair.backoff import PostponedLedger, WaitingLedgers
from fencelog.bookie.repair.copier import all_lost
from fencelog.bookie.repair.copies import Copies, NoCopy, PutOff
from fencelog.bookie.repair.core import LAST_PAUSE_S, CopyRange, MissingReason
from fencelog.ledgers.errors import ErrorCode, FencelogError, recovery_incomplete
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.ledgers.limits import ARRIVAL_REST_MS, MAX_ADMIN_BYTES, SOURCE_REST_MS
from fencelog.ledgers.rpc.bookie_port import BookieInfo, ReadReply
from tests.bookie.replication.stage import damaged
from tests.support.bookie_stage import Requests

METADATA = new_metadata(
    1, ensemble=("b1", "b2", "b3"), write_quorum=3, ack_quorum=2, token="t"
).closed(last_entry_id=9, length=1000)
COPY_RANGE = CopyRange(3, 7, ("b2", "b3"))


class Peers:
    """A directory of bookies that answer as a test says: a run, or an error."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.started_us: dict[str, int] = {}

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id, "1", started_us=self.started_us.get(bookie_id, 1))

    def client(self, bookie_id: str) -> Any:
        peers = self

        class Client:
            async def read(self, *_: int, **__: Any) -> ReadReply:
                peers.asked.append(bookie_id)
                answer = peers.answers[bookie_id]
                if isinstance(answer, ErrorCode):
                    raise FencelogError(answer, "as told")
                return ReadReply(-1, answer)

            async def read_ranges(self, *_: Any, **__: Any) -> list[bytes]:
                peers.asked.append(bookie_id)
                answer = peers.answers[bookie_id]
                if isinstance(answer, ErrorCode):
                    raise FencelogError(answer, "as told")
                return list(answer)

        return Client()


def copies(peers: Peers) -> Copies:
    return Copies(peers, key=b"", pace=Pace(None))  # type: ignore[arg-type]  # a stub of peers


async def missing_reason(copies: Copies) -> MissingReason:
    with pytest.raises(NoCopy) as caught:
        await copies.run(METADATA, COPY_RANGE, 3)
    return caught.value.reason


async def test_a_copy_is_verified_and_cut_to_what_was_asked(requests: Requests) -> None:
    damaged = bytearray(requests.run(1, 3, 9))
    damaged[-5] ^= 1
    for wrong in (bytes(damaged), requests.run(2, 3, 5), requests.run(1, 4, 5), b"x"):
        peers = Peers(b2=wrong, b3=requests.run(1, 3, 9))
        assert await copies(peers).run(METADATA, COPY_RANGE, 3) == requests.run(1, 3, 5)
        assert peers.asked == ["b2", "b3"]
    assert (
        await missing_reason(copies(Peers(b2=wrong, b3=ErrorCode.NO_SUCH_ENTRY)))
        is MissingReason.UNREACHED
    )


async def test_who_failed_rests_and_who_says_no_does_not(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = Peers(b2=ErrorCode.REQUEST_TIMEOUT, b3=ErrorCode.NO_SUCH_ENTRY)
    source = copies(peers)
    assert await missing_reason(source) is MissingReason.UNREACHED
    assert (
        await missing_reason(source) is MissingReason.UNREACHED
    )  # a bookie that rests is no bookie that says no
    assert peers.asked == ["b2", "b3", "b3"]
    peers.answers["b2"] = requests.run(1, 3)
    source.wake_all()
    assert await source.run(METADATA, COPY_RANGE, 3) == requests.run(1, 3)
    peers.answers["b2"] = ErrorCode.LEDGER_IN_LIMBO
    assert await missing_reason(source) is MissingReason.IN_LIMBO
    assert await missing_reason(source) is MissingReason.IN_LIMBO
    assert peers.asked[-4:] == ["b2", "b3", "b2", "b3"]
    peers.answers["b2"] = ErrorCode.BOOKIE_UNAVAILABLE
    await missing_reason(source)
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(source._loop, "time", lambda: now + SOURCE_REST_MS / 1000 + 1)
    peers.asked.clear()
    await missing_reason(source)
    assert peers.asked == ["b2", "b3"]


async def test_who_has_started_again_is_asked_at_once(requests: Requests) -> None:
    """The only copy may be on the bookie that comes back."""
    run = requests.run(1, 3)
    peers = Peers(b2=ErrorCode.BOOKIE_UNAVAILABLE, b3=ErrorCode.BOOKIE_UNAVAILABLE)
    source = copies(peers)
    assert await missing_reason(source) is MissingReason.UNREACHED
    peers.answers["b2"], peers.started_us["b2"] = run, 2
    assert await source.run(METADATA, COPY_RANGE, 3) == run
    peers.answers["b2"] = [run]
    assert await source.runs(METADATA, PARTS) == [(3, 3, run)]
    assert peers.asked == ["b2", "b3", "b2", "b2"]


async def test_who_starts_again_while_it_is_asked_is_asked_again(requests: Requests) -> None:
    """What the one before did not answer says nothing of the one that is there now."""
    peers = Peers(b2=ErrorCode.REQUEST_TIMEOUT, b3=ErrorCode.NO_SUCH_ENTRY)
    source = copies(peers)
    client = peers.client("b2")

    async def dies(*_: Any, **__: Any) -> Any:
        peers.started_us["b2"] = len(peers.asked) + 2
        peers.asked.append("b2")
        raise FencelogError(ErrorCode.REQUEST_TIMEOUT, "it is gone")

    client.read = client.read_ranges = dies
    others = peers.client
    peers.client = lambda bookie_id: client if bookie_id == "b2" else others(bookie_id)  # type: ignore[method-assign]  # one that dies
    for _ in range(2):
        await missing_reason(source)
        assert await source.runs(METADATA, PARTS) == []
    assert peers.asked == ["b2", "b3", "b2"] * 2


PARTS = [CopyRange(n, n, ("b2", "b3")) for n in (3, 4, 6)]


async def test_of_several_ranges_only_verified_copies_of_what_was_asked_for_count(
    requests: Requests,
) -> None:
    good = [requests.run(1, 3, 2), requests.run(1, 6)]
    torn = bytearray(good[1])
    torn[-5] ^= 1
    for wrong in (
        [good[0], bytes(torn)],
        [good[0], damaged(good[1])],
        [requests.run(2, 3, 2)],
        [requests.run(1, 2, 2)],
        [requests.run(1, 3, 3)],
        [requests.run(1, 5)],
        [good[0], good[0]],
        [good[1], good[0]],
    ):
        peers = Peers(b2=wrong, b3=good)
        source = copies(peers)
        assert await source.runs(METADATA, PARTS) == []
        assert await source.runs(METADATA, PARTS, turn=1) == [(3, 4, good[0]), (6, 6, good[1])]
        assert peers.asked == ["b2", "b3"]


async def test_several_ranges_are_asked_of_who_does_not_rest(requests: Requests) -> None:
    run = requests.run(1, 3)
    peers = Peers(b2=ErrorCode.REQUEST_TIMEOUT, b3=[run])
    source = copies(peers)
    assert await source.runs(METADATA, PARTS) == []
    assert await source.runs(METADATA, PARTS) == [(3, 3, run)]
    assert peers.asked == ["b2", "b3"]
    source.wake_all()
    peers.answers["b2"] = ErrorCode.UNSUPPORTED_VERSION
    assert await source.runs(METADATA, PARTS) == await source.runs(METADATA, PARTS) == []
    assert peers.asked[2:] == ["b2", "b2"]  # it may be asked in another way


async def test_ranges_read_together_are_paced(requests: Requests) -> None:
    took: list[int] = []

    class Counted(Pace):
        async def took(self, size: int) -> None:
            took.append(size)

    runs = [requests.run(1, 3, 2), requests.run(1, 6)]
    source = Copies(Peers(b2=runs), key=b"", pace=Counted(1_000_000))  # type: ignore[arg-type]  # a stub of peers
    assert [run for _, _, run in await source.runs(METADATA, PARTS)] == runs
    assert took == [sum(map(len, runs))]
    assert source.entries_at_once(METADATA) == 8_000 // (100 + 48)


async def test_without_the_key_of_a_ledger_nobody_is_asked(requests: Requests) -> None:
    source = copies(Peers())
    source.check_key(METADATA)
    with pytest.raises(PutOff, match="key of ledger 1"):
        source.check_key(replace(METADATA, digest_type=DigestType.HMAC_SHA256))


async def test_a_pace_lets_no_more_through_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("fencelog.bookie.disk.rate_limit.asyncio.sleep", sleep)
    pace = Pace(1000)
    monkeypatch.setattr(pace._loop, "time", lambda: 7.0)
    for _ in range(3):
        await pace.took(500)
    assert slept == [0.5, 1.0, 1.5]
    await Pace(None).took(1 << 40)
    assert len(slept) == 3


async def test_under_a_rate_what_is_moved_at_a_time_is_small() -> None:
    for bytes_per_s, part in ((1_000_000, 8_000), (1, 1), (1 << 40, 50_000), (None, 50_000)):
        assert Pace(bytes_per_s).part(50_000, 8) == part


def test_a_reason_says_who_is_in_limbo_where_that_is_the_reason() -> None:
    limbo = FencelogError(ErrorCode.LEDGER_IN_LIMBO, "forgot")
    away = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "away")
    no = FencelogError(ErrorCode.NO_SUCH_ENTRY, "no")
    for error, expected in (
        (NoCopy(1, 5, {"b2": no, "b3": no}), ("lost", 5, ())),
        (NoCopy(1, 5, {}), ("lost", 5, ())),
        (NoCopy(1, 5, {"b2": limbo, "b3": no}), ("in_limbo", 5, ("b1", "b2"))),
        (NoCopy(1, 5, {"b2": limbo, "b3": away}), ("unreached", 5, ("b1", "b2"))),
        (
            recovery_incomplete(1, "stuck", {"b1": limbo, "b2": limbo}, entry_id=4),
            ("in_limbo", 4, ("b1", "b2")),
        ),
        (recovery_incomplete(1, "stuck", {"b1": limbo}), ("in_limbo", None, ("b1",))),
        (
            recovery_incomplete(1, "stuck", {"b1": limbo, "b2": away}, entry_id=4),
            ("recovery_incomplete", None, ()),
        ),
        (recovery_incomplete(1, "stuck", {}), ("recovery_incomplete", None, ())),
        (PutOff("open", "not yet"), ("open", None, ())),
        (away, ("bookie_unavailable", None, ())),
    ):
        waiting = PostponedLedger.for_reason(error, "b1")
        assert (waiting.why, waiting.entry_id, waiting.bookies) == expected


def test_all_entries_without_a_copy_are_named_together() -> None:
    away = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "away")
    no = FencelogError(ErrorCode.NO_SUCH_ENTRY, "no")
    unreached = NoCopy(1, 2, {"b2": away})
    lost = [unreached, *(NoCopy(1, n, {"b2": no}) for n in (9, 4, 5, 6, 4))]
    error = all_lost(lost)
    assert (error.entries, error.are_more) == (((4, 6), (9, 9)), False)
    again = all_lost([all_lost([NoCopy(1, 7, {})], are_more=True), error])
    waiting = PostponedLedger.for_reason(again)
    assert (waiting.entry_id, waiting.entries, waiting.are_more) == (4, ((4, 7), (9, 9)), True)
    assert all_lost([unreached]).entries == ((2, 2),)


def test_ledgers_wait_longer_each_time_and_are_told_of_within_limits() -> None:
    ledgers = WaitingLedgers()
    assert ledgers.is_due("limbo", 1, 0.0)
    away = PostponedLedger("bookie_unavailable", "x" * 5000)
    assert ledgers.put_off("limbo", 1, away, 100.0)
    assert not ledgers.is_due("limbo", 1, 100.5)
    assert ledgers.is_due("damage", 1, 100.5)
    assert ledgers.is_due("limbo", 1, 101.0)
    assert not ledgers.put_off("limbo", 1, away, 101.0)  # the same reason as before
    assert not ledgers.is_due("limbo", 1, 102.5)
    assert ledgers.put_off("limbo", 1, PostponedLedger("lost", "gone", 7), 103.0)
    for _ in range(20):
        ledgers.put_off("limbo", 1, away, 200.0)
    assert ledgers.is_due("limbo", 1, 200.0 + LAST_PAUSE_S)
    ledgers.hurry()
    assert ledgers.is_due("limbo", 1, 200.0)
    for ledger_id in range(2, 400):
        ledgers.put_off("limbo", ledger_id, away, 0.0)
    ledgers.put_off("limbo", 400, PostponedLedger("in_limbo", "all", 3, ("b1", "b2")), 0.0)
    ledgers.put_off("damage", 401, PostponedLedger("lost", "gone", 7), 0.0)
    status = ledgers.status()
    counts = [status[f"ledgers_{name}"] for name in ("waiting", "lost", "wholly_in_limbo")]
    assert counts == [401, 1, 1]
    assert [item["ledger_id"] for item in status["waiting"][:3]] == [401, 400, 1]
    assert status["waiting"][0]["for"] == "damage"
    assert len(str(status)) < MAX_ADMIN_BYTES // 2
    ledgers.keep("limbo", {400})
    ledgers.done("damage", 401)
    assert [item["ledger_id"] for item in ledgers.status()["waiting"]] == [400]


def test_what_is_not_shown_is_counted() -> None:
    """Whoever gives up what is lost has to know how much that is."""
    ranges = tuple((first, first + 1) for first in range(0, 200, 10))
    lost = PostponedLedger("lost", "gone", 0, entries=ranges)
    ledgers = WaitingLedgers()
    for ledger_id in range(30):
        ledgers.put_off("limbo", ledger_id, lost, 0.0)
    status = ledgers.status()
    assert (status["ledgers_waiting"], status["ledgers_lost"]) == (30, 30)
    assert len(status["waiting"]) < 30
    first = status["waiting"][0]
    assert len(first["entries"]) < len(ranges)
    assert first["entry_count"] == 40


def test_attempts_that_come_early_are_not_counted() -> None:
    ledgers = WaitingLedgers()
    assert ledgers.counted("limbo", 1) == 0
    counted = []
    for second in range(8):
        ledgers.count("limbo", 1, float(second))
        counted.append(ledgers.counted("limbo", 1))
    assert counted == [1, 2, 2, 3, 3, 3, 3, 4]  # at 0, 1, 3 and 7 s
    assert ledgers.counted("damage", 1) == ledgers.counted("limbo", 2) == 0
    ledgers.count("limbo", 2, 0.0)
    ledgers.keep("limbo", {2})
    assert (ledgers.counted("limbo", 1), ledgers.counted("limbo", 2)) == (0, 1)
    ledgers.done("limbo", 2)
    assert ledgers.counted("limbo", 2) == 0


def test_ledgers_that_wait_are_due_when_a_bookie_registers_but_not_all_the_time() -> None:
    ledgers, away = WaitingLedgers(), PostponedLedger("bookie_unavailable", "away")
    rest_s = ARRIVAL_REST_MS / 1000
    assert not ledgers.notice_arrivals({("b1", 5)}, 0.0)  # nothing waits for it
    for _ in range(9):
        ledgers.put_off("limbo", 1, away, 1.0)
    assert not ledgers.notice_arrivals({("b1", 5)}, 2.0)
    assert not ledgers.notice_arrivals(set(), 3.0)
    assert not ledgers.is_due("limbo", 1, 3.0)
    assert ledgers.notice_arrivals({("b1", 5)}, 4.0)
    assert ledgers.is_due("limbo", 1, 4.0)
    ledgers.put_off("limbo", 1, away, 5.0)
    assert ledgers.status()["waiting"][0]["attempts"] == 10
    assert not ledgers.notice_arrivals({("b1", 6)}, 6.0)  # so soon after the one before
    assert not ledgers.notice_arrivals({("b1", 6)}, 4.0 + rest_s - 0.1)
    assert not ledgers.is_due("limbo", 1, 4.0 + rest_s - 0.1)
    assert ledgers.notice_arrivals({("b1", 6)}, 4.0 + rest_s)
    assert not ledgers.notice_arrivals({("b1", 6)}, 4.0 + 2 * rest_s)
