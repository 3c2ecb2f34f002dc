"""The secret that bookies and their clients share, from a file that both can read."""

from __future__ import annotations

from pathlib import Path

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.rpc.authentication import SharedSecret


def secret_from(path: Path | None, *, host: Host) -> SharedSecret | None:
    """Return the secret with which both ends authenticate, or None without a file. Surrounding
    white space does not count.

    Raises FencelogError(BAD_REQUEST): it cannot be read, or is too short.
    """
    if path is None:
        return None
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"cannot read the secret in {path}: {error.strerror}"
        ) from error
    return SharedSecret(secret, host=host)
