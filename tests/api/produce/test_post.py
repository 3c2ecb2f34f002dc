"""The head of a single post on its way to the owner."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.produce.post import Post, decode_post, encode_post
from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.limits import MAX_DELIVERY_DELAY_MS, MAX_PARTITIONS
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.format.entry_header import RANGE_KEY, RANGE_SEQUENCE, SequenceRange
from fencelog.ledgers.format.request_context import Contexts, RequestContext
from fencelog.ledgers.limits import MAX_CONTEXTS, MAX_REQUEST_ID_BYTES

INT64 = st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**63 - 1)
RANGES = st.builds(
    SequenceRange,
    st.just(1),
    st.sampled_from((RANGE_SEQUENCE, RANGE_KEY)),
    st.binary(min_size=16, max_size=16),
    COUNTS,
    COUNTS,
    st.binary(min_size=16, max_size=16),
)
CONDITIONS = st.builds(
    AppendConditions,
    st.none() | RANGES,
    st.none() | INT64,
    st.none() | st.text(max_size=4),
    st.none() | st.integers(1, MAX_PARTITIONS),
)
POSTS = st.builds(
    Post,
    st.just(TopicName("ns", "t")),
    st.just("3"),
    st.none() | st.binary(max_size=9),
    st.none() | INT64,
    st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=3).map(tuple),
    st.none() | st.integers(0, MAX_DELIVERY_DELAY_MS),
    st.none() | CONDITIONS,
)


CONTEXTS = st.lists(
    st.text("abcXYZ019-_./", min_size=1, max_size=MAX_REQUEST_ID_BYTES).map(RequestContext),
    max_size=MAX_CONTEXTS,
).map(tuple)


@given(POSTS, st.binary(), CONTEXTS)
def test_a_post_comes_back(post: Post, body: bytes, contexts: Contexts) -> None:
    frame = b"".join(encode_post(post, 3, body, contexts))
    assert decode_post(frame) == (post, 3, body, contexts)


def test_the_form_of_a_post_without_contexts_is_the_earlier_one() -> None:
    post = Post(TopicName("a", "b"), None, None, None, (), None, None)
    head, _ = encode_post(post, 3, b"")
    assert len(msgspec.msgpack.decode(head[4:])) == 7


def test_a_post_with_an_id_that_none_can_have_is_no_frame() -> None:
    post = Post(TopicName("a", "b"), None, None, None, (), None, None)
    for request_id in ("", "a b", "x" * (MAX_REQUEST_ID_BYTES + 1), "a\nb"):
        frame = b"".join(encode_post(post, 3, b"", (RequestContext(request_id),)))
        with pytest.raises(ProtocolError):
            decode_post(frame)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_post_or_no_frame(frame: bytes) -> None:
    """Any other error than ProtocolError fails the test, and a post has to be the same post in its
    own form."""
    try:
        post = decode_post(frame)
    except ProtocolError:
        return
    assert decode_post(b"".join(encode_post(*post))) == post


@pytest.mark.parametrize("head", [[], [["ns"], 3, None, None, [], None, None], {}])
def test_a_head_of_another_form_is_no_post(head: object) -> None:
    packed = msgspec.msgpack.encode(head)
    with pytest.raises(ProtocolError):
        decode_post(len(packed).to_bytes(4, "little") + packed)


@pytest.mark.parametrize(
    ("delay_ms", "sequences"),
    [
        (-1, None),
        (MAX_DELIVERY_DELAY_MS + 1, None),
        (None, SequenceRange(2, RANGE_SEQUENCE, bytes(16))),
        (None, SequenceRange(1, 9, bytes(16))),
        (None, SequenceRange(1, RANGE_KEY, b"short")),
        (None, SequenceRange(1, RANGE_SEQUENCE, bytes(16), -1)),
        (None, SequenceRange(1, RANGE_SEQUENCE, bytes(16), 0, 2**63)),
    ],
)
def test_what_no_request_can_ask_for_is_no_post(
    delay_ms: int | None, sequences: SequenceRange | None
) -> None:
    conditions = None if sequences is None else AppendConditions(sequences)
    post = Post(TopicName("ns", "t"), "3", None, None, (), delay_ms, conditions)
    with pytest.raises(ProtocolError):
        decode_post(b"".join(encode_post(post, 3, b"")))
