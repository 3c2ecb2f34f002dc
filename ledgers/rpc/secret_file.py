"""The secret that bookies and their clients share, from a file that both can read."""

from __future__ import annotations

from pathlib import Path

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.rpc.authentication import SharedSecret


def secret_from(
    path: Path | None, *, host: Host, accepted: Path | None = None
) -> SharedSecret | None:
    """Return the secret with which both ends authenticate, or None without a file. ``accepted``: a
    file with another one that clients may know instead. Surrounding white space does not count.

    Raises FencelogError(BAD_REQUEST): one cannot be read, is too short, or is accepted alone.
    """
    if path is None:
        if accepted is not None:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"{accepted} is accepted, but there is no secret of its own"
            )
        return None
    others = () if accepted is None else (_read(accepted),)
    return SharedSecret(_read(path), host=host, accepted=others)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"cannot read the secret in {path}: {error.strerror}"
        ) from error
