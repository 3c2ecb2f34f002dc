"""A small disk for a drill: a tmpfs in user and mount namespaces of its own, which need no root.

Nothing outside sees the mount, and it is gone with the last process of the drill.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from fencelog.api.child_process import fencelog_command
from fencelog.ledgers.errors import ErrorCode, FencelogError

UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")


def enter_namespace(arguments: Sequence[str]) -> NoReturn:
    """Become ``fencelog ARGUMENTS…`` in namespaces of its own.

    Raises FencelogError(BAD_REQUEST) with the reason where this machine does not allow that.
    """
    _run([*UNSHARE, "true"], "make a user and mount namespace")
    command = [*UNSHARE, *fencelog_command(*arguments)]
    os.execvp(command[0], command)


@contextlib.contextmanager
def small_disk(directory: Path, size_mib: int) -> Iterator[None]:
    """A tmpfs of so many MiB on a directory that is made for it; what it holds is lost at the end.

    Raises FencelogError(BAD_REQUEST).
    """
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "fencelog-drill", str(directory)]
    _run(mount, "mount a tmpfs")
    try:
        yield
    finally:
        _run(["umount", str(directory)], "unmount a tmpfs")


def _run(command: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        reason = f"there is no {command[0]} here"
    else:
        if done.returncode == 0:
            return
        reason = done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
    raise FencelogError(ErrorCode.BAD_REQUEST, f"cannot {what}: {reason}")
