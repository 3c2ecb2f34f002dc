"""The directories of a bookie: their lock, the record of their owner, and their creation.

    DATA/lock         held by flock while a process uses the directory
    DATA/identity     cookie, state, incarnation that is replaced (identity/cookies.py)
    DATA/unsynced     exists while adds are answered before they are synced: if it is found at a
                      start, some may be lost
    GIVEN/cookie      the mark of a journal or ledger directory that was given
    and the shards    (storage/shard_directory.py), here or in directories of their own

Files missing from a directory that was complete were lost, and the bookie refuses to start rather
than break its promises (``identity/cookies_core.py``; seed 000, operator example 2).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import DirectoryLock, DirectorySpace, Disk, DiskSpace
from fencelog.bookie.disk.space import fullest
from fencelog.bookie.identity.cookies import (
    DATA,
    Identity,
    Kind,
    Mark,
    Place,
    State,
    decode_identity,
    decode_mark,
    encode_identity,
    encode_mark,
)
from fencelog.bookie.identity.cookies_core import Found, FoundDirectory, Make
from fencelog.bookie.storage.shard_directory import ShardDirectory, shard_paths
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host

_MARK = "cookie"

_LOST_AND_FOUND = "lost+found"
"""The name of a directory in the root of a volume that was just formatted."""


class DataDirectory:
    """The paths and small files of a bookie. Its methods block: call them on an I/O thread. They
    raise OSError, and FencelogError where they say so."""

    def __init__(self, disk: Disk, config: BookieConfig) -> None:
        self._disk = disk
        self._lock: DirectoryLock | None = None
        self.path = path = config.data_dir
        self.given: dict[Place, Path] = {
            (kind, number): directory
            for kind, directories in (
                (Kind.JOURNAL, config.journal_dirs),
                (Kind.LEDGER, config.ledger_dirs),
            )
            for number, directory in enumerate(directories)
        }
        self.shards = [ShardDirectory(disk, paths) for paths in shard_paths(config)]
        self._places = places_of(config)
        self._identity = path / "identity"
        self._unsynced = path / "unsynced"

    def lock(self) -> None:
        """Lock the data directory. Raises FencelogError(DATA_DIRECTORY_IN_USE)."""
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

    # -- who it is ---------------------------------------------------------------------------

    def inspect(self) -> Found:
        """Return the content of the directories, durably: a killed process may have left the latest
        of it in memory alone. Raises FencelogError: CORRUPT, UNSUPPORTED_VERSION."""
        for path in (self.path, *self.given.values()):
            with suppress(FileNotFoundError):
                self._disk.sync_directory(path)
        data = self._disk.read_file(self._identity)
        return Found(
            str(self.path),
            None if data is None else decode_identity(self._identity, data),
            self._others(self.path, {"lock"}) if data is None else (),
            tuple(self._look_at(place, path) for place, path in self.given.items()),
            self._disk.read_file(self._unsynced) is not None,
        )

    def read_identity(self) -> Identity:
        """Read the identity. Raises FencelogError: CORRUPT (also where there is none),
        UNSUPPORTED_VERSION."""
        data = self._disk.read_file(self._identity)
        if data is None:
            raise FencelogError(ErrorCode.CORRUPT, f"{self._identity} is missing")
        return decode_identity(self._identity, data)

    def write_identity(self, identity: Identity) -> None:
        self._disk.replace_file(self._identity, encode_identity(identity))

    def set_state(self, identity: Identity, state: State) -> Identity:
        """Set the state. FORGOT: the directory is made and registered. READY: all ledgers that may
        have lost entries are durably fenced."""
        identity = replace(identity, state=state)
        self.write_identity(identity)
        return identity

    def mark_unsynced(self) -> None:
        """Record that adds may be lost from now on, unless ``unmark_unsynced`` is reached."""
        self._disk.replace_file(self._unsynced, b"adds are answered before they are synced\n")

    def unmark_unsynced(self) -> None:
        """Remove the mark: all answered adds are synced, or an identity records that they may not
        be."""
        self._disk.remove(self._unsynced)
        self._disk.sync_directory(self.path)

    def space(self) -> DiskSpace:
        """Return the space of the fullest disk that has ledgers. Raises
        FencelogError(STORAGE_FAILED)."""
        return fullest(self.spaces())

    def spaces(self) -> list[DirectorySpace]:
        """Return the space of the disk of every directory. Raises
        FencelogError(STORAGE_FAILED)."""
        holds: dict[Path, set[str]] = {self.path: {"identity"}}
        for shard in self.shards:
            holds.setdefault(shard.paths.journal, set()).add("journal")
            holds.setdefault(shard.paths.ledgers, set()).add("ledgers")
        try:
            return [
                DirectorySpace(path, tuple(sorted(holds[path])), self._disk.space(path))
                for path in sorted(holds)
            ]
        except OSError as error:
            raise FencelogError(
                ErrorCode.STORAGE_FAILED, f"cannot tell the free space of {self.path}: {error}"
            ) from error

    # -- making ------------------------------------------------------------------------------

    def make(self, wanted: Make, host: Host) -> None:
        """Make new or lost directories. The identity comes first: from then on no earlier promise
        is relied on. A directory is marked as unfinished before it is made, and as complete after.
        Raises FencelogError(BAD_REQUEST) for one that was given twice."""
        identity, places = wanted.identity, wanted.places
        self.write_identity(identity)
        given = [place for place in self.given if place in places]
        for place in given:
            self._disk.make_directory(self.given[place])
            self._write_mark(identity, place, is_made=False)
        self._check_apart(given)
        for shard, (journal, ledgers) in zip(self.shards, self._places, strict=True):
            directory, salt = identity.directory_bytes, host.random_bytes(16)
            if ledgers in places:
                shard.make(directory=directory, salt=salt)
            elif journal in places:
                shard.make_journal(directory=directory, salt=salt)
        for place in given:
            self._write_mark(identity, place, is_made=True)

    def _check_apart(self, places: list[Place]) -> None:
        """Refuse a directory that was given under two paths: there, one mark replaces the other."""
        for place in places:
            mark = self._look_at(place, self.given[place]).mark
            if mark is not None and mark.place != place:
                self._disk.remove(self.given[place] / _MARK)
                raise FencelogError(
                    ErrorCode.BAD_REQUEST,
                    f"{self.given[place]} is the same directory as {self.given[mark.place]}: give "
                    "each of them its own",
                )

    def _write_mark(self, identity: Identity, place: Place, *, is_made: bool) -> None:
        made_in = identity.cookie.made_in(place)
        mark = Mark(identity.bookie_id, place, made_in, is_made)
        self._disk.replace_file(self.given[place] / _MARK, encode_mark(mark))

    def _look_at(self, place: Place, path: Path) -> FoundDirectory:
        data = self._disk.read_file(path / _MARK)
        if data is not None:
            return FoundDirectory(place, str(path), decode_mark(path / _MARK, data))
        return FoundDirectory(place, str(path), others=self._others(path, set()))

    def _others(self, path: Path, expected: set[str]) -> tuple[str, ...]:
        """Return names that a new directory does not have. Given directories within it are checked
        separately, and temporary files of a replacement are ignored."""
        try:
            names = set(self._disk.names(path))
        except FileNotFoundError:
            return ()
        given = {
            directory.relative_to(path).parts[0]
            for directory in self.given.values()
            if directory != path and directory.is_relative_to(path)
        }
        never_there = {"identity.new", f"{_MARK}.new", _LOST_AND_FOUND}
        return tuple(sorted(names - given - expected - never_there))


def places_of(config: BookieConfig) -> list[tuple[Place, Place]]:
    """Return, for each shard, the directories of its journal and of its entry logs and index."""
    journals = [(Kind.JOURNAL, i) for i in range(len(config.journal_dirs))] or [DATA]
    ledgers = [(Kind.LEDGER, i) for i in range(len(config.ledger_dirs))] or [DATA]
    return [
        (journals[number % len(journals)], ledgers[number % len(ledgers)])
        for number in range(config.shard_count)
    ]
