"""Contents of repeated appends: equal ones are recognised however they came, other ones refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.broker.append.conditions import AppendConditions, SequenceRanges, Tracked
from fencelog.broker.append.contents import check_contents
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
)
from fencelog.ledgers.record_batch import (
    CODEC_ZSTD,
    Message,
    check_batch,
    contents_digest,
    encode_batch,
    encode_values,
    message_digest,
)
from tests.support.broker_stage import Stage, Until
from tests.support.scripted_ledgers import ScriptedLedgers

KEY = AppendConditions(SequenceRange(0, RANGE_KEY, producer_digest(b"order 7")))


def numbered(sequence: int, epoch: int = 0) -> AppendConditions:
    return AppendConditions(
        SequenceRange(0, RANGE_SEQUENCE, producer_digest(b"p"), epoch, sequence)
    )


async def send(log: PartitionLog, conditions: AppendConditions, *values: bytes) -> bool:
    """Append the values as one batch; tell whether they were a duplicate."""
    batch = encode_values(values)
    appended = await log.append_batch(batch, check_batch(batch), conditions.of(batch))
    return appended.duplicate


async def refused(log: PartitionLog, conditions: AppendConditions, *values: bytes) -> ErrorCode:
    tail = log.tail_offset
    with pytest.raises(FencelogError) as caught:
        await send(log, conditions, *values)
    assert log.tail_offset == tail
    return caught.value.code


def test_conditions_that_remember_their_contents_are_the_same_otherwise() -> None:
    batch = encode_values([b"x"])
    sequences = SequenceRange(1, RANGE_SEQUENCE, producer_digest(b"p"), 2, 3)
    found = AppendConditions(sequences, if_offset=4, fencing_token="t", routed_by=5).of(batch)
    expected = sequences._replace(contents=contents_digest(batch))
    assert found == AppendConditions(expected, if_offset=4, fencing_token="t", routed_by=5)


def test_a_digest_is_of_the_messages_alone() -> None:
    messages = [Message(b"a", b"k", 7, (("h", b"1"),)), Message(b"b")]
    digest = contents_digest(encode_batch(messages))
    assert digest == contents_digest(encode_batch(messages, codec=CODEC_ZSTD))
    others = [
        [messages[0]],
        messages[::-1],
        [messages[0], Message(b"c")],
        [Message(b"ab"), Message(b"")],
        [messages[0]._replace(key=None), messages[1]],
        [messages[0]._replace(event_time=8), messages[1]],
        [messages[0]._replace(headers=(("h", b"2"),)), messages[1]],
        [messages[0]._replace(headers=(("h1", b""),)), messages[1]],
    ]
    digests = {contents_digest(encode_batch(other)) for other in others}
    assert len(digests | {digest}) == len(others) + 1


@given(
    st.builds(
        Message,
        st.binary(max_size=20),
        st.none() | st.binary(max_size=9),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3).map(tuple),
    )
)
def test_the_digest_of_one_message_is_that_of_its_batch(message: Message) -> None:
    assert message_digest(message) == contents_digest(encode_batch([message]))


def test_conditions_without_a_number_have_no_contents() -> None:
    conditions = AppendConditions(if_offset=3)
    assert conditions.of(encode_values([b"a"])) is conditions


async def test_a_key_is_of_one_content_also_after_takeovers(stage: Stage) -> None:
    log = await stage.open()
    assert not await send(log, KEY, b"a", b"b")
    for _ in range(2):
        assert await send(log, KEY, b"a", b"b")
        for other in ([b"a"], [b"a", b"c"], [b"a", b"b", b"c"]):
            assert await refused(log, KEY, *other) is ErrorCode.IDEMPOTENCY_KEY_REUSED
        log = await stage.open()


async def test_a_key_is_of_one_content_while_it_is_in_flight(
    stage: Stage, ledgers: ScriptedLedgers, until: Until
) -> None:
    ledgers.auto_ack = False
    log = await stage.open()
    batch = encode_values([b"a"])
    first, again = [log.append_batch(batch, check_batch(batch), KEY.of(batch)) for _ in range(2)]
    await until(lambda: len(ledgers.newest.payloads) == 1)
    assert await refused(log, KEY, b"b") is ErrorCode.IDEMPOTENCY_KEY_REUSED
    ledgers.newest.ack(0)
    assert ((await first).duplicate, (await again).duplicate) == (False, True)


async def test_a_sequence_is_of_one_content_as_far_as_it_is_known(stage: Stage) -> None:
    log = await stage.open()
    assert not await send(log, numbered(0), b"a", b"b")
    assert await send(log, numbered(0), b"a", b"b")
    assert await refused(log, numbered(0), b"a", b"c") is ErrorCode.SEQUENCE_REUSED
    assert await send(log, numbered(0), b"a")  # cut otherwise, which is not compared
    assert not await send(log, numbered(0, epoch=1), b"c", b"d")
    assert await refused(log, numbered(0, epoch=1), b"a", b"b") is ErrorCode.SEQUENCE_REUSED


def test_a_sequence_is_of_one_content_while_it_is_in_flight() -> None:
    sequences = numbered(0).of(encode_values([b"a"])).sequences
    other = numbered(0).of(encode_values([b"b"])).sequences
    assert sequences is not None
    assert other is not None
    tracked = Tracked(sequences._replace(rows=3))
    check_contents(tracked.sequences, tracked)
    check_contents(other._replace(rows=2), tracked)
    with pytest.raises(FencelogError, match="0 to 2 were appended with other contents") as caught:
        check_contents(other._replace(rows=3), tracked)
    assert caught.value.code is ErrorCode.SEQUENCE_REUSED


def test_appends_that_were_joined_are_not_compared() -> None:
    ranges = SequenceRanges()
    for sequence, value in enumerate([b"a", b"b"]):
        sequences = numbered(sequence).of(encode_values([value])).sequences
        assert sequences is not None
        tracked = Tracked(sequences._replace(rows=1))
        tracked.row = sequence
        ranges.add(tracked)
    assert [(sequences.rows, sequences.contents) for sequences in ranges.found] == [(2, b"")]
