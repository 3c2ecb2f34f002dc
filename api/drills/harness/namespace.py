"""A drill's own small disk and network. Both live in namespaces that need no root; they are
invisible from outside, and end with the last process of the drill."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from fencelog.api.local_cluster.child_process import fencelog_command
from fencelog.ledgers.errors import ErrorCode, FencelogError

UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")


def enter_namespace(arguments: Sequence[str], *, network: bool = False) -> NoReturn:
    """Replace this process by ``fencelog ARGUMENTS…`` in user and mount namespaces of its own, and
    in a ``network``.

    Raises FencelogError(BAD_REQUEST) with the reason where this machine does not allow that.
    """
    unshare = [*UNSHARE, *["--net"] * network]
    run([*unshare, "true"], f"make a user and {'network' if network else 'mount'} namespace")
    command = [*unshare, *fencelog_command(*arguments)]
    os.execvp(command[0], command)


@contextlib.contextmanager
def small_disk(directory: Path, size_mib: int) -> Iterator[None]:
    """Mount a tmpfs of so many MiB on a directory that is made for it; its content is lost at the
    end.

    Raises FencelogError(BAD_REQUEST).
    """
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "fencelog-drill", str(directory)]
    run(mount, "mount a tmpfs")
    try:
        yield
    finally:
        run(["umount", str(directory)], "unmount a tmpfs")


def run(command: Sequence[str], what: str) -> None:
    """Run a command. Raises FencelogError(BAD_REQUEST): "cannot WHAT: reason"."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        reason = f"there is no {command[0]} here"
    else:
        if done.returncode == 0:
            return
        reason = done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
    raise FencelogError(ErrorCode.BAD_REQUEST, f"cannot {what}: {reason}")
