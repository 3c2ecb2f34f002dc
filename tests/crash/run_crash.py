"""``make crash``: crash every workload everywhere, start a bookie on what is left, and compare.

Prints how many images there were of each kind. An image on which a promise was broken is named;
``make crash IMAGE=NAME`` shows how it came about and tries it again. The last line is
``N images, N failed``.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from multiprocessing import get_context

from tests.crash.check import Broken
from tests.crash.effects import Choice
from tests.crash.examine import (
    Failure,
    Findings,
    Story,
    examine,
    examine_by_name,
    samples,
    story_of,
)
from tests.crash.images import KINDS, progress_to
from tests.crash.workloads import WORKLOADS

_PARTS = 4
_SHOWN = 3
_SHOWN_EFFECTS = 12

Job = tuple[str, int, int]
"""Name of a story; the first of its images, and how many to the next."""


def work(job: Job) -> tuple[str, Findings]:
    """Examine a part of a story."""
    name, start, step = job
    try:
        story = story_of(name)
    except Broken as broken:
        # One of the images of the story before, and reported with them.
        return name, Findings(failures=[Failure(name, str(broken))])
    return name, examine(story, story.crashes()[start::step])


def jobs(names: Sequence[str], *, stride: int, depth: int) -> Iterator[Job]:
    """Yield the jobs of the workloads: of the images each ``stride``-th; ``depth`` lives after
    power losses, and as many after kills, are crashed as well, ``stride`` times as thinly."""
    for name in names:
        for part in range(_PARTS):
            yield name, part * stride, _PARTS * stride
    for name in names:
        for number, second in enumerate(samples(story_of(name), depth)):
            yield second, number % stride, stride


def examine_all(found: Sequence[Job], processes: int) -> Iterator[tuple[str, Findings]]:
    """Yield the findings of the jobs, in any order."""
    if processes == 1:
        yield from map(work, found)
        return
    gc.freeze()
    with get_context("fork").Pool(processes, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(work, found)


def table(findings: dict[str, Findings]) -> Iterator[str]:
    """Images by workload and kind."""
    yield f"{'':<30}" + "".join(f"{kind:>10}" for kind in KINDS) + f"{'images':>10}"
    total: Counter[str] = Counter()
    for name, found in findings.items():
        yield _row(name, found.kinds)
        total += found.kinds
    yield _row("", total)


def _row(name: str, kinds: Counter[str]) -> str:
    counts = "".join(f"{kinds[kind]:>10}" for kind in KINDS)
    return f"{name:<30}{counts}{kinds.total():>10}"


def describe(failures: Iterable[Failure]) -> Iterator[str]:
    """Yield a line for the simplest failures of each workload: few crashes, early ones."""
    by_workload = sorted(failures, key=lambda failure: failure.name.split("/", 1)[0])
    for name, group in groupby(by_workload, key=lambda failure: failure.name.split("/", 1)[0]):
        found = sorted(group, key=_simplicity)
        yield f"{name}: {len(found)} failed, among them"
        for failure in found[:_SHOWN]:
            yield f"  make crash IMAGE={failure.name}"
            yield f"    {failure.what}"


def _simplicity(failure: Failure) -> tuple[int, int, int]:
    parts = failure.name.split("/")
    return len(parts), int(parts[1]), len(failure.name)


def show(name: str) -> Iterator[str]:
    """Yield how an image came about."""
    first, boundary_text, choice_text = name.rsplit("/", 2)
    boundary, choice = int(boundary_text), Choice.parse(choice_text)
    story = story_of(first)
    yield from _last_events(story, boundary)
    pending = progress_to(story.recording.base, story.recording.effects, boundary).pending
    yield f"crash after {boundary} effects; of those not synced:"
    for at, effect in enumerate(pending):
        fate = "kept" if at < len(choice.kept) and choice.kept[at] else "lost"
        if at == len(choice.kept) and choice.torn is not None:
            fate = f"kept: bytes {choice.torn[0]} to {choice.torn[1]}"
        yield f"  {fate:<6} {effect}"


def _last_events(story: Story, boundary: int) -> Iterator[str]:
    recording = story.recording
    for number in range(max(boundary - _SHOWN_EFFECTS, 0), boundary + 1):
        if number:
            yield f"{number:>5} {recording.effects[number - 1]}"
        for at, mark in recording.marks:
            if at == number:
                yield f"      {'answered' if mark.is_answer else 'sent'} {mark.act}"


def say(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def try_again(name: str) -> int:
    say(show(name))
    broken = examine_by_name(name)
    say([broken or "all promises are kept"])
    return 1 if broken else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make crash", description=__doc__)
    parser.add_argument("--image", help="try this one alone")
    parser.add_argument("--only", nargs="*", default=list(WORKLOADS), help="workloads")
    parser.add_argument("--stride", type=int, default=1, help="of the images each n-th")
    parser.add_argument("--depth", type=int, default=8, help="lives that are crashed again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.image:
        try:
            return try_again(options.image)
        except (KeyError, ValueError) as error:
            parser.error(f"{options.image} is no image of the code as it is now: {error}")
    started = time.monotonic()
    once = {name: Findings() for name in options.only}
    again = {name: Findings() for name in options.only}
    found = list(jobs(options.only, stride=options.stride, depth=options.depth))
    for name, findings in examine_all(found, options.jobs):
        workload = name.split("/", 1)[0]
        (again if "/" in name else once)[workload] += findings
    say(["one crash", *table(once), "", "a crash in the life after a crash", *table(again), ""])
    all_found = [*once.values(), *again.values()]
    failures = [failure for findings in all_found for failure in findings.failures]
    say(describe(failures))
    images = sum(findings.kinds.total() for findings in all_found)
    say([f"{images} images, {len(failures)} failed, in {time.monotonic() - started:.0f} s"])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
