"""Journal files that are no longer needed, kept for reuse.

When existing bytes of a file are overwritten, a sync writes those bytes alone. In a new file, even
one with its space reserved, every sync has to commit the file system's journal too, and with it all
other files that were just extended: adds would wait for a flush's entry logs. A spare's old records
cannot pass as new ones: a record's checksum begins with its file header's, which holds a salt of
its own.
"""

from __future__ import annotations

from pathlib import Path

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.format.numbered_files import file_ids, file_name

_SUFFIX = ".spare"

MAX_SPARES = 2
"""Highest number of spares. A flush empties one or two journal files; more would only take
space."""


class SpareFiles:
    """The spares of a journal directory. The state is on the disk alone, so one I/O thread may
    ``keep`` while another one takes. Its methods block: call them on an I/O thread."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def keep(self, path: Path, file_id: int) -> None:
        """Make a journal file a spare, or remove it if there are enough. Raises OSError.

        The change is not synced: a file that a crash brings back under its old name is found again
        by its id.
        """
        if len(self._ids()) < MAX_SPARES:
            self._disk.rename(path, self.path(file_id))
        else:
            self._disk.remove(path)

    def oldest(self) -> Path | None:
        """Return a spare to reuse; the caller renames it when its new header is durable. A new file
        is not called a journal before that either: a crash leaves it as a spare."""
        ids = self._ids()
        return self.path(ids[0]) if ids else None

    def remove_all(self) -> None:
        """Remove all spares to free their space. Call it on the I/O thread that takes them. Raises
        OSError."""
        for file_id in self._ids():
            self._disk.remove(self.path(file_id))

    def _ids(self) -> list[int]:
        return file_ids(self._disk, self._directory, _SUFFIX)

    def path(self, file_id: int) -> Path:
        return self._directory / file_name(file_id, _SUFFIX)
