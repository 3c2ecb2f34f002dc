"""The data directory of a bookie: its lock, its identity, whether it may have forgotten something.

    DATA/lock         held by flock while a process uses the directory
    DATA/identity     who this is: bookie id, incarnation, state, below (small_file.py)
    DATA/unsynced     is there while the journal is not synced: found at a start, adds may be lost
    and its shards    (shard_directory.py), here or in directories of their own

The states of an identity:

    new     being made; never served from, and made again after a crash
    forgot  whole, but what another directory of this bookie id held, or what was not synced, may be
            forgotten: not to be served from before its ledgers are fenced (``boot.py``)
    ready   what is in it, is all that was promised

Each step is durable before the next begins. So whatever is missing from a "forgot" or "ready"
directory was lost, and the bookie refuses to start rather than forget what it promised (seed 000,
operator example 2). Who gets to "forgot" gets a new incarnation with it (PROTOCOL.md rule 10).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk import DirectoryLock, Disk, DiskSpace
from fencelog.bookie.shard_directory import ShardDirectory, shard_paths
from fencelog.bookie.small_file import decode_small_file, encode_small_file
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host

_IDENTITY_MAGIC = b"FLID"
_NEW, _FORGOT, _READY = "new", "forgot", "ready"

_LOST_AND_FOUND = "lost+found"
"""In the root of a volume that was just formatted."""


@dataclass(frozen=True, slots=True)
class Identity:
    bookie_id: str
    incarnation: str
    """32 hex digits, new when something may have been forgotten (PROTOCOL.md rule 10)."""
    directory: str
    """The first incarnation of the directory; all of its files name it."""
    state: str

    @property
    def directory_bytes(self) -> bytes:
        return bytes.fromhex(self.directory)

    @property
    def may_have_forgotten(self) -> bool:
        return self.state != _READY


def _decode_identity(path: Path, data: bytes) -> Identity:
    """Raises FencelogError(CORRUPT, UNSUPPORTED_VERSION)."""
    fields = decode_small_file(path, _IDENTITY_MAGIC, data)
    identity = Identity(
        fields["bookie_id"],
        fields["incarnation"],
        # One of before there was more than one incarnation names the only one it had.
        fields.get("directory", fields["incarnation"]),
        fields["state"],
    )
    if identity.state not in (_NEW, _FORGOT, _READY):
        raise FencelogError(ErrorCode.CORRUPT, f"{path} has state {identity.state}")
    return identity


class DataDirectory:
    """Paths and small files. Its methods block: they are lane work. They raise FencelogError."""

    def __init__(self, disk: Disk, config: BookieConfig) -> None:
        self._disk = disk
        self._lock: DirectoryLock | None = None
        self.path = path = config.data_dir
        self.shards = [ShardDirectory(disk, paths) for paths in shard_paths(config)]
        self._identity = path / "identity"
        self._unsynced = path / "unsynced"

    def lock(self) -> None:
        """Raises FencelogError(DATA_DIRECTORY_IN_USE)."""
        self._disk.make_directory(self.path)
        self._lock = self._disk.lock(self.path / "lock")
        if self._lock is None:
            raise FencelogError(
                ErrorCode.DATA_DIRECTORY_IN_USE,
                f"data directory {self.path} is in use by another process",
            )

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def load_or_create(self, bookie_id: str | None, host: Host) -> Identity:
        """Who this directory belongs to; one that is new is made first, and one that may have
        forgotten says so durably on return, in ``may_have_forgotten``.

        Raises FencelogError: BAD_REQUEST if it belongs to another bookie id, CORRUPT if its
        identity is missing or damaged while there is data.
        """
        data = self._disk.read_file(self._identity)
        if data is None:
            return self._create(bookie_id, host)
        identity = _decode_identity(self._identity, data)
        if bookie_id is not None and bookie_id != identity.bookie_id:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"data directory {self.path} belongs to bookie {identity.bookie_id}, "
                f"not to {bookie_id}",
            )
        if identity.state == _NEW:
            return self._make(identity, host)
        if self._disk.read_file(self._unsynced) is not None:
            incarnation = host.random_bytes(16).hex()
            identity = self._write_identity(replace(identity, incarnation=incarnation), _FORGOT)
            self.unmark_unsynced()
        return identity

    def mark_unsynced(self) -> None:
        """From now on adds may be lost unless ``unmark_unsynced`` is reached. Raises OSError."""
        self._disk.replace_file(self._unsynced, b"adds are answered before they are synced\n")

    def unmark_unsynced(self) -> None:
        """All that was answered is synced, or an identity says that it may be not. Raises
        OSError."""
        self._disk.remove(self._unsynced)
        self._disk.sync_directory(self.path)

    def mark_ready(self, identity: Identity) -> Identity:
        """All ledgers that may have been forgotten are durably fenced. Raises OSError."""
        return self._write_identity(identity, _READY)

    def space(self) -> DiskSpace:
        """Of the disk with the least left. Raises FencelogError(STORAGE_FAILED)."""
        paths = {self.path}
        for shard in self.shards:
            paths |= {shard.paths.journal, shard.paths.ledgers}
        try:
            return min(map(self._disk.space, sorted(paths)), key=lambda space: space.free_bytes)
        except OSError as error:
            raise FencelogError(
                ErrorCode.STORAGE_FAILED, f"cannot tell the free space of {self.path}: {error}"
            ) from error

    # -- a new directory ---------------------------------------------------------------------

    def _create(self, bookie_id: str | None, host: Host) -> Identity:
        leftover = set(self._disk.names(self.path)) - {"lock", "identity.new", _LOST_AND_FOUND}
        if leftover:
            raise FencelogError(
                ErrorCode.CORRUPT,
                f"{self._identity} is missing, but {self.path} holds {', '.join(sorted(leftover))}",
            )
        incarnation = host.random_bytes(16).hex()
        bookie_id = bookie_id or f"bookie-{host.random_bytes(4).hex()}"
        identity = Identity(bookie_id, incarnation, incarnation, _NEW)
        return self._make(self._write_identity(identity, _NEW), host)

    def _make(self, identity: Identity, host: Host) -> Identity:
        for shard in self.shards:
            shard.make(directory=identity.directory_bytes, salt=host.random_bytes(16))
        return self._write_identity(identity, _FORGOT)

    def _write_identity(self, identity: Identity, state: str) -> Identity:
        identity = replace(identity, state=state)
        data = encode_small_file(_IDENTITY_MAGIC, asdict(identity))
        self._disk.replace_file(self._identity, data)
        return identity
