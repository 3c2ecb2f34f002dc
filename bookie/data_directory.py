"""The data directory of a bookie: its lock, its identity, its checkpoint, where things are.

    DATA/lock         held by flock while a process uses the directory
    DATA/identity     who this is: bookie id, incarnation, state, below
    DATA/checkpoint   where replay begins
    DATA/unsynced     is there while the journal is not synced: found at a start, adds may be lost
    DATA/journal/     journal files            DATA/entrylog/   entry logs
    DATA/index/       RocksDB

Identity and checkpoint are small files, replaced as a whole:

     0  4s  magic: FLID, FLCP
     4  u16 version 1
     6  u16 0
     8  u32 size of the body
    12  u32 CRC32C of bytes 0..12 and the body
    16  body: a JSON object

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

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fencelog.bookie.disk import DirectoryLock, Disk
from fencelog.bookie.index import Index
from fencelog.bookie.journal_file import JournalPosition, journal_name
from fencelog.bookie.records import FILE_HEADER_BYTES, JOURNAL_MAGIC, FileHeader
from fencelog.ledgers.digest import crc32c
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host

_HEAD_BYTES = 12
_BODY_AT = 16
_VERSION = 1
_IDENTITY_MAGIC = b"FLID"
_CHECKPOINT_MAGIC = b"FLCP"
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


def encode_small_file(magic: bytes, fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields, sort_keys=True).encode() + b"\n"
    head = magic + _VERSION.to_bytes(2, "little") + bytes(2) + len(body).to_bytes(4, "little")
    return head + crc32c(body, crc32c(head)).to_bytes(4, "little") + body


def decode_small_file(path: Path, magic: bytes, data: bytes) -> dict[str, Any]:
    """Raises FencelogError(CORRUPT, UNSUPPORTED_VERSION)."""
    head, body = data[:_HEAD_BYTES], data[_BODY_AT:]
    checksum = int.from_bytes(data[_HEAD_BYTES:_BODY_AT], "little")
    whole = len(data) > _BODY_AT and int.from_bytes(head[8:12], "little") == len(body)
    if not whole or head[:4] != magic or crc32c(body, crc32c(head)) != checksum:
        raise FencelogError(ErrorCode.CORRUPT, f"{path} is damaged", path=str(path))
    if int.from_bytes(head[4:6], "little") != _VERSION:
        raise FencelogError(ErrorCode.UNSUPPORTED_VERSION, f"{path} has an unknown version")
    fields: dict[str, Any] = json.loads(body)
    return fields


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

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._lock: DirectoryLock | None = None
        self.path = path
        self.journal = path / "journal"
        self.entry_log = path / "entrylog"
        self.index = path / "index"
        self._identity = path / "identity"
        self._unsynced = path / "unsynced"
        self._checkpoint = path / "checkpoint"

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

    def free_bytes(self) -> int:
        """What its disk has left. Raises FencelogError(STORAGE_FAILED)."""
        try:
            return self._disk.free_bytes(self.path)
        except OSError as error:
            raise FencelogError(
                ErrorCode.STORAGE_FAILED, f"cannot tell the free space of {self.path}: {error}"
            ) from error

    def read_checkpoint(self) -> JournalPosition:
        """Where replay begins: everything before it is in entry logs and index."""
        data = self._disk.read_file(self._checkpoint)
        if data is None:
            raise FencelogError(ErrorCode.CORRUPT, f"{self._checkpoint} is missing")
        fields = decode_small_file(self._checkpoint, _CHECKPOINT_MAGIC, data)
        return JournalPosition(
            sequence=int(fields["sequence"]),
            file_id=int(fields["file_id"]),
            offset=int(fields["offset"]),
        )

    def write_checkpoint(self, position: JournalPosition) -> None:
        """Move the checkpoint; durable on return. Raises OSError."""
        fields = {
            "sequence": position.sequence,
            "file_id": position.file_id,
            "offset": position.offset,
        }
        self._disk.replace_file(self._checkpoint, encode_small_file(_CHECKPOINT_MAGIC, fields))

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
        """Everything an empty bookie has: an index with a mark, a journal file, a checkpoint."""
        for directory in (self.journal, self.entry_log, self.index):
            self._disk.make_directory(directory)
        for name in self._disk.names(self.journal):
            self._disk.remove(self.journal / name)
        index = Index(self._disk.open_store(self.index, create=True))
        try:
            index.write([], [], mark=1)
        finally:
            index.close()
        header = FileHeader(JOURNAL_MAGIC, 1, 1, identity.directory_bytes, host.random_bytes(16))
        file = self._disk.create(self.journal / journal_name(1))
        try:
            file.write([header.encode()], 0)
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(self.journal)
        self.write_checkpoint(JournalPosition(sequence=1, file_id=1, offset=FILE_HEADER_BYTES))
        return self._write_identity(identity, _FORGOT)

    def _write_identity(self, identity: Identity, state: str) -> Identity:
        identity = replace(identity, state=state)
        data = encode_small_file(_IDENTITY_MAGIC, asdict(identity))
        self._disk.replace_file(self._identity, data)
        return identity
