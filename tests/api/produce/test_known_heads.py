"""What is remembered of heads, and for how long."""

from __future__ import annotations

from fencelog.api.produce.known_heads import MAX_KNOWN_HEADS, KnownHeads
from fencelog.api.produce.post import Post
from fencelog.broker.names import TopicName

POST = Post(TopicName("ns", "t"), None, None, None, (), None, None)


def learn(heads: KnownHeads, head: bytes) -> None:
    heads.learn(head, b"/url", [], {b"content-length": b"7"}, POST)


def test_a_head_is_known_from_its_second_time_on() -> None:
    heads = KnownHeads()
    learn(heads, b"a")
    assert heads.find(b"a") is None
    learn(heads, b"a")
    known = heads.find(b"a")
    assert known is not None
    assert (known.url, known.body_bytes, known.post) == (b"/url", 7, POST)
    assert heads.find(b"b") is None


def test_heads_that_never_come_again_do_not_take_the_place_of_others() -> None:
    heads = KnownHeads()
    learn(heads, b"a")
    learn(heads, b"a")
    for number in range(3 * MAX_KNOWN_HEADS):
        learn(heads, b"%d" % number)
    assert heads.find(b"a") is not None
    assert len(heads._came_once) <= MAX_KNOWN_HEADS


def test_no_more_heads_are_known_than_the_limit() -> None:
    heads = KnownHeads()
    for number in range(MAX_KNOWN_HEADS + 1):
        learn(heads, b"%d" % number)
        learn(heads, b"%d" % number)
    assert len(heads._known) <= MAX_KNOWN_HEADS
    assert heads.find(b"%d" % MAX_KNOWN_HEADS) is not None
