"""The directory in which the processes of a drill keep their data."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def drill_directory(*, keep: bool) -> Iterator[Path]:
    """Create a fresh directory, and remove it afterwards unless ``keep``."""
    directory = Path(tempfile.mkdtemp(prefix="fencelog-drill-"))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
