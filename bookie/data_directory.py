"""The data directory of a bookie: its lock, its identity, its checkpoint, where things are.

    DATA/lock         held by flock while a process uses the directory
    DATA/identity     who this is: bookie id, incarnation; written in two steps, below
    DATA/checkpoint   where replay begins
    DATA/journal/     journal files            DATA/entrylog/   entry logs
    DATA/index/       RocksDB

Identity and checkpoint are small files, replaced as a whole:

     0  4s  magic: FLID, FLCP
     4  u16 version 1
     6  u16 0
     8  u32 size of the body
    12  u32 CRC32C of bytes 0..12 and the body
    16  body: a JSON object

A new directory is made under an identity with state "new"; only when everything in it is durable
does the identity say "ready". So whatever is missing from a "ready" directory was lost, and the
bookie refuses to start rather than forget what it promised (seed 000, operator example 2); a "new"
one was never served from and is made again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencelog.bookie.disk import DirectoryLock, Disk
from fencelog.bookie.index import Index
from fencelog.bookie.journal import JournalPosition, journal_name
from fencelog.bookie.records import FILE_HEADER_BYTES, JOURNAL_MAGIC, FileHeader
from fencelog.ledgers.digest import crc32c
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host

_HEAD_BYTES = 12
_BODY_AT = 16
_VERSION = 1
_IDENTITY_MAGIC = b"FLID"
_CHECKPOINT_MAGIC = b"FLCP"


@dataclass(frozen=True, slots=True)
class Identity:
    bookie_id: str
    incarnation: str
    """32 hex digits, chosen when the directory was made: another directory, another incarnation
    (PROTOCOL.md rule 10)."""

    @property
    def incarnation_bytes(self) -> bytes:
        return bytes.fromhex(self.incarnation)


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
        """Who this directory belongs to; a directory that was never ready is made first.

        Raises FencelogError: BAD_REQUEST if it belongs to another bookie id, CORRUPT if its
        identity is missing or damaged while there is data.
        """
        data = self._disk.read_file(self._identity)
        if data is None:
            return self._create(bookie_id, host)
        fields = decode_small_file(self._identity, _IDENTITY_MAGIC, data)
        identity = Identity(str(fields["bookie_id"]), str(fields["incarnation"]))
        if bookie_id is not None and bookie_id != identity.bookie_id:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"data directory {self.path} belongs to bookie {identity.bookie_id}, "
                f"not to {bookie_id}",
            )
        if fields["state"] != "ready":
            self._make(identity, host)
        return identity

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
        leftover = set(self._disk.names(self.path)) - {"lock", "identity.new"}
        if leftover:
            raise FencelogError(
                ErrorCode.CORRUPT,
                f"{self._identity} is missing, but {self.path} holds {', '.join(sorted(leftover))}",
            )
        identity = Identity(
            bookie_id or f"bookie-{host.random_bytes(4).hex()}", host.random_bytes(16).hex()
        )
        self._write_identity(identity, "new")
        self._make(identity, host)
        return identity

    def _make(self, identity: Identity, host: Host) -> None:
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
        header = FileHeader(JOURNAL_MAGIC, 1, 1, identity.incarnation_bytes, host.random_bytes(16))
        file = self._disk.create(self.journal / journal_name(1))
        try:
            file.write([header.encode()], 0)
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(self.journal)
        self.write_checkpoint(JournalPosition(sequence=1, file_id=1, offset=FILE_HEADER_BYTES))
        self._write_identity(identity, "ready")

    def _write_identity(self, identity: Identity, state: str) -> None:
        fields = {
            "bookie_id": identity.bookie_id,
            "incarnation": identity.incarnation,
            "state": state,
        }
        self._disk.replace_file(self._identity, encode_small_file(_IDENTITY_MAGIC, fields))
