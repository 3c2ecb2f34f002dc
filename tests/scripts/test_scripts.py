"""The stories of the protocol: every transcript says what the code does, line for line."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.scripts.log_stories import play_log, play_script
from tests.scripts.transcripts import play

SCRIPTS = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_story(script: Path) -> None:
    """The command ``python -m tests.scripts.refresh NAME`` follows a change that is meant; read its
    diff."""
    told = script.read_text("utf-8")
    played = play_script(script)
    difference = unified_diff(told.splitlines(), played.splitlines(), "told", "played", lineterm="")
    assert played == told, "\n" + "\n".join(difference)


def test_there_are_stories() -> None:
    assert len(SCRIPTS) >= 30
    assert len([script for script in SCRIPTS if script.stem.startswith("log_")]) >= 10


STORY = """bookies b1
c1 creates L1 on b1 with Qw 1 Qa 1
c1 appends E0
----
zk: L1 is open [0: b1] (version 0)
c1 -> b1  add 0 (lac -1)

# A remark.

deliver c1 -> b1
----
b1 -> c1  ok
c1: acknowledged up to 0
"""


def test_a_story_that_is_true_stays_as_it_is() -> None:
    assert play(STORY) == STORY


@pytest.mark.parametrize(
    ("told", "claimed"),
    [
        ("c1: acknowledged up to 0", "c1: acknowledged up to 1"),
        ("c1: acknowledged up to 0\n", ""),
        ("b1 -> c1  ok", "b1 -> c1  ok\nb1 -> c1  ok"),
    ],
)
def test_a_story_that_is_not_true_is_corrected(told: str, claimed: str) -> None:
    assert play(STORY.replace(told, claimed)) == STORY


LOG_STORY = """the log serves L1
----
a roll may be due at 14400 s
write to L1
[serving] appends are sent

# A remark.

L1 acknowledges 9
----
acknowledged up to 9
create a ledger
[rolling] appends are sent
"""


def test_a_log_story_is_corrected_where_it_is_not_true() -> None:
    assert play_log(LOG_STORY) == LOG_STORY
    assert play_log(LOG_STORY.replace("create a ledger\n", "")) == LOG_STORY


@pytest.mark.parametrize("command", ["L1 dances", "it is recovered", "it is done"])
def test_a_command_of_a_log_story_that_cannot_be_carried_out_is_named(command: str) -> None:
    with pytest.raises((ValueError, AssertionError)) as caught:
        play_log(f"{LOG_STORY}\n{command}\n")
    assert f"in the command: {command}" in caught.value.__notes__


@pytest.mark.parametrize("command", ["c1 dances", "deliver c1 -> b2", "show b7"])
def test_a_command_that_cannot_be_carried_out_is_named(command: str) -> None:
    with pytest.raises((ValueError, KeyError)) as caught:
        play(f"{STORY}\n{command}\n")
    assert f"in the command: {command}" in caught.value.__notes__
