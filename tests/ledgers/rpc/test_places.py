"""Replies that name places in a file: what they say, and what no bookie may say."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.ledgers.errors import ErrorCode, ProtocolError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.limits import MAX_PLACED_PATH_BYTES, MAX_PLACED_RUNS, MAX_RUN_BYTES
from fencelog.ledgers.rpc.bookie_port import Place
from fencelog.ledgers.rpc.places import PlacedRuns, decode_places, encode_places, end_of_runs
from fencelog.ledgers.rpc.wire import (
    FRAME_HEADER,
    Flag,
    Frame,
    FrameReader,
    Op,
    encode_reply,
    is_reply_to,
)

HEAD = bytes(range(64))
PATH = b"/data/entrylog/0000000000000001.entrylog"
ASCENDING = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(33, 100_000)), min_size=1, max_size=MAX_PLACED_RUNS
)


def places_of(gaps: list[tuple[int, int]]) -> list[Place]:
    places, end = [], len(HEAD)
    for gap, size in gaps:
        places.append((end + gap, size))
        end += gap + size
    return places


def body_of(*places: Place, path: bytes = PATH) -> bytes:
    return encode_places(7, PlacedRuns(path, HEAD, places))


@given(ASCENDING, st.integers(-1, 2**62))
def test_a_reply_is_read_as_it_was_written(gaps: list[tuple[int, int]], lac: int) -> None:
    found = PlacedRuns(PATH, HEAD, places_of(gaps))
    body = encode_places(lac, found)
    assert decode_places(body) == (lac, found)
    assert decode_places(memoryview(body)) == (lac, found)
    (first, _), *_ = found.places
    last, size = found.places[-1]
    assert (found.offset, found.size) == (first, last + size - first)
    assert found.in_memory[0] == (0, found.places[0][1])


@given(ASCENDING, st.data())
def test_a_damaged_reply_is_refused_or_says_what_a_bookie_could(
    gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    body = bytearray(encode_places(7, PlacedRuns(PATH, HEAD, places_of(gaps))))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    body = body[: data.draw(st.integers(0, len(body)))]
    try:
        _, found = decode_places(body)
    except ProtocolError:
        return
    assert encode_places(7, found)[8:] == body[8:]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        body_of((100, 50))[:-1],
        body_of((100, 50)) + b"x",
        body_of(*[(100, 50)] * 2),  # they overlap
        body_of((200, 50), (100, 50)),
        body_of((63, 50)),  # within the header
        body_of((100, 32)),  # no run
        body_of((100, MAX_RUN_BYTES + 1)),
        body_of((100, 50), (2**64 - 1, 50)),
        body_of(*[(100 + 64 * n, 50) for n in range(MAX_PLACED_RUNS + 1)]),
        body_of((100, 50), path=b"relative"),
        body_of((100, 50), path=b""),
        body_of((100, 50), path=b"/with\0a zero"),
        body_of((100, 50), path=b"/" + b"x" * MAX_PLACED_PATH_BYTES),
        struct.pack("<qHHI", 7, 0, len(PATH), 0) + HEAD + PATH,
        struct.pack("<qHHI", 7, 1, len(PATH), 1) + body_of((100, 50))[16:],
    ],
)
def test_what_cannot_be_right_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_places(body)


def test_places_answer_a_read_and_nothing_else() -> None:
    body = body_of((100, 50))

    def reply(op: Op, body: bytes = body, status: int = 0, flags: int = Flag.PLACES) -> Frame:
        return Frame(op | 0x80, int(flags), status, 1, body)

    assert is_reply_to(Op.READ, reply(Op.READ))
    assert not is_reply_to(Op.READ_RANGES, reply(Op.READ_RANGES))
    assert not is_reply_to(Op.READ, reply(Op.READ, status=ErrorCode.CORRUPT.wire))
    most = body_of(
        *[(100 + 64 * n, 50) for n in range(MAX_PLACED_RUNS)], path=b"/" * MAX_PLACED_PATH_BYTES
    )
    assert is_reply_to(Op.READ, reply(Op.READ, most))
    assert not is_reply_to(Op.READ, reply(Op.READ, most + b"/"))
    assert not is_reply_to(Op.READ, reply(Op.READ, body_of((100, 50), path=b"")))


def test_a_large_reply_with_a_flag_is_not_received_as_entries() -> None:
    """The frame that is received in place has no flags."""
    reader = FrameReader()
    reader.accept_large_frames()
    frame = encode_reply(Op.READ, 7, bytes(200_000), Flag.PLACES)
    assert reader.feed(frame[:100]) == []
    assert reader.take_begun(1000) is None
    (whole,) = reader.feed(frame[100:])
    assert whole == Frame(Op.READ | 0x80, Flag.PLACES, 0, 7, frame[FRAME_HEADER.size :])


def test_runs_are_known_by_their_headers() -> None:
    runs = [
        build_run(7, first, [b"x" * 100] * count, lac=-1, length_before=0)
        for first, count in ((10, 3), (13, 1), (14, 2))
    ]
    data, places = b"", []
    for run in runs:
        places.append((len(data), len(run)))
        data += run + bytes(40)
    assert end_of_runs(places, data, 7, 10) == 16
    assert end_of_runs(places, data, 7, 12) == 16
    assert end_of_runs(places[1:2], data, 7, 13) == 14
    for ledger_id, entry_id in ((8, 10), (7, 9), (7, 13)):
        assert end_of_runs(places, data, ledger_id, entry_id) is None
    other = build_run(8, 13, [b"x" * 100], lac=-1, length_before=0)
    for wrong, held in (
        ([places[0], places[2]], data),
        ([(0, len(runs[0]) - 8)], data),
        ([(8, len(runs[0]))], data),
        ([(0, len(runs[0]))], b""),
        ([(0, len(runs[0])), (len(runs[0]), len(other))], runs[0] + other),
    ):
        assert end_of_runs(wrong, held, 7, 10) is None


def test_what_lies_close_together_is_read_at_a_time() -> None:
    places = [(100, 1000), (1140, 1000), (2180, 1000), (9000, 1000), (10_040, 1000)]
    found = PlacedRuns(PATH, HEAD, places)
    pieces, rest = [], found
    while rest.places:
        piece, rest = rest.split(2500)
        assert (piece.path, piece.head) == (PATH, HEAD)
        pieces.append(list(piece.places))
    assert pieces == [places[:2], places[2:3], places[3:]]
    assert found.split(1)[0].places == places[:1]
