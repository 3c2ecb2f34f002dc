"""A bookie's data while no bookie runs on it, under the lock of its directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk
from fencelog.bookie.identity.cookies import Identity
from fencelog.bookie.identity.data_directory import DataDirectory
from fencelog.bookie.storage.shard_directory import ShardDirectory
from fencelog.ledgers.errors import ErrorCode, FencelogError


@dataclass(frozen=True, slots=True)
class Offline:
    """The data of a stopped bookie. ``disk`` is the one to read the data with."""

    disk: Disk
    config: BookieConfig
    directory: DataDirectory

    @property
    def shards(self) -> list[ShardDirectory]:
        return self.directory.shards

    def identity(self) -> Identity:
        """Read the identity of the data's bookie. Raises FencelogError(CORRUPT,
        UNSUPPORTED_VERSION)."""
        return self.directory.read_identity()

    def shard_of(self, ledger_id: int) -> ShardDirectory:
        return self.shards[ledger_id % len(self.shards)]


@contextmanager
def offline(disk: Disk, config: BookieConfig) -> Iterator[Offline]:
    """Hold the lock of a data directory, which has to exist. Raises FencelogError: BAD_REQUEST if
    there is none, it is no bookie's, or its bookie was made with other numbers of directories;
    DATA_DIRECTORY_IN_USE while a bookie runs on it."""
    _check_is_there(disk, config.data_dir)
    directory = DataDirectory(disk, config)
    directory.lock()
    try:
        found = Offline(disk, config, directory)
        _check_layout(found)
        yield found
    finally:
        directory.unlock()


def _check_is_there(disk: Disk, path: Path) -> None:
    """Check that a directory is a bookie's, before the file of the lock is made in it: its identity
    may be lost, but then the file is there."""
    try:
        names = disk.names(path)
    except OSError as error:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"no data directory at {path}") from error
    if not {"identity", "lock"}.intersection(names):
        raise FencelogError(ErrorCode.BAD_REQUEST, f"{path} has no identity: it is no bookie's")


def _check_layout(found: Offline) -> None:
    try:
        cookie = found.identity().cookie
    except FencelogError:
        return  # the tool reports that it cannot be read
    for option, made, given in (
        ("--journal-dir", cookie.journals, found.config.journal_dirs),
        ("--ledger-dir", cookie.ledgers, found.config.ledger_dirs),
    ):
        if len(made) != len(given):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"bookie {cookie.bookie_id} was made with {len(made) or 'no'} {option}, "
                f"{len(given) or 'none'} given: name its directories as for a start",
            )
