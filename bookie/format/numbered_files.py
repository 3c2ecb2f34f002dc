"""Files named by a number: 16 hex digits and a suffix, so that names sort as numbers do."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from fencelog.bookie.disk.port import Disk


def file_name(file_id: int, suffix: str) -> str:
    return f"{file_id:016x}{suffix}"


def file_ids(disk: Disk, directory: Path, suffix: str) -> list[int]:
    """Return the numbers of such files in a directory, ascending. Files with other names are
    ignored."""
    found = map(_pattern(suffix).fullmatch, disk.names(directory))
    return sorted([int(match[1], 16) for match in found if match])


@cache
def _pattern(suffix: str) -> re.Pattern[str]:
    return re.compile(rf"([0-9a-f]{{16}}){re.escape(suffix)}")
