"""The progress of a command that takes long, on stderr."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import typer

from fencelog.api.client.tasks import task_group

_REWRITE_S = 0.2
_PROGRESS_S = 5.0
"""The times between two states of progress: on a terminal, and in a file."""

_CLEAR = "\r\x1b[K"


@asynccontextmanager
async def progress_line(progress: Callable[[], str]) -> AsyncIterator[None]:
    """Show what ``progress`` returns while the block runs: as one line that is rewritten on a
    terminal, else as a line now and then."""
    is_terminal = sys.stderr.isatty()

    async def show() -> None:
        while True:
            await anyio.sleep(_REWRITE_S if is_terminal else _PROGRESS_S)
            before = _CLEAR if is_terminal else ""
            typer.echo(before + progress(), nl=not is_terminal, err=True)

    try:
        async with task_group() as group:
            group.start_soon(show)
            yield
            group.cancel_scope.cancel()
    finally:
        if is_terminal:
            typer.echo(_CLEAR, nl=False, err=True)


def duration(seconds: float) -> str:
    """Return a time for a person."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
