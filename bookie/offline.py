"""A bookie's data while no bookie runs on it, under the lock of its directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.data_directory import DataDirectory, Identity, _decode_identity
from fencelog.bookie.disk import Disk
from fencelog.bookie.shard_directory import ShardDirectory
from fencelog.ledgers.errors import ErrorCode, FencelogError


@dataclass(frozen=True, slots=True)
class Offline:
    """``disk`` is the one to look at the data with."""

    disk: Disk
    config: BookieConfig
    directory: DataDirectory

    @property
    def shards(self) -> list[ShardDirectory]:
        return self.directory.shards

    def identity(self) -> Identity:
        """Whose data it is. Raises FencelogError(CORRUPT, UNSUPPORTED_VERSION)."""
        path = self.config.data_dir / "identity"
        data = self.disk.read_file(path)
        if data is None:
            raise FencelogError(ErrorCode.CORRUPT, f"{path} is missing", path=str(path))
        return _decode_identity(path, data)

    def shard_of(self, ledger_id: int) -> ShardDirectory:
        return self.shards[ledger_id % len(self.shards)]


@contextmanager
def offline(disk: Disk, config: BookieConfig) -> Iterator[Offline]:
    """Hold the lock of a data directory, which is not made. Raises FencelogError: BAD_REQUEST if
    there is none, DATA_DIRECTORY_IN_USE while a bookie runs on it."""
    _check_is_there(disk, config.data_dir)
    directory = DataDirectory(disk, config)
    directory.lock()
    try:
        yield Offline(disk, config, directory)
    finally:
        directory.unlock()


def _check_is_there(disk: Disk, path: Path) -> None:
    try:
        disk.names(path)
    except OSError as error:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"no data directory at {path}") from error
