"""The oracle of commits: a batch is in the log as one of its attempts wrote it, or not at all."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.commits.history import CommitHistory


def violations(found: list[int | None], *, start: int, told: int | None = None) -> list[str]:
    """Return what is wrong with a batch whose messages were seen at these offsets."""
    seen: list[str] = []
    log: Any = SimpleNamespace(violate=lambda number, text: seen.append(text))
    commits = CommitHistory(log)
    attempt = commits.begin("query", 1)
    sent: Any = SimpleNamespace(payloads=[b"%d" % number for number in range(len(found))])
    attempt.sent.append([sent])
    if told is not None:
        commits.committed["query", 1] = told
    places = {b"%d" % number: at for number, at in enumerate(found) if at is not None}
    commits.check(start, places)
    return seen


@pytest.mark.parametrize(
    ("found", "start"),
    [
        ([4, 5, 6], 0),
        ([None, None, 6], 6),
        ([None, 5, 6], 5),
        ([0, 1, None, None], 22),  # the rest was trimmed before it was read
        ([None, 1, None], 3),
    ],
)
def test_a_batch_may_be_trimmed(found: list[int | None], start: int) -> None:
    assert violations(found, start=start) == []


@pytest.mark.parametrize(
    ("found", "start"),
    [
        ([4, 6, 7], 0),
        ([5, 4], 0),
        ([4, None, 6], 0),
        ([4, 5, None], 0),
        ([None, 5, None], 6),
        ([4, None, 7], 9),
    ],
)
def test_a_batch_is_whole_and_in_order(found: list[int | None], start: int) -> None:
    assert len(violations(found, start=start)) == 1


def test_a_batch_stands_where_its_committer_was_told() -> None:
    assert violations([4, 5], start=0, told=4) == []
    assert violations([4, 5], start=0, told=3) != []


@pytest.mark.parametrize(
    ("code", "newest_epoch", "violated"),
    [
        (ErrorCode.LIMIT_REACHED, 3, [25]),
        (ErrorCode.LIMIT_REACHED, 2, []),
        (ErrorCode.NO_OWNER, 3, []),
    ],
)
def test_an_owner_that_was_replaced_has_no_say_about_places(
    code: ErrorCode, newest_epoch: int, violated: list[int]
) -> None:
    seen: list[int] = []
    log: Any = SimpleNamespace(violate=lambda number, text: seen.append(number), counts=Counter())
    CommitHistory(log).turned_away(FencelogError(code, "refused"), 2, newest_epoch)
    assert seen == violated
