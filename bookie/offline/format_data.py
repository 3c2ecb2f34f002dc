"""The removal of all data of a bookie, by hand.

A crash during the removal is safe. The checkpoints are removed first, without which no start
continues; the identity is removed last, so that no directory with remaining data passes for a new
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.offline.inspect_disk import ReadOnlyDisk
from fencelog.bookie.offline.inspect_records import Item
from fencelog.bookie.offline.offline import Offline
from fencelog.bookie.storage.index import Index
from fencelog.ledgers.errors import ErrorCode, FencelogError

_NEW = r"(\.new)?"
_NUMBER = "[0-9a-f]{16}"
_DATA = rf"lock|(identity|unsynced){_NEW}|lost\+found"
_GIVEN = rf"cookie{_NEW}|lost\+found"
_JOURNAL = rf"{_NUMBER}\.(journal|spare)"
_LEDGERS = rf"checkpoint{_NEW}"
_ENTRY_LOG = rf"{_NUMBER}\.(entrylog|compacting)"
_INDEX = (
    r"\d+\.(sst|log|dbtmp)|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|CURRENT|IDENTITY|LOCK"
    r"|LOG(\.old\.\d+)?|rocksdict-config\.json"
)
_NOTHING = r"[^\s\S]"
_KEPT = ("lock", "lost+found")
_LAST = ("cookie", "identity")


def what_goes(data: Offline) -> Item:
    """Describe the data to be removed: the bookie, the number of ledgers, the bytes. Raises
    FencelogError: BAD_REQUEST if there is no identity, or a file that is not a bookie's; and
    OSError."""
    if "identity" not in data.disk.names(data.directory.path):
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"{data.directory.path} has no identity: it is no bookie's"
        )
    files = [path for path in _files(data) if path.name not in _KEPT]
    try:
        identity = data.identity()
        who: Item = {"bookie": identity.bookie_id, "incarnation": identity.incarnation}
    except FencelogError as error:
        who = {"bookie": f"unknown: {error.detail}"}
    size = sum(path.stat().st_size for path in files)
    return who | {"ledgers": _ledgers(data), "files": len(files), "bytes": size}


def remove_data(data: Offline) -> None:
    """Remove the data. Raises as ``what_goes``."""
    what_goes(data)
    files = [path for path in _files(data) if path.name not in _KEPT]
    disk = data.disk
    _remove(disk, [path for path in files if path.name == "checkpoint"])
    _remove(disk, [path for path in files if path.name not in ("checkpoint", *_LAST)])
    for path in sorted(_roles(data).keys() - _given(data), reverse=True):
        if path.is_symlink():
            path.unlink()  # its target is empty, and stays
        elif path.is_dir():
            path.rmdir()
        else:
            continue
        disk.sync_directory(path.parent)
    for name in _LAST:
        _remove(disk, [path for path in files if path.name == name])


def _remove(disk: Disk, files: list[Path]) -> None:
    for path in files:
        disk.remove(path)
    for directory in sorted({path.parent for path in files}):
        disk.sync_directory(directory)


def _given(data: Offline) -> set[Path]:
    """Return the directories that stay, empty."""
    return {data.directory.path, *data.config.journal_dirs, *data.config.ledger_dirs}


def _roles(data: Offline) -> dict[Path, str]:
    """Return each directory with the pattern of the names that belong in it."""
    roles: dict[Path, str] = {}

    def add(path: Path, names: str) -> None:
        roles[path] = f"{roles[path]}|{names}" if path in roles else names

    add(data.directory.path, _DATA)
    for path in (*data.config.journal_dirs, *data.config.ledger_dirs):
        add(path, _GIVEN)
    for shard in data.shards:
        paths = shard.paths
        add(paths.journal, _JOURNAL)
        add(paths.ledgers, _LEDGERS)
        add(paths.entry_log, _ENTRY_LOG)
        for index in (paths.index, *(paths.index.with_name(f"index.{x}") for x in ("new", "old"))):
            add(index, _INDEX)
    for path in roles.keys() - _given(data):
        while (path := path.parent) not in roles:
            roles[path] = _NOTHING  # it is only a parent of one
    return roles


def _files(data: Offline) -> list[Path]:
    """Return all files. Raises FencelogError(BAD_REQUEST) if one is not a bookie's."""
    roles = _roles(data)
    files = [
        path
        for directory, names in roles.items()
        if directory.is_dir()
        for path in _files_in(data.disk, directory, names, roles)
    ]
    return sorted(files)


def _files_in(disk: Disk, directory: Path, names: str, roles: dict[Path, str]) -> Iterator[Path]:
    for name in disk.names(directory):
        path = directory / name
        if re.fullmatch(names, name):
            yield path
        elif not any(role == path or path in role.parents for role in roles):
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"{path} is no part of a bookie's data: nothing was removed"
            )


def _ledgers(data: Offline) -> int | str:
    disk = ReadOnlyDisk(data.disk)
    count = 0
    for shard in data.shards:
        try:
            index = Index(disk.open_store(shard.paths.index, create=False))
        except OSError:
            return "unknown: an index is damaged"
        try:
            count += sum(not state.deleted for _, state in index.states())
        except FencelogError:
            return "unknown: an index is damaged"
        finally:
            index.close()
    return count
