"""Windows of a batch are its messages, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.record_batch import CODEC_NONE, CODEC_ZSTD, Message, encode_batch
from fencelog.ledgers.record_batch.windows import message_windows

HEADERS = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=3).map(tuple)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.binary(max_size=5),
        st.none() | st.binary(max_size=3),
        st.none() | st.integers(-5, 1 << 60),
        HEADERS,
    ),
    min_size=1,
    max_size=40,
)


@given(MESSAGES, st.integers(1, 45), st.integers(0, 41), st.sampled_from((CODEC_NONE, CODEC_ZSTD)))
def test_windows_are_the_messages(
    messages: list[Message], size: int, start: int, codec: int
) -> None:
    windows = list(message_windows(encode_batch(messages, codec=codec), size, start=start))
    assert [message for window in windows for message in window] == messages[start:]
    assert all(len(window) == size for window in windows[:-1])


def test_a_damaged_batch_is_refused() -> None:
    batch = bytearray(encode_batch([Message(b"x")]))
    batch[-1] ^= 1
    with pytest.raises(FencelogError):
        list(message_windows(batch, 1))
