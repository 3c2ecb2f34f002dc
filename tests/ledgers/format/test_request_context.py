"""The requests that are named with an entry: their ids and their form on the wire."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.format.request_context import (
    NO_CONTEXTS,
    RequestContext,
    decode_contexts,
    encode_contexts,
    is_request_id,
    merge,
)
from fencelog.ledgers.limits import MAX_CONTEXTS, MAX_FRAME_BYTES, MAX_REQUEST_ID_BYTES
from fencelog.ledgers.limits import MAX_RUN_BYTES as LARGEST_RUN
from fencelog.ledgers.rpc.wire import CONTEXTS_SIZE, FRAME_HEADER, split_contexts, with_contexts

SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTEXTS = st.lists(
    st.builds(
        RequestContext,
        st.text("abcXYZ019-_./:", min_size=1, max_size=MAX_REQUEST_ID_BYTES),
        st.sampled_from(["", SPAN]),
    ),
    max_size=MAX_CONTEXTS,
).map(tuple)


@pytest.mark.parametrize(
    "given", [b"a", b"x" * MAX_REQUEST_ID_BYTES, b"6f2c4f1e-9d3a-4a8b", b"Root=1-67891233;a:b/c@d~"]
)
def test_ids_of_clients_and_proxies_are_taken(given: bytes) -> None:
    assert is_request_id(given)


@pytest.mark.parametrize(
    "given",
    [b"", b"x" * (MAX_REQUEST_ID_BYTES + 1), b"a b", b"a\n", b"a\r\nb: c", b"\xc3\xa4", b'"', b"%"],
)
def test_what_would_mean_something_elsewhere_is_not(given: bytes) -> None:
    assert not is_request_id(given)


@given(CONTEXTS, st.binary())
def test_contexts_come_back(contexts: tuple[RequestContext, ...], run: bytes) -> None:
    assert decode_contexts(encode_contexts(contexts)) == contexts
    assert split_contexts(with_contexts(contexts, run)) == (contexts, run)


def test_a_context_of_a_release_without_spans_is_taken() -> None:
    assert decode_contexts(msgspec.msgpack.encode([["a"]])) == (RequestContext("a"),)


@pytest.mark.parametrize(
    "contexts",
    [
        [["a", "b", "c", 4]] * 2,
        [[1]],
        [["a b"]],
        [[""]],
        [["\ud800".encode("utf-8", "surrogatepass").decode("latin-1")]],
        [["a", SPAN[:-1]]],
        [["a", SPAN.upper()]],
        [["a", SPAN.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)]],
        [["a"]] * (MAX_CONTEXTS + 1),
        "a",
    ],
)
def test_others_are_refused(contexts: object) -> None:
    with pytest.raises(ProtocolError):
        decode_contexts(msgspec.msgpack.encode(contexts))


@given(st.binary(max_size=64))
def test_any_bytes_are_contexts_or_no_frame(body: bytes) -> None:
    """Any other error than ProtocolError fails the test."""
    try:
        contexts, run = split_contexts(body)
    except ProtocolError:
        return
    assert split_contexts(with_contexts(contexts, run)) == (contexts, run)


def test_a_size_beyond_the_body_is_refused() -> None:
    with pytest.raises(ProtocolError):
        split_contexts(CONTEXTS_SIZE.pack(5) + b"1234")


def test_entries_that_are_sent_together_name_their_first_requests() -> None:
    contexts = [RequestContext(str(number)) for number in range(MAX_CONTEXTS + 3)]
    assert merge([(contexts[0],), NO_CONTEXTS, (contexts[1],)]) == (contexts[0], contexts[1])
    assert merge([(each,) for each in contexts]) == tuple(contexts[:MAX_CONTEXTS])


def test_the_most_contexts_fit_a_frame_beside_the_largest_run() -> None:
    most = (RequestContext("x" * MAX_REQUEST_ID_BYTES, SPAN),) * MAX_CONTEXTS
    head = FRAME_HEADER.size - 4 + len(with_contexts(most, b""))
    assert head + LARGEST_RUN <= MAX_FRAME_BYTES
