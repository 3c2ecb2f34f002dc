"""The commands of OPERATIONS.md, as written: what a scenario runs is what an operator reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.house import ROOT

OPERATIONS = ROOT / "k8s" / "OPERATIONS.md"

_HEADING = re.compile(r"^#{2,3} (.+)$")
_FENCE = re.compile(r"^ *```(\w*)$")


@dataclass(frozen=True)
class Block:
    """A block of code: the heading above it, its language, its lines without the indentation of the
    list that it is in."""

    heading: str
    language: str
    text: str


def blocks(document: Path = OPERATIONS) -> list[Block]:
    """Return every block of code of a document, in order."""
    found: list[Block] = []
    heading, language, indent = "", "", 0
    lines: list[str] | None = None
    for line in document.read_text("utf-8").splitlines():
        fence = _FENCE.match(line)
        if lines is None:
            named = _HEADING.match(line)
            heading = named[1] if named else heading
            if fence:
                language, lines, indent = fence[1], [], len(line) - len(line.lstrip())
        elif fence:
            found.append(Block(heading, language, "\n".join(lines) + "\n"))
            lines = None
        else:
            lines.append(line[indent:])
    return found


def block(begins: str, *, heading: str | None = None) -> Block:
    """Return the one block that begins so, below a heading. Raises LookupError."""
    found = [
        each
        for each in blocks()
        if each.text.startswith(begins) and heading in (None, each.heading)
    ]
    if len(found) != 1:
        raise LookupError(f"{len(found)} blocks of {OPERATIONS.name} begin with {begins!r}")
    return found[0]


def part(begins: str, first: str, last: str) -> str:
    """Return the lines of a block from the one that begins with ``first`` to the one that begins
    with ``last``. Raises LookupError."""
    lines = block(begins).text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(first)]
    ends = [number for number, line in enumerate(lines) if line.startswith(last)]
    if not starts or not ends:
        raise LookupError(f"the block that begins with {begins!r} has no {first!r} … {last!r}")
    return "\n".join(lines[starts[0] : ends[-1] + 1]) + "\n"
