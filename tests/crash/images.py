"""Every image that a crash may leave, at every point of a sequence of effects.

By kinds: all that is pending is kept, none of it, a prefix, all but one (dropped), later ones
without earlier ones (reordered), names independently of contents, and a write of which only a part
is kept (torn). Where few effects are pending, every subset of them is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tests.crash.effects import Choice, Effect, Image, NameEffect, Pending, Progress, Write

SECTOR_BYTES = 512

KINDS = ("all", "none", "prefix", "dropped", "reordered", "names", "torn")

_MAX_COMPLETE = 5
"""Pending effects of which every subset is tried."""

_MAX_NAMES = 4


@dataclass(frozen=True, slots=True)
class Crash:
    """A crash after the first ``boundary`` effects of a sequence."""

    boundary: int
    kind: str
    choice: Choice


def choices(pending: Sequence[Pending]) -> Iterator[tuple[str, Choice]]:
    """Yield what a crash may keep of the pending effects, by kind; each choice once."""
    seen = set[str]()
    for kind, choice in _all_choices(pending):
        # What is not named is lost, so zeros at the end say nothing.
        text = str(choice) if choice.torn else str(choice).rstrip("0")
        if text not in seen:
            seen.add(text)
            yield kind, choice


def _all_choices(pending: Sequence[Pending]) -> Iterator[tuple[str, Choice]]:
    count = len(pending)
    yield "all", Choice((True,) * count)
    yield "none", Choice((False,) * count)
    for kept in range(1, count):
        yield "prefix", Choice((True,) * kept + (False,) * (count - kept))
    for dropped in range(count):
        yield "dropped", Choice(tuple(at != dropped for at in range(count)))
    yield from _names(pending)
    for at in range(count):
        yield "reordered", Choice(tuple(other == at for other in range(count)))
        yield "reordered", Choice(tuple(other >= at for other in range(count)))
    if count <= _MAX_COMPLETE:
        for bits in product((False, True), repeat=count):
            yield "reordered", Choice(bits)
    for at, effect in enumerate(pending):
        if isinstance(effect, Write):
            for part in parts(effect):
                yield "torn", Choice((True,) * at, part)
                yield "torn", Choice((False,) * at, part)


def _names(pending: Sequence[Pending]) -> Iterator[tuple[str, Choice]]:
    """Names are kept or lost, each by itself, with all of the contents or none of them."""
    names = [at for at, effect in enumerate(pending) if isinstance(effect, NameEffect)]
    if len(names) > _MAX_NAMES:
        names = names[-_MAX_NAMES:]  # the older ones go with the contents
    for with_rest in (True, False):
        for bits in product((False, True), repeat=len(names)):
            kept = [with_rest] * len(pending)
            for at, bit in zip(names, bits, strict=True):
                kept[at] = bit
            yield "names", Choice(tuple(kept))


def parts(write: Write) -> list[tuple[int, int]]:
    """Return what may be left of a write that was cut: its beginning up to a sector of the disk or
    to some byte, or, as sectors reach the disk in any order, its end without its beginning."""
    size = len(write.data)
    first = SECTOR_BYTES - write.offset % SECTOR_BYTES
    sectors = range(first, size, SECTOR_BYTES)
    some_sectors = {*sectors[:1], *sectors[len(sectors) // 2 :][:1], *sectors[-1:]}
    some_bytes = {1, size // 3, size // 2 + 3, size - 1}
    beginnings = [(0, cut) for cut in sorted(some_sectors | some_bytes) if 0 < cut < size]
    return beginnings + [(cut, size) for cut in sorted(some_sectors)]


def crashes(base: Image, effects: Sequence[Effect], *, first: int = 0) -> list[Crash]:
    """All the crashes after ``first`` or more effects of a sequence that begins on ``base``, in its
    order. Of those that leave the same image only the last one counts: most was promised by then.
    """
    progress = Progress(base)
    by_digest: dict[bytes, Crash] = {}
    for boundary in range(len(effects) + 1):
        if boundary:
            progress.take(effects[boundary - 1])
        if boundary < first:
            continue
        here = set[bytes]()
        for kind, choice in choices(progress.pending):
            digest = progress.image(choice).digest()
            if digest not in here:
                here.add(digest)
                by_digest[digest] = Crash(boundary, kind, choice)
    return sorted(by_digest.values(), key=lambda crash: crash.boundary)


def progress_to(base: Image, effects: Sequence[Effect], boundary: int) -> Progress:
    """Return the progress of the first ``boundary`` effects."""
    progress = Progress(base)
    for effect in effects[:boundary]:
        progress.take(effect)
    return progress
