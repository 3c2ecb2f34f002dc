"""The script that changes bookies one at a time, over a kubectl that notes what it is told."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.scripts.kubectl import run_script

KUBECTL = """#!/bin/bash
echo "$*" >> "$PLACE/calls"
case "$*" in
    *jsonpath*) printf 3 ;;
    *"rollout status"*) [[ ! -e $PLACE/stuck ]] ;;
    *"autorecovery status"*)
        if [[ -e $PLACE/lacking ]]; then
            rm "$PLACE/lacking"
            echo "recent check: 2 ledgers lacked copies: 7, 9"
        else
            echo "recent check: 0 ledgers lacked copies; 0 to look at"
            if [[ -e $PLACE/talkative ]]; then rm "$PLACE/talkative"; seq 100000; fi
        fi ;;
    *"ledger underreplicated"*)
        if [[ -e $PLACE/marked ]]; then rm "$PLACE/marked"; echo "7 for 3 s: bookie-2"; fi ;;
esac
"""


def roll(place: Path) -> tuple[int, str, list[str]]:
    """The exit code, the output, and each call of kubectl, partitions as numbers."""
    script = "roll_bookies.sh"
    code, output, calls = run_script(
        place, KUBECTL, script, "kubectl", "change-the-pods", sleep=":"
    )
    short = [re.sub(r'.*"partition": (\d+)}.*', r"partition \1", call) for call in calls]
    return code, output, [call.removeprefix("-n fencelog ") for call in short]


LOOK = [
    "exec deployment/broker -- fencelog autorecovery status",
    "exec deployment/broker -- fencelog ledger underreplicated",
]
STATUS = "rollout status statefulset/bookie"


def test_each_bookie_waits_for_the_copies_of_the_one_before(tmp_path: Path) -> None:
    code, _, calls = roll(tmp_path)
    assert code == 0
    assert calls[1:] == [
        *("partition 3", "change-the-pods"),
        *("partition 2", STATUS, *LOOK),
        *("partition 1", STATUS, *LOOK),
        *("partition 0", STATUS, *LOOK),
    ]


def test_no_bookie_follows_while_copies_are_missing(tmp_path: Path) -> None:
    (tmp_path / "lacking").touch()
    (tmp_path / "marked").touch()
    code, output, calls = roll(tmp_path)
    assert code == 0
    assert output.count("bookie-2: waiting for its copies") == 2
    first = calls.index("partition 2")
    assert calls[first + 1 : calls.index("partition 1")] == [STATUS, LOOK[0], *LOOK, *LOOK]


def test_what_is_said_besides_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "talkative").touch()
    code, output, calls = roll(tmp_path)
    assert code == 0
    assert "waiting" not in output
    assert calls.count(LOOK[0]) == 3


def test_no_bookie_follows_one_that_does_not_get_ready(tmp_path: Path) -> None:
    (tmp_path / "stuck").touch()
    code, _, calls = roll(tmp_path)
    assert code != 0
    assert calls[-2:] == ["partition 2", STATUS]
