"""Full collections walk what is new, until what is old may be garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from fencelog.api.processes.garbage import GarbageCollection

LEAST = 1_000


class Topic:
    """A part of a cycle, as what serves a topic is."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collection() -> Iterator[GarbageCollection]:
    """Tune this process's collector, and leave it as it was."""
    thresholds = gc.get_threshold()
    collection = GarbageCollection(least_objects=LEAST)
    gc.collect()
    collection.start()
    gc.disable()
    yield collection
    gc.enable()
    gc.callbacks.remove(collection.on_collection)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def open_topics(count: int) -> list[Topic]:
    return [Topic() for _ in range(count)]


@pytest.mark.usefixtures("collection")
def test_what_a_full_collection_has_left_is_set_apart() -> None:
    topics = open_topics(500)
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() - before >= len(topics)
    assert not any(isinstance(thing, Topic) for thing in gc.get_objects())
    topic = weakref.ref(topics[0])
    topics.clear()
    gc.collect()
    assert topic() is not None  # so few are not looked for


@pytest.mark.usefixtures("collection")
def test_garbage_among_new_objects_is_found() -> None:
    topic = weakref.ref(open_topics(1)[0])
    assert topic() is not None
    gc.collect()
    assert topic() is None


@pytest.mark.usefixtures("collection")
def test_garbage_that_was_set_apart_is_found_before_it_is_more_than_the_rest() -> None:
    in_use = gc.get_freeze_count()
    kept = open_topics(100)
    closed = []
    while gc.get_freeze_count() < 2 * in_use:
        topics = open_topics(in_use // 4)
        closed.append(weakref.ref(topics[0]))
        gc.collect()  # sets them apart
        topics.clear()
    gc.collect()
    assert gc.get_freeze_count() < in_use + in_use // 2
    assert closed[0]() is None
    assert len(kept) == 100


@pytest.mark.usefixtures("collection")
def test_objects_that_are_freed_by_their_counts_do_not_make_all_be_walked() -> None:
    """A cache's, for example, which come and go."""
    old = open_topics(1)
    gc.collect()
    topic = weakref.ref(old[0])
    old.clear()
    in_use = gc.get_freeze_count()
    for _ in range(9):
        cached = [[number] for number in range(in_use // 2)]
        gc.collect()
        del cached
    assert topic() is not None


@pytest.mark.usefixtures("collection")
def test_collections_of_young_objects_set_nothing_apart() -> None:
    topics = open_topics(10)
    before = gc.get_freeze_count()
    gc.collect(0)
    gc.collect(1)
    assert gc.get_freeze_count() == before
    assert gc.is_tracked(topics[0])
