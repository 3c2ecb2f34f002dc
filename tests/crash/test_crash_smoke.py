"""Some of the crash images of every workload, in the suite; ``make crash`` tries them all."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.crash.examine import examine, examine_by_name, kill_boundaries, next_life, story_of
from tests.crash.images import KINDS
from tests.crash.run_crash import describe, examine_all, jobs, table
from tests.crash.workloads import WORKLOADS

STRIDE, THOROUGH_STRIDE = 40, 6


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "stride", [STRIDE, pytest.param(THOROUGH_STRIDE, marks=pytest.mark.thorough)]
)
def test_every_workload_crashed_here_and_there(stride: int) -> None:
    found = list(jobs(list(WORKLOADS), stride=stride, depth=1))
    kinds, failures = Counter[str](), []
    for _, findings in examine_all(found, os.cpu_count() or 1):
        kinds += findings.kinds
        failures += findings.failures
    assert failures == [], "\n".join(describe(failures))
    assert set(kinds) == set(KINDS)
    assert kinds.total() > 9600 / stride


@pytest.mark.timeout(900)
def test_one_workload_crashed_everywhere() -> None:
    story = story_of("flush")
    findings = examine(story, story.crashes())
    assert findings.failures == []
    assert findings.kinds.total() > 150
    assert len(list(table({"flush": findings}))) == 3


@pytest.mark.timeout(900)
def test_what_a_start_goes_by_is_durable_before_it_serves() -> None:
    """A killed process leaves its latest small files in memory alone. Who starts from them, and
    then loses power, must not find the older ones."""
    story = story_of("first-start")
    failures = []
    for boundary in kill_boundaries(story)[::2]:
        second = next_life(story, boundary, None)
        found = [crash for crash in second.crashes() if crash.kind in {"none", "prefix", "names"}]
        failures += examine(second, found[:20]).failures
    assert failures == []


def test_two_recordings_are_the_same() -> None:
    for name in ("append", "compaction"):
        first, second = story_of(name), story_of(name)
        assert first.recording == second.recording


def test_an_image_is_found_again_by_its_name() -> None:
    story = story_of("fence")
    crash = story.crashes()[20]
    assert examine_by_name(story.image_name(crash)) is None
    assert examine_by_name("fence/20/kill/25/0") is None
    for nothing in ("fence/20/2", "fence/20/11111111"):
        with pytest.raises(ValueError, match=nothing.rsplit("/", 1)[1]):
            examine_by_name(nothing)
    with pytest.raises(KeyError):
        examine_by_name("nothing/1/1")
