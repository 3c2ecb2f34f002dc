"""The images of small sequences, against lists made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.effects import (
    Choice,
    Effect,
    Image,
    Link,
    MakeDirectory,
    Pending,
    Progress,
    Rename,
    Reserve,
    StoreWrite,
    Sync,
    SyncDirectory,
    Unlink,
    Write,
)
from tests.crash.images import Crash, choices, crashes, parts, progress_to

D = Path("/d")


def contents(image: Image) -> dict[str, bytes]:
    return {name: image.files.get(file, b"") for name, file in image.directories[D].items()}


def based(**files: bytes) -> Image:
    image = Image({D: {}})
    for number, (name, data) in enumerate(files.items(), 1):
        image.take(Link(D, name, number))
        image.take(Write(number, 0, data))
    return image


def left(base: Image, *effects: Effect) -> list[dict[str, bytes]]:
    """Return what may be left after all of the effects, each once, in no order."""
    progress = progress_to(base, effects, len(effects))
    found: dict[bytes, dict[str, bytes]] = {}
    for _, choice in choices(progress.pending):
        image = progress.image(choice)
        found[image.digest()] = contents(image)
    return list(found.values())


def same(found: list[dict[str, bytes]], *expected: dict[str, bytes]) -> bool:
    return sorted(map(repr, found)) == sorted(map(repr, expected))


def test_what_is_not_synced_is_kept_lost_or_torn() -> None:
    found = left(based(a=b"...."), Write(1, 0, b"xy"))
    assert same(found, {"a": b"...."}, {"a": b"x..."}, {"a": b"xy.."})


def test_two_writes_are_kept_in_any_order() -> None:
    found = left(based(a=b".."), Write(1, 0, b"x"), Write(1, 1, b"y"))
    assert same(found, {"a": b".."}, {"a": b"x."}, {"a": b".y"}, {"a": b"xy"})


def test_a_later_write_of_the_same_bytes_lies_above_the_earlier_one() -> None:
    found = left(based(a=b"."), Write(1, 0, b"x"), Write(1, 0, b"y"))
    assert same(found, {"a": b"."}, {"a": b"x"}, {"a": b"y"})


def test_what_was_synced_stays() -> None:
    assert same(left(based(a=b"."), Write(1, 0, b"x"), Sync(1)), {"a": b"x"})
    found = left(based(a=b".", b=b"."), Write(1, 0, b"x"), Write(2, 0, b"y"), Sync(1))
    assert same(found, {"a": b"x", "b": b"."}, {"a": b"x", "b": b"y"})


def test_the_size_comes_and_goes_like_a_write() -> None:
    found = left(based(a=b""), Reserve(1, 3), Write(1, 1, b"x"))
    assert same(found, {"a": b""}, {"a": b"\0\0\0"}, {"a": b"\0x"}, {"a": b"\0x\0"})


def test_a_name_needs_its_directory_and_a_content_its_file() -> None:
    new = (Link(D, "a", 1), Write(1, 0, b"x"))
    assert same(left(Image({D: {}}), *new), {}, {"a": b""}, {"a": b"x"})
    assert same(left(Image({D: {}}), *new, Sync(1)), {}, {"a": b"x"})
    assert same(left(Image({D: {}}), *new, SyncDirectory(D)), {"a": b""}, {"a": b"x"})
    assert same(left(Image({D: {}}), *new, Sync(1), SyncDirectory(D)), {"a": b"x"})


def test_a_rename_is_the_old_or_the_new_and_never_a_mixture() -> None:
    found = left(based(a=b"old", b=b"new"), Rename(D, "b", "a", 2))
    assert same(found, {"a": b"old", "b": b"new"}, {"a": b"new"})


def test_names_are_kept_or_lost_each_by_itself() -> None:
    found = left(based(a=b"1", b=b"2"), Unlink(D, "a", 1), Rename(D, "b", "c", 2))
    assert same(
        found,
        {"a": b"1", "b": b"2"},
        {"b": b"2"},
        {"a": b"1", "c": b"2"},
        {"c": b"2"},
    )


def test_removing_a_file_does_not_remove_another_of_its_name() -> None:
    effects = (Rename(D, "b", "a", 2), Unlink(D, "a", 2))
    found = left(based(a=b"1", b=b"2"), *effects)
    assert same(found, {"a": b"1", "b": b"2"}, {"a": b"2"}, {})


def test_directories_and_stores_are_durable_at_once() -> None:
    store = D / "index"
    progress = progress_to(
        Image(),
        [
            MakeDirectory(D),
            StoreWrite(store, ((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))),
            StoreWrite(store, ((b"d", b"4"),), ((b"a", b"c"),)),
        ],
        3,
    )
    assert progress.pending == []
    assert progress.everything().stores == {store: {b"c": b"3", b"d": b"4"}}


def test_the_kinds_of_three_pending_writes() -> None:
    writes: list[Pending] = [Write(1, at, b"x") for at in range(3)]
    by_kind: dict[str, list[str]] = {}
    for kind, choice in choices(writes):
        by_kind.setdefault(kind, []).append(str(choice))
    assert by_kind == {
        "all": ["111"],
        "none": ["000"],
        "prefix": ["100", "110"],
        "dropped": ["011", "101"],
        "reordered": ["010", "001"],
    }


def test_many_pending_effects_are_not_tried_in_every_combination() -> None:
    writes: list[Pending] = [Write(1, at, b"x") for at in range(20)]
    found = [str(choice) for _, choice in choices(writes)]
    assert len(found) == len(set(found)) == 2 + 19 + 19 + 19 + 17


def test_a_write_is_torn_at_sectors_and_elsewhere() -> None:
    assert parts(Write(1, 0, b"x")) == []
    assert parts(Write(1, 500, b"x" * 30)) == [
        (0, 1), (0, 10), (0, 12), (0, 18), (0, 29), (12, 30),
    ]  # fmt: skip
    cut = parts(Write(1, 0, b"x" * 2000))
    assert {(0, 512), (0, 1024), (0, 1536), (512, 2000), (1536, 2000), (0, 1999)} <= set(cut)


def test_an_image_counts_once_at_the_last_point_that_leaves_it() -> None:
    effects: list[Effect] = [Write(1, 0, b"x"), Sync(1), Write(1, 0, b"x")]
    assert crashes(based(a=b"."), effects) == [
        Crash(1, "none", Choice((False,))),
        Crash(3, "all", Choice((True,))),
    ]
    assert crashes(based(a=b"."), effects, first=2) == [Crash(3, "all", Choice((True,)))]


@pytest.mark.parametrize("text", ["", "1", "0101", "t0-3", "10t512-600"])
def test_choices_are_told_by_their_text(text: str) -> None:
    assert str(Choice.parse(text)) == text


@pytest.mark.parametrize("text", ["2", "1t", "t1-2-3", "t0-1 "])
def test_what_is_no_choice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="says nothing"):
        Choice.parse(text)


def test_a_choice_has_to_fit_what_is_pending() -> None:
    progress = Progress(based(a=b"."))
    progress.take(Reserve(1, 2))
    with pytest.raises(ValueError, match="1 pending"):
        progress.image(Choice((True, True)))
    with pytest.raises(ValueError, match="cannot be torn"):
        progress.image(Choice((), (0, 1)))


def test_digests_tell_images_apart() -> None:
    images = [
        Image(),
        Image({D: {}}),
        based(a=b""),
        based(a=b"x"),
        based(b=b"x"),
        based(a=b"x", b=b""),
        Image(stores={D: {}}),
        Image(stores={D: {b"a": b"b"}}),
        Image(stores={D: {b"ab": b""}}),
    ]
    assert len({image.digest() for image in images}) == len(images)
    assert based(a=b"x").digest() == left_over(based(a=b"x")).digest()


def left_over(image: Image) -> Image:
    """The same, with a file that has no name any more."""
    image.files[99] = b"gone"
    return image
