"""Producers against a naive model: whatever fails and whoever takes over, the log holds each
numbered message once and in order, every answer is true, and a rebuilt table is the same one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from fencelog.broker.append.conditions import FORGOTTEN, AppendConditions, AppendFuture
from fencelog.broker.append.mode import AppendMode
from fencelog.broker.append.pending_bytes import PendingBytes
from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.append.producer_replay import replay_producers
from fencelog.broker.append.producer_table import ProducerTable
from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed, Segment
from fencelog.broker.ledger_list.state_core import Event, PartitionState
from fencelog.ledgers.client import Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange, producer_digest
from fencelog.ledgers.record_batch import check_batch, decode_batch, encode_values
from tests.support.scripted_ledgers import ScriptedLedgers, ScriptedWriter

NAMES = ("a", "b")
GONE = FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, "gone")
UNKNOWN = FencelogError(ErrorCode.APPEND_UNKNOWN, "who knows")


@dataclass
class Sent:
    name: str
    epoch: int
    sequence: int
    count: int
    future: AppendFuture


@dataclass
class World:
    """One partition and its owners, one after another. ``log``: what is certainly in it."""

    ledgers: ScriptedLedgers = field(default_factory=ScriptedLedgers)
    log: list[bytes] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    requests: list[tuple[str, int, int, int]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    ledger_list: LedgerList = field(default_factory=LedgerList)
    pipeline: AppendPipeline = field(init=False)
    writer: ScriptedWriter = field(init=False)
    table: ProducerTable = field(default_factory=ProducerTable)

    async def begin(self) -> None:
        self.ledgers.auto_ack = False
        self.pipeline = AppendPipeline(
            0,
            AppendMode(),
            tail_offset=len(self.log),
            last_publish_us=0,
            now_us=lambda: 1,
            on_stored=lambda stored: self.log.extend(
                message.value for batch in stored for message in decode_batch(bytes(batch.batch))
            ),
            broker_pending=PendingBytes(),
            producers=self.table,
        )
        await self.next_ledger()

    async def next_ledger(self) -> None:
        self.writer = await self.ledgers.create(
            Replication(),
            on_ack=lambda lac: self.pipeline.acknowledged(lac),
            on_failure=lambda error: self.pipeline.mode.hold(True),
        )
        base = len(self.log)
        segment = Segment(self.writer.ledger_id, 0, base)
        self.ledger_list = LedgerList(segments=(*self.ledger_list.segments, segment))
        self.pipeline.mode.hold(False)
        self.pipeline.start_ledger(self.writer)

    def send(self, name: str, epoch: int, sequence: int, count: int) -> None:
        numbers = range(sequence, sequence + count)
        batch = encode_values([f"{name}.{epoch}.{n}".encode() for n in numbers])
        sequences = SequenceRange(
            0, RANGE_SEQUENCE, producer_digest(name.encode()), epoch, sequence
        )
        future = self.pipeline.append_batch(batch, check_batch(batch), AppendConditions(sequences))
        self.sent.append(Sent(name, epoch, sequence, count, future))
        self.requests.append((name, epoch, sequence, count))

    def repeat(self, last: int) -> None:
        """Send the last requests again, whatever has become of them."""
        for request in self.requests[-last:]:
            self.send(*request)

    def next_of(self, name: str, epoch: int) -> int:
        """Return the next sequence number by the log alone."""
        prefix = f"{name}.{epoch}.".encode()
        return sum(value.startswith(prefix) for value in self.log)

    async def settle(self, share: float) -> int:
        """Return the last entry of a ledger that has this share of what it was given."""
        await turns()
        lac = self.writer.lac
        return lac + round(share * (len(self.writer.payloads) - 1 - lac))

    async def acknowledge(self, share: float) -> None:
        self.writer.ack(await self.settle(share))
        await turns()

    async def fail_ledger(self, share: float, *, give_up: bool) -> None:
        last = await self.settle(share)
        self.pipeline.mode.hold(True)
        if give_up:
            self.pipeline.give_up(GONE, UNKNOWN)
        self.ledgers.close_at(self.writer, last)
        self.pipeline.resolve(last)
        self.seal(last)
        await self.next_ledger()
        await turns()

    def seal(self, last: int) -> None:
        *sealed, present = self.ledger_list.segments
        messages = len(self.log) - (present.base_offset or 0)
        facts = Sealed(last + 1, messages, 0, 0, 0, has_producers=self.pipeline.has_producers)
        assert self.pipeline.has_producers == (last >= 0)
        present = Segment(present.ledger_id, 0, present.base_offset, facts)
        self.ledger_list = LedgerList(segments=(*sealed, present))

    async def take_over(self, share: float) -> None:
        """Another owner: what recovery finds is acknowledged by nobody, but in the log."""
        last = await self.settle(share)
        self.pipeline.mode.hold(True)
        self.pipeline.give_up(GONE, UNKNOWN)
        self.ledgers.close_at(self.writer, last)
        self.pipeline.resolve(last)  # for the model's log; the next owner learns it by reading
        self.seal(last)
        previous, self.table = self.table, ProducerTable()
        state = PartitionState([self.table])
        for event in json.loads(json.dumps(self.events)):
            state.apply(event)
        await replay_producers(self.ledgers.open, self.ledger_list, {}, self.table)
        assert list(self.table.snapshot()) == list(previous.snapshot())
        self.events = list(self.table.snapshot())  # the state log goes on in a new ledger
        list(self.table.changes())
        await self.begin()

    async def note(self, parts: int) -> None:
        """The state log is told; of a part alone if the owner dies in the middle."""
        self.events += list(self.table.changes())[: parts or None]
        if parts:
            await self.take_over(0.5)

    def check(self) -> None:
        for name in NAMES:
            mine = [value for value in self.log if value.startswith(f"{name}.".encode())]
            epochs = [int(value.split(b".")[1]) for value in mine]
            assert epochs == sorted(epochs)
            assert len(mine) == len(set(mine))
            for epoch in set(epochs):
                prefix = f"{name}.{epoch}.".encode()
                numbers = [int(v[len(prefix) :]) for v in mine if v.startswith(prefix)]
                assert numbers == list(range(len(numbers)))
        left = []
        for sent in self.sent:
            if sent.future.done():
                self.check_answer(sent)
            else:
                left.append(sent)
        self.sent = left

    def check_answer(self, sent: Sent) -> None:
        """An acknowledged append is in the log, where it was said to be; a refused one says where
        the log really ends, or did when it was refused."""
        error = sent.future.exception()
        end = sent.sequence + sent.count
        if error is None:
            assert self.next_of(sent.name, sent.epoch) >= end
            offset = sent.future.result().offset
            if offset != FORGOTTEN:
                first = f"{sent.name}.{sent.epoch}.{sent.sequence}".encode()
                assert self.log[offset] == first
            return
        assert isinstance(error, FencelogError)
        if error.code is ErrorCode.SEQUENCE_MISMATCH:
            expected = error.extra["expected_sequence"]
            assert expected <= self.next_of(sent.name, sent.epoch)
        else:
            assert error.code in (ErrorCode.PRODUCER_FENCED, UNKNOWN.code, GONE.code)


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


SHARES = st.sampled_from([0.0, 0.5, 1.0])
SENDS = st.tuples(
    st.just("send"),
    st.sampled_from(NAMES),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0, 0, 0, 0, -2, -1, 1]),
    st.integers(1, 3),
)
STEPS = st.one_of(
    SENDS,
    SENDS,
    st.tuples(st.just("repeat"), st.integers(1, 3)),
    st.tuples(st.just("acknowledge"), SHARES),
    st.tuples(st.just("fail"), SHARES, st.booleans(), st.integers(1, 3)),
    st.tuples(st.just("take over"), SHARES, st.integers(1, 3)),
    st.tuples(st.just("note"), st.integers(0, 1)),
)


@settings(max_examples=150)
@given(st.lists(STEPS, min_size=15, max_size=30))
def test_the_log_holds_every_numbered_message_once(steps: list[tuple[object, ...]]) -> None:
    asyncio.run(history(steps))


async def history(steps: list[tuple[object, ...]]) -> None:
    world = World()
    await world.begin()
    for step in steps:
        match step:
            case ["send", str(name), int(epoch), int(distance), int(count)]:
                pushed = [s for s in world.sent if (s.name, s.epoch) == (name, epoch)]
                ends = [s.sequence + s.count for s in pushed if not s.future.done()]
                following = max((world.next_of(name, epoch), *ends))
                world.send(name, epoch, max(0, following + distance), count)
            case ["repeat", int(last)]:
                world.repeat(last)
            case ["acknowledge", float(share)]:
                await world.acknowledge(share)
            case ["fail", float(share), bool(give_up), int(last)]:
                await world.fail_ledger(share, give_up=give_up)
                world.repeat(last)
            case ["take over", float(share), int(last)]:
                await world.take_over(share)
                world.repeat(last)
            case ["note", int(parts)]:
                await world.note(parts)
        world.check()
    await world.acknowledge(1.0)
    world.check()
    assert world.sent == []
    assert world.pipeline.pending_bytes == 0
