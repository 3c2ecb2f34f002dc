"""The demo on lines that are hard to carry: everything comes back, though a broker is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.api.bench.demo.demo import MAX_WORD, shorten_word
from tests.support.fencelog_cli import fencelog

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.mark.thorough
def test_hard_lines_come_back_over_a_killed_broker(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    # The kill falls into the first line: nothing was appended yet, and nobody owned the topic.
    (logs / "long.log").write_bytes(b"x" * 2_000_000 + b"\nshort\n" + b"y" * 500_000)
    (logs / "bytes.log").write_bytes(bytes(range(1, 256)) + b"\r\n\r\nno newline at the end")
    (logs / "blank.log").write_bytes(b"\n\n\n")
    done = fencelog("demo", "--logs", str(logs), "--no-spark", timeout_s=240)
    printed = done.stdout.decode()
    assert done.returncode == 0, printed + done.stderr.decode()
    assert "in the middle of appending to demo/long.log" in printed
    assert "every line came back as it was" in printed
    assert printed.count(" same ") == 3


def test_a_printed_word_fits_into_a_line() -> None:
    assert shorten_word("word") == "word"
    assert shorten_word("x" * 1000) == "x" * (MAX_WORD - 1) + "…"
