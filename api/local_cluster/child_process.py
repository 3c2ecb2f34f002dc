"""A fencelog process started by another one: its announcement, its signals, its end.

The child watches its stdin, a pipe whose other end only the parent holds: when the parent is gone,
for whatever reason, the child ends by itself. It runs in a session of its own, so that Ctrl-C in a
terminal reaches only the parent, which decides the order of ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio

from fencelog.ledgers.errors import ErrorCode, FencelogError

START_TIMEOUT_S = 40.0
"""The time for a start, longer than a service's own wait for ZooKeeper, whose error says more."""

STOP_TIMEOUT_S = 20.0
"""The time from SIGTERM to SIGKILL: a bookie flushes its write cache at the end."""


class ChildProcess:
    """A running child. ``announcement`` is what it printed when it was ready."""

    def __init__(
        self, process: asyncio.subprocess.Process, name: str, announcement: dict[str, Any]
    ) -> None:
        self._process = process
        self.name = name
        self.announcement = announcement

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], *, log: Path, enter: Sequence[str] = ()
    ) -> ChildProcess:
        """Run ``fencelog COMMAND… --child`` and wait until it serves; stderr goes to ``log``.
        ``enter``: a command that becomes the one after it, somewhere else (``nsenter …``).

        Raises FencelogError(BAD_REQUEST) with the last line it wrote, when it did not serve.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *enter,
                *fencelog_command(*command, "--child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        child = cls(process, name, {})
        line = b""
        try:
            with anyio.fail_after(START_TIMEOUT_S):
                line = await process.stdout.readline() if process.stdout else b""
        except TimeoutError:
            late = f"{name} was not ready after {START_TIMEOUT_S:.0f} s; see {log}"
            raise FencelogError(ErrorCode.BAD_REQUEST, late) from None
        finally:
            if not line:
                await child.kill()
        if not line:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"{name}: {_last_line(log)}")
        child.announcement = json.loads(line)
        return child

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after STOP_TIMEOUT_S; return when it has ended."""
        if self.is_running:
            self._process.terminate()
        with anyio.move_on_after(STOP_TIMEOUT_S, shield=True):
            await self._process.wait()
            return
        await self.kill()

    async def kill(self) -> None:
        """Send SIGKILL, as a crash would; return when it has ended."""
        if self.is_running:
            self._process.kill()
        with anyio.CancelScope(shield=True):
            await self._process.wait()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process (SIGSTOP) within the context, and continue it afterwards, unless it was
        killed."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.is_running:
                os.kill(self.pid, signal.SIGCONT)

    async def wait(self) -> int:
        """Wait for its end and return the exit code, negative for a signal's number."""
        return await self._process.wait()


def fencelog_command(*arguments: str) -> list[str]:
    """Return the command line in this Python."""
    return [sys.executable, "-m", "fencelog.api.cli.main", *arguments]


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    if not lines:
        return "it ended without a word"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(lines[-1])["message"])  # --log-format json
    return lines[-1].removeprefix("fencelog: ")
