"""Crashes of workloads, one image after the other; and crashes of the lives that begin on them.

An image has a name that says how to make it again: ``append/37/101`` is the workload, the number of
effects before the crash, and what of the pending ones was kept. A second crash has two more parts:
``append/37/101/12/1`` in the life that began on that image; ``append/37/kill/45/1`` after a
``kill -9``, which loses nothing by itself, but leaves what was not synced to the next power loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.crash.check import Broken, live_on
from tests.crash.disk import CrashDisk
from tests.crash.effects import Choice, Effect, Progress
from tests.crash.images import Crash, crashes, progress_to
from tests.crash.workloads import WORKLOADS, Recording, Workload, record, small_writes

KILL = "kill"


@dataclass(frozen=True, slots=True)
class Failure:
    """``name`` says which image, ``what`` which promise was broken on it."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


@dataclass(slots=True)
class Findings:
    """The result for some images: the number of each kind, and those on which a promise was
    broken."""

    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def __iadd__(self, other: Findings) -> Findings:
        self.kinds += other.kinds
        self.failures += other.failures
        return self


@dataclass(frozen=True, slots=True)
class Story:
    """A recording, how it came about, and from where on it is crashed."""

    name: str
    workload: Workload
    recording: Recording
    first: int = 0

    def crashes(self) -> list[Crash]:
        return crashes(self.recording.base, self.recording.effects, first=self.first)

    def image_name(self, crash: Crash) -> str:
        return f"{self.name}/{crash.boundary}/{crash.choice}"


def story_of(name: str) -> Story:
    """Return the story of a workload, or of the life after a crash of one (``append/37/101``,
    ``append/37/kill``).

    Raises KeyError and ValueError for what is no such name, Broken if that life does not go well.
    """
    workload_name, *steps = name.split("/")
    workload = WORKLOADS[workload_name]
    story = Story(workload_name, workload, record(workload))
    if steps:
        boundary, choice = steps
        story = next_life(story, int(boundary), None if choice == KILL else Choice.parse(choice))
    return story


def next_life(story: Story, boundary: int, choice: Choice | None) -> Story:
    """Return what happens after a crash; None: after a ``kill -9``. Raises Broken."""
    recording = story.recording
    name = f"{story.name}/{boundary}/{KILL if choice is None else choice}"
    progress = progress_to(recording.base, recording.effects, boundary)
    before = recording.marks_before(boundary)
    disk = CrashDisk(progress.everything() if choice is None else progress.image(choice))
    base = disk.image.copy()
    with small_writes():
        knowledge = story.workload.knowledge().take_all(before)
        marks = live_on(disk, knowledge, story.workload.config, name)
    effects: Sequence[Effect] = disk.effects
    first = 1
    if choice is None:
        base, effects = recording.base, [*recording.effects[:boundary], *effects]
        marks = [(boundary + at, mark) for at, mark in marks]
        first += boundary
    at_first = 0 if choice is not None else boundary
    known = [(min(at, at_first), mark) for at, mark in recording.marks if at <= boundary]
    return Story(name, story.workload, Recording(base, effects, [*known, *marks]), first)


def examine(story: Story, found: Sequence[Crash]) -> Findings:
    """Start a bookie on each of the images."""
    findings = Findings()
    for crash in found:
        findings.kinds[crash.kind] += 1
        try:
            next_life(story, crash.boundary, crash.choice)
        except Broken as broken:
            findings.failures.append(Failure(story.image_name(crash), str(broken)))
    return findings


def examine_by_name(name: str) -> str | None:
    """One image; what is broken on it, or None. Raises KeyError, ValueError."""
    first, boundary, choice = name.rsplit("/", 2)
    try:
        next_life(story_of(first), int(boundary), Choice.parse(choice))
    except Broken as broken:
        return str(broken)
    return None


def samples(story: Story, count: int) -> Iterator[str]:
    """Names of lives behind crashes of it, spread evenly: as many power losses as kills."""
    found = [crash for crash in story.crashes() if crash.kind != "torn"]
    for at in _spread(len(found), count):
        yield story.image_name(found[at])
    boundaries = kill_boundaries(story)
    for at in _spread(len(boundaries), count):
        yield f"{story.name}/{boundaries[at]}/{KILL}"


def kill_boundaries(story: Story) -> list[int]:
    """Return where a kill leaves something to a power loss in the next life."""
    progress = Progress(story.recording.base)
    found = []
    for boundary, effect in enumerate(story.recording.effects, 1):
        progress.take(effect)
        if progress.pending:
            found.append(boundary)
    return found


def _spread(size: int, count: int) -> Iterator[int]:
    count = min(size, count)
    for number in range(count):
        yield (2 * number + 1) * size // (2 * count)
