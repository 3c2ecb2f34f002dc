"""The users as whom a process authenticates to ZooKeeper, from a file.

Each line is one of them, ``name:password``. A process authenticates as all of them, and the nodes
that it creates are for all of them: so a password is changed by a file that has both for a while.
The line ``world:anyone``, ZooKeeper's own name for everybody, leaves new nodes open to all: so
processes with and without a file work side by side while a cluster gets its first one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import (
    MAX_ZOOKEEPER_CREDENTIALS_BYTES,
    MAX_ZOOKEEPER_USERS,
    MIN_SECRET_BYTES,
)
from fencelog.ledgers.metastore.zookeeper_wire import CREATORS_ALONE, OPEN_TO_ALL

EVERYBODY = b"world:anyone"

# ASCII: the server decodes them by the character set of its platform.
_USER = re.compile(rb"[!-9;-~]+:[!-~]{%d,}" % MIN_SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class ZooKeeperCredentials:
    """The users of one file, and what new nodes are for; without a file there are none."""

    path: Path | None
    users: tuple[bytes, ...] = field(default=(), repr=False)
    access: bytes = OPEN_TO_ALL
    """The access list of new nodes."""

    @property
    def name(self) -> str:
        return f"the users in {self.path}"

    @property
    def why_refused(self) -> str:
        """The reason why the access list of a node refuses these users."""
        if self.path is None:
            return "the metadata URL has no credentials=FILE, and the node is not open to all"
        return f"the node is for others than {self.name}"


NOBODY = ZooKeeperCredentials(None)


def credentials_from(path: Path) -> ZooKeeperCredentials:
    """Return the users of a file. Raises FencelogError(BAD_REQUEST) naming the file, and the line
    if it is one, and no password."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ZOOKEEPER_CREDENTIALS_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: no path has a null byte
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _bad(path, f"cannot be read: {why}") from error
    if len(content) > MAX_ZOOKEEPER_CREDENTIALS_BYTES:
        raise _bad(path, f"has more than {MAX_ZOOKEEPER_CREDENTIALS_BYTES} bytes")
    users: list[bytes] = []
    is_open = False
    for number, line in enumerate(content.splitlines(), 1):
        user = line.strip()
        if user == EVERYBODY:
            is_open = True
        elif user and _USER.fullmatch(user) is None:
            raise _bad(
                path,
                f"line {number} is no name:password of visible ASCII characters with a password "
                f"of {MIN_SECRET_BYTES} or more",
            )
        elif user and user not in users:
            users.append(user)
    if not 0 < len(users) <= MAX_ZOOKEEPER_USERS:
        raise _bad(path, f"has {len(users)} users, 1 to {MAX_ZOOKEEPER_USERS} are allowed")
    return ZooKeeperCredentials(path, tuple(users), OPEN_TO_ALL if is_open else CREATORS_ALONE)


def _bad(path: Path, why: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"{path}, the credentials for ZooKeeper, {why}")
