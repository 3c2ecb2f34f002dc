"""The progress of a command that takes long, on stderr."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

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


def standstill(status: Mapping[str, Any], *, needs_auditor: bool) -> str | None:
    """Return why self-healing does nothing now, for a person; None: it works. ``needs_auditor``:
    of work that the auditor does, else of what any worker does."""
    if not status["is_enabled"]:
        return "self-healing is off; `fencelog autorecovery on` turns it on"
    if needs_auditor and status["auditor"] is None:
        return "there is no auditor: no autorecovery runs, or one is about to be elected"
    if not needs_auditor and not status["processes"]:
        return "no autorecovery runs"
    return None


def waiting_text(waiting: Mapping[str, Any]) -> str:
    """Return why a repair waits, for a person: with the entries of which there is no copy, if that
    is the reason."""
    named = [str(low) if low == high else f"{low}..{high}" for low, high in waiting["entries"]]
    if named:
        ranges = [(low, high) for low, high in waiting["entries"]]
        more = waiting["entry_count"] - sum(high - low + 1 for low, high in ranges)
        if waiting["are_more"]:
            named.append(f"and at least {more:,} more" if more else "and possibly more")
        elif more:
            named.append(f"and {more:,} more")
    entries = f", {'entry' if waiting['entry_count'] == 1 else 'entries'} " if named else ""
    return f"{waiting['why']}{entries}{', '.join(named)}: {waiting['detail']}"
