"""The directory of a bench, which is gone however the bench ends."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from fencelog.api.console import EXIT_TERMINATED


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """End the block at SIGTERM as at Ctrl-C, by an exception, so that everything is cleaned up;
    the exit code says which it was."""
    was_terminated = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal was_terminated
        was_terminated = True
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
            raise KeyboardInterrupt  # a shell without job control ignores it for what runs behind
        signal.raise_signal(signal.SIGINT)

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if was_terminated:
            raise typer.Exit(EXIT_TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def scratch_directory(parent: Path, *, keep: bool) -> Iterator[Path]:
    """Create a fresh directory on the disk of ``parent``, and remove it afterwards unless
    ``keep``."""
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=".fencelog-bench-", dir=parent))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
