"""The choice of the demo's files, and the comparison of what came back with what went in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fencelog.broker.limits import MAX_NAME_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import KIB, MAX_MESSAGE_BYTES, MIB

SYSTEM_LOGS = Path("/var/log")
ENOUGH_BYTES = 256 * KIB
"""The size below which the machine's own logs are too small, so that the standard library's source
is taken."""

MOST_FILES = 24
"""The limit of the files that the demo chooses by itself."""

_CHUNK_BYTES = 1 * MIB
_PROBE_BYTES = 8 * KIB


@dataclass(frozen=True, slots=True)
class DemoFile:
    """A file and the topic it goes to."""

    path: Path
    topic: str
    size: int


def choose_files(logs: Path | None) -> list[DemoFile]:
    """Return all files of a directory; without one, the machine's text logs or Python's own source.

    Raises FencelogError(NOT_FOUND) when there is nothing to read.
    """
    if logs is not None:
        paths = list(_readable(logs))
    else:
        paths = _largest(filter(is_text, _readable(SYSTEM_LOGS)))
        if sum(path.stat().st_size for path in paths) < ENOUGH_BYTES:
            paths = _largest(Path(os.__file__).parent.glob("*.py"))
    if not paths:
        raise FencelogError(ErrorCode.NOT_FOUND, f"there is no readable file in {logs}")
    return [
        DemoFile(path, topic, path.stat().st_size)
        for path, topic in zip(paths, topic_names(path.name for path in paths), strict=True)
    ]


def topic_names(file_names: Iterable[str]) -> list[str]:
    """Return a topic of the namespace ``demo`` for each file; files of one name get numbers."""
    names: list[str] = []
    for file_name in file_names:
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", file_name).lstrip("._-")[: MAX_NAME_BYTES - 8]
        name, number = f"demo/{base or 'file'}", 1
        while name in names:
            number += 1
            name = f"demo/{base or 'file'}-{number}"
        names.append(name)
    return names


def same_up_to_final_newline(one: Path, other: Path) -> bool:
    """Tell whether two files are equal, byte for byte, once one final newline is left out of
    each."""
    sizes = [_size_without_final_newline(path) for path in (one, other)]
    if sizes[0] != sizes[1]:
        return False
    left = sizes[0]
    with one.open("rb") as first, other.open("rb") as second:
        while left:
            count = min(left, _CHUNK_BYTES)
            if first.read(count) != second.read(count):
                return False
            left -= count
    return True


def is_text(path: Path) -> bool:
    """Tell whether a file looks like lines of text, in any encoding that needs no NUL."""
    with path.open("rb") as file:
        probe = file.read(_PROBE_BYTES)
    return bool(probe) and b"\0" not in probe and path.suffix not in (".gz", ".xz", ".zst")


def too_long_line(path: Path) -> int | None:
    """Return the number of the first line that is longer than a message may be, or None."""
    line, length = 1, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            head, newline, tail = chunk.partition(b"\n")
            if length + len(head) > MAX_MESSAGE_BYTES:
                return line
            if newline:  # a chunk is shorter than the limit, so no line within it is too long
                line += chunk.count(b"\n")
                tail = tail.rpartition(b"\n")[2]
                length = len(tail)
            else:
                length += len(head)
    return None


def count_lines(path: Path) -> int:
    """Count the lines, including a last one without a line end."""
    with path.open("rb") as file:
        lines, last = 0, b"\n"
        while chunk := file.read(_CHUNK_BYTES):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n")


def _size_without_final_newline(path: Path) -> int:
    size = path.stat().st_size
    if size == 0:
        return 0
    with path.open("rb") as file:
        file.seek(size - 1)
        return size - (file.read(1) == b"\n")


def _readable(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and os.access(path, os.R_OK):
            yield path


def _largest(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_size, reverse=True)[:MOST_FILES]
