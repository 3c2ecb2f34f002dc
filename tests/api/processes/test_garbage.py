"""Collections walk what is new, until what is old may be garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencelog.api.processes.garbage import GarbageCollection

LEAST = 1_000
IN_USE = 5_000
YOUNGEST = 0


class Topic:
    """A part of a cycle, as what serves a topic is."""

    def __init__(self) -> None:
        self.itself = self


class Counted:
    """The interpreter's collector, which does not count the objects that were there before."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        self._before = gc.get_freeze_count() - IN_USE

    def __getattr__(self, name: str) -> Any:
        return getattr(gc, name)

    def get_freeze_count(self) -> int:
        return gc.get_freeze_count() - self._before


class Process:
    """The process of the test, as one that serves. Its collections are the test's."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.waiting: list[Callable[[], None]] = []
        self.walks = 0
        self.collection = GarbageCollection(
            self.waiting.append, least_garbage=LEAST, fewest_between_counts=30_000
        )

    def collect(self, times: int = 1) -> None:
        """Run automatic collections, and what they have asked for."""
        for _ in range(times):
            gc.collect(YOUNGEST)
            while self.waiting:
                self.walks += 1
                self.waiting.pop()()

    def collect_until_counted(self) -> None:
        self.collect(2 + self.counted.get_freeze_count() // 20_000)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    process = Process(Counted())
    monkeypatch.setattr("fencelog.api.processes.garbage.gc", process.counted)
    process.collection.start()
    gc.disable()
    yield process
    gc.enable()
    process.collection.stop()


def open_topics(count: int) -> list[Topic]:
    return [Topic() for _ in range(count)]


def test_what_a_collection_has_left_is_set_apart(process: Process) -> None:
    topics = open_topics(500)
    before = process.counted.get_freeze_count()
    process.collect()
    assert process.counted.get_freeze_count() - before >= len(topics)
    assert not any(isinstance(thing, Topic) for thing in gc.get_objects())
    topic = weakref.ref(topics[0])
    topics.clear()
    process.collect_until_counted()
    assert topic() is not None  # so few are not looked for
    assert process.walks == 0


def test_garbage_among_new_objects_is_found(process: Process) -> None:
    topic = weakref.ref(open_topics(1)[0])
    assert topic() is not None
    process.collect()
    assert topic() is None


def test_garbage_that_was_set_apart_is_found_when_it_may_be_more_than_the_rest(
    process: Process,
) -> None:
    in_use = process.counted.get_freeze_count()
    kept = open_topics(100)
    topics = open_topics(in_use + in_use // 4)
    closed = weakref.ref(topics[0])
    process.collect()
    topics.clear()
    assert closed() is not None
    process.collect_until_counted()
    assert process.walks == 1
    assert closed() is None
    assert process.counted.get_freeze_count() < in_use + in_use // 4
    assert len(kept) == 100


def test_more_objects_in_use_are_walked_once(process: Process) -> None:
    topics = open_topics(process.counted.get_freeze_count() * 5 // 4)
    process.collect()
    process.collect_until_counted()
    process.collect_until_counted()
    assert process.walks == 1
    assert topics[0].itself is topics[0]


def test_objects_that_are_freed_by_their_counts_do_not_make_all_be_walked(
    process: Process,
) -> None:
    """A cache's, for example, which come and go."""
    in_use = process.counted.get_freeze_count()
    for _ in range(5):
        cached = [[number] for number in range(in_use // 2)]
        process.collect()
        del cached
        process.collect_until_counted()
    assert process.walks == 0


def test_a_walk_that_has_not_begun_is_not_asked_for_again(process: Process) -> None:
    topics = open_topics(process.counted.get_freeze_count() * 5)
    for _ in range(2):
        for _ in range(2 + process.counted.get_freeze_count() // 20_000):
            gc.collect(YOUNGEST)
    assert len(process.waiting) == 1
    assert len(topics) > LEAST


def test_the_end_leaves_the_collector_as_it_was() -> None:
    thresholds, callbacks = gc.get_threshold(), [*gc.callbacks]
    collection = GarbageCollection(lambda _: None)
    collection.start()
    assert gc.get_threshold() != thresholds
    collection.stop()
    assert (gc.get_threshold(), gc.callbacks) == (thresholds, callbacks)
    assert gc.get_freeze_count() == 0
