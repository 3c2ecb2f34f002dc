"""The append pipeline alone: grouping, order, limits, and what callers are told."""

from __future__ import annotations

import asyncio

import pytest

from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.append.mode import AppendMode
from fencelog.broker.append.pending import GROUP_BYTES, AppendResult
from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.append.pipeline import (
    ENTRIES_IN_FLIGHT,
    FULL_GROUPS_IN_FLIGHT,
    AppendPipeline,
)
from fencelog.broker.limits import MAX_PARTITION_PENDING_BYTES
from fencelog.broker.read.stored import StoredBatch
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    RANGE_SEQUENCE,
    SequenceRange,
    read_entry_header,
)
from fencelog.ledgers.format.request_context import NO_CONTEXTS, Contexts, RequestContext
from fencelog.ledgers.format.run import Payload, Pieces
from fencelog.ledgers.limits import MAX_ENTRY_BYTES, MAX_KEY_BYTES, MIB
from fencelog.ledgers.record_batch import (
    BatchInfo,
    Message,
    check_batch,
    decode_batch,
    encode_values,
)
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedWriter


class Bench:
    """A pipeline that writes into a scripted ledger which acknowledges on demand."""

    def __init__(
        self, ledgers: ScriptedLedgers, broker_pending: PendingBytes | None = None
    ) -> None:
        self.ledgers = ledgers
        ledgers.auto_ack = False
        self.stored: list[StoredBatch] = []
        self.writer: ScriptedWriter
        self.mode = AppendMode()
        self.clock_us = 1_000
        self.pipeline = AppendPipeline(
            3,
            self.mode,
            tail_offset=0,
            last_publish_us=0,
            now_us=lambda: self.clock_us,
            on_stored=self.stored.extend,
            broker_pending=broker_pending or PendingBytes(),
        )

    async def next_ledger(self) -> ScriptedWriter:
        self.writer = await self.ledgers.create(
            Replication(),
            on_ack=lambda lac: self.pipeline.acknowledged(lac),
            on_failure=lambda error: self.mode.hold(True),
        )
        self.mode.hold(False)
        self.pipeline.start_ledger(self.writer)
        return self.writer

    def batch(self, *values: bytes) -> asyncio.Future[AppendResult]:
        data = encode_values(values)
        return self.pipeline.append_batch(data, check_batch(data))


def values_of(payload: bytes) -> list[bytes]:
    header = read_entry_header(payload)
    return [message.value for message in decode_batch(payload[header.header_bytes :])]


@pytest.fixture
async def bench(ledgers: ScriptedLedgers) -> Bench:
    bench = Bench(ledgers)
    await bench.next_ledger()
    return bench


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_messages_of_one_moment_become_one_entry(bench: Bench) -> None:
    futures = [bench.pipeline.append_message(Message(b"%d" % n)) for n in range(5)]
    await turn()
    assert [values_of(p) for p in bench.writer.payloads] == [[b"0", b"1", b"2", b"3", b"4"]]
    bench.writer.ack(0)
    assert [future.result() for future in futures] == [
        AppendResult(3, offset, 1, 1_000) for offset in range(5)
    ]


async def test_publish_times_do_not_follow_a_clock_that_goes_back(bench: Bench) -> None:
    futures = []
    for clock_us in (5_000, 2_000, 6_000):
        bench.clock_us = clock_us
        futures.append(bench.pipeline.append_message(Message(b"a")))
        await turn()
        bench.writer.ack(len(bench.writer.payloads) - 1)
    assert [future.result().publish_time_us for future in futures] == [5_000, 5_000, 6_000]
    entries = [read_entry_header(payload) for payload in bench.writer.payloads]
    assert [entry.publish_time_us for entry in entries] == [5_000, 5_000, 6_000]


async def test_what_follows_joined_messages_is_not_published_before_them(bench: Bench) -> None:
    bench.pipeline.append_message(Message(b"a"))
    await turn()
    bench.writer.ack(0)
    bench.pipeline.adopt(4, 9_000)
    await bench.next_ledger()
    bench.clock_us = 2_000
    following = bench.pipeline.append_message(Message(b"b"))
    await turn()
    bench.writer.ack(0)
    assert following.result() == AppendResult(3, 5, 1, 9_000)


@pytest.mark.parametrize("last_entry_id", [-1, 0])
async def test_an_offset_is_expected_behind_what_was_given_up(
    last_entry_id: int, bench: Bench
) -> None:
    """It waits until recovery has said whether that is in the log."""
    unknown = FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows")
    given_up = bench.pipeline.append_message(Message(b"a"))
    await turn()
    bench.mode.hold(True)
    bench.pipeline.give_up(FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "none"), unknown)
    assert str(given_up.exception()) == str(unknown)
    expected = bench.pipeline.append_message(Message(b"b"), AppendConditions(if_offset=0))
    bench.pipeline.resolve(last_entry_id)
    await bench.next_ledger()
    await turn()
    if last_entry_id == 0:
        error = expected.exception()
        assert isinstance(error, FencelogError)
        assert error.code is ErrorCode.PRECONDITION_FAILED
    else:
        bench.writer.ack(0)
        assert expected.result().offset == 0


async def test_messages_gather_while_a_group_is_under_way(bench: Bench) -> None:
    for number in range(1 + 20):
        bench.pipeline.append_message(Message(b"%d" % number))
        await turn()
    assert len(bench.writer.payloads) == 1
    bench.writer.ack(0)
    assert len(values_of(bench.writer.payloads[-1])) == 20


async def test_full_groups_do_not_wait_for_one_another(bench: Bench) -> None:
    for _ in range(FULL_GROUPS_IN_FLIGHT + 1):
        bench.pipeline.append_message(Message(bytes(GROUP_BYTES)))
        await turn()
    assert len(bench.writer.payloads) == FULL_GROUPS_IN_FLIGHT
    bench.writer.ack(0)
    assert len(bench.writer.payloads) == FULL_GROUPS_IN_FLIGHT + 1


async def test_so_many_entries_are_in_flight_at_a_time(bench: Bench) -> None:
    for _ in range(ENTRIES_IN_FLIGHT + 2):
        bench.batch(b"a")
    await turn()
    assert len(bench.writer.payloads) == ENTRIES_IN_FLIGHT
    bench.writer.ack(0)
    assert len(bench.writer.payloads) == ENTRIES_IN_FLIGHT + 1


async def test_messages_and_batches_keep_their_order(bench: Bench) -> None:
    first = bench.pipeline.append_message(Message(b"a"))
    second = bench.batch(b"b", b"c")
    third = bench.pipeline.append_message(Message(b"d", key=b"k", headers=(("h", b"v"),)))
    await turn()
    assert [values_of(p) for p in bench.writer.payloads] == [[b"a"], [b"b", b"c"]]
    bench.writer.ack(1)
    assert [values_of(p) for p in bench.writer.payloads[2:]] == [[b"d"]]
    bench.writer.ack(2)
    assert [f.result().offset for f in (first, second, third)] == [0, 1, 3]
    assert second.result().count == 2
    assert [(s.base_offset, s.count) for s in bench.stored] == [(0, 1), (1, 2), (3, 1)]


async def test_entries_carry_their_first_number_within_the_ledger(bench: Bench) -> None:
    for _ in range(2):
        bench.batch(b"a", b"b")
        bench.batch(b"c")
        await turn()
        bench.writer.ack(1)
        numbers = [read_entry_header(p).first_number for p in bench.writer.payloads]
        assert numbers == [0, 2]
        await bench.next_ledger()
    assert [stored.base_offset for stored in bench.stored] == [0, 2, 3, 5]


async def test_an_entry_that_a_ledger_has_not_taken_is_not_counted_in_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has too much in flight; the entry is sent to it later."""

    def full(payload: Payload, contexts: Contexts = NO_CONTEXTS) -> int:
        raise FencelogError(ErrorCode.OVERLOADED, "too much in flight")

    with monkeypatch.context() as patched:
        patched.setattr(bench.writer, "append", full)
        bench.batch(b"a", b"b")
        await turn()
    bench.batch(b"c")
    await turn()
    assert [read_entry_header(p).first_number for p in bench.writer.payloads] == [0, 2]


async def test_a_batch_is_stored_byte_for_byte(bench: Bench) -> None:
    data = encode_values([b"x", b"yy"], codec=1)
    bench.pipeline.append_batch(data, check_batch(data))
    await turn()
    payload = bench.writer.payloads[0]
    assert payload[read_entry_header(payload).header_bytes :] == data


async def test_a_large_batch_is_not_copied_into_an_entry(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Payload] = []
    append = bench.writer.append

    def take(payload: Payload, contexts: Contexts) -> int:
        taken.append(payload)
        return append(payload, contexts)

    monkeypatch.setattr(bench.writer, "append", take)
    data = encode_values([b"x" * MIB])
    numbered = AppendConditions(SequenceRange(0, RANGE_SEQUENCE, sequence=0))
    future = bench.pipeline.append_batch(data, check_batch(data), numbered)
    bench.batch(b"small")
    await turn()
    bench.writer.ack(1)
    assert (await future).offset == 0
    large, small = taken
    assert isinstance(large, Pieces)
    assert large.parts[-1] is data
    assert isinstance(small, bytes)
    (ranges,) = bench.writer.payloads[:1]
    assert read_entry_header(ranges).range_count == 1
    assert ranges[read_entry_header(ranges).header_bytes :] == data


async def test_a_new_ledger_before_the_old_one_is_drained_is_a_mistake(bench: Bench) -> None:
    bench.batch(b"a")
    await turn()
    with pytest.raises(AssertionError, match="before the old one is drained"):
        await bench.next_ledger()


async def test_what_a_ledger_did_not_take_is_sent_first_to_the_next(bench: Bench) -> None:
    futures = [bench.batch(b"%d" % n) for n in range(4)]
    await turn()
    bench.writer.fail(FencelogError(ErrorCode.APPEND_UNKNOWN, "gone"))
    later = bench.pipeline.append_message(Message(b"later"))
    bench.pipeline.resolve(1)
    assert [f.done() for f in (*futures, later)] == [True, True, False, False, False]
    await bench.next_ledger()
    assert [values_of(p) for p in bench.writer.payloads] == [[b"2"], [b"3"], [b"later"]]
    bench.writer.ack(2)
    assert [f.result().offset for f in (*futures, later)] == [0, 1, 2, 3, 4]


async def test_giving_up_tells_apart_what_reached_a_ledger(bench: Bench) -> None:
    handed = [bench.batch(b"%d" % n) for n in range(2)]
    await turn()
    bench.mode.hold(True)
    waiting = [bench.batch(b"w"), bench.pipeline.append_message(Message(b"w"))]
    await turn()
    definite = FencelogError(ErrorCode.NO_OWNER, "lost")
    bench.pipeline.give_up(definite, FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows"))
    errors = [future.exception() for future in (*handed, *waiting)]
    codes = [error.code for error in errors if isinstance(error, FencelogError)]
    assert codes == [ErrorCode.APPEND_UNKNOWN] * 2 + [ErrorCode.NO_OWNER] * 2
    # Every caller gets an exception object of its own.
    assert len(set(map(id, errors))) == 4
    # What recovery finds still counts; what it does not find is never sent again.
    bench.pipeline.resolve(0)
    assert bench.pipeline.tail_offset == 1
    await bench.next_ledger()
    assert bench.writer.payloads == []
    assert bench.pipeline.pending_bytes == 0


async def test_a_caller_that_went_away_hurts_nobody(bench: Bench) -> None:
    gone = bench.pipeline.append_message(Message(b"a"))
    stays = bench.pipeline.append_message(Message(b"b"))
    gone.cancel()
    await turn()
    bench.writer.ack(0)
    assert stays.result().offset == 1


async def test_waiting_bytes_are_bounded_per_partition(bench: Bench) -> None:
    bench.mode.hold(True)
    data = encode_values([b"x" * (1 << 20)])
    info = check_batch(data)
    futures = [bench.pipeline.append_batch(data, info) for _ in range(33)]
    refused = [future for future in futures if future.done()]
    assert len(refused) == len(futures) - MAX_PARTITION_PENDING_BYTES // len(data)
    error = refused[0].exception()
    assert isinstance(error, FencelogError)
    assert error.code is ErrorCode.OVERLOADED
    assert bench.pipeline.pending_bytes <= MAX_PARTITION_PENDING_BYTES
    for future in refused[1:]:
        assert future.exception() is not None


async def test_waiting_bytes_are_bounded_per_broker(ledgers: ScriptedLedgers) -> None:
    shared = PendingBytes(limit=1_000)
    first, second = (Bench(ledgers, broker_pending=shared) for _ in range(2))
    first.pipeline.append_message(Message(b"x" * 800))
    refused = second.pipeline.append_message(Message(b"x" * 800)).exception()
    assert isinstance(refused, FencelogError)
    assert refused.code is ErrorCode.OVERLOADED
    await first.next_ledger()
    first.writer.ack(0)
    assert shared.total == 0
    accepted = second.pipeline.append_message(Message(b"x" * 800))
    assert not accepted.done()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Message(b"x" * (5 << 20)), ErrorCode.PAYLOAD_TOO_LARGE),
        (Message(b"", key=b"k" * (MAX_KEY_BYTES + 1)), ErrorCode.PAYLOAD_TOO_LARGE),
        (Message(b"", headers=(("h", b""),) * 65), ErrorCode.PAYLOAD_TOO_LARGE),
        (Message(b"", headers=(("h", b"x" * 40_000),)), ErrorCode.PAYLOAD_TOO_LARGE),
        (Message(b"", headers=(("\ud800", b""),)), ErrorCode.BAD_REQUEST),
        (Message(b"", event_time=2**63), ErrorCode.BAD_REQUEST),
    ],
)
async def test_a_bad_message_fails_alone(bench: Bench, message: Message, code: ErrorCode) -> None:
    neighbour = bench.pipeline.append_message(Message(b"fine"))
    error = bench.pipeline.append_message(message).exception()
    assert isinstance(error, FencelogError)
    assert error.code is code
    await turn()
    bench.writer.ack(0)
    assert neighbour.result().offset == 0
    assert bench.pipeline.pending_bytes == 0


async def test_a_batch_too_large_for_an_entry_is_refused(bench: Bench) -> None:
    data = bytes(MAX_ENTRY_BYTES)
    error = bench.pipeline.append_batch(data, BatchInfo(1, 0, 0, len(data), 0)).exception()
    assert isinstance(error, FencelogError)
    assert error.code is ErrorCode.PAYLOAD_TOO_LARGE


async def test_links_between_entries_with_ranges_end_with_their_ledger(bench: Bench) -> None:
    found: list[int] = []
    for sequence in range(4):
        if sequence == 2:
            await bench.next_ledger()
        conditions = AppendConditions(SequenceRange(0, RANGE_SEQUENCE, sequence=sequence))
        bench.pipeline.append_message(Message(b"a"), conditions)
        await turn()
        bench.writer.ack(len(bench.writer.payloads) - 1)
        found.append(read_entry_header(bench.writer.payloads[-1]).previous_range_entry)
    assert found == [-1, 0, -1, 0]


async def test_entries_name_the_requests_of_their_appends(bench: Bench) -> None:
    one, two, three = (RequestContext(name) for name in ("one", "two", "three"))
    pipeline = bench.pipeline
    for contexts in ((one,), NO_CONTEXTS, (two,)):
        pipeline.follow(pipeline.append_message(Message(b"x")), contexts)
    pipeline.follow(bench.batch(b"a"), (three,))
    pipeline.append_message(Message(b"y"))
    await asyncio.sleep(0)
    bench.writer.ack(0)
    bench.writer.ack(1)
    assert bench.writer.contexts == [(one, two), (three,), NO_CONTEXTS]


async def test_an_append_without_an_entry_names_no_request(bench: Bench) -> None:
    """Its error, or its answer, is there already; the entry before it belongs to others."""
    pipeline = bench.pipeline
    pipeline.append_message(Message(b"x"))
    refused = pipeline.append_message(Message(b"x", b"k" * (MAX_KEY_BYTES + 1)))
    pipeline.follow(refused, (RequestContext("one"),))
    await asyncio.sleep(0)
    assert bench.writer.contexts == [NO_CONTEXTS]
    assert refused.exception() is not None


async def test_an_entry_that_is_sent_again_names_its_requests_again(bench: Bench) -> None:
    context = (RequestContext("one"),)
    bench.pipeline.follow(bench.batch(b"a"), context)
    await asyncio.sleep(0)
    bench.mode.hold(True)
    bench.pipeline.resolve(-1)
    writer = await bench.next_ledger()
    assert writer.contexts == [context]
