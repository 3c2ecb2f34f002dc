"""The work of the I/O threads on the journal's files. The journal decides which work is done when.

There are three kinds of work: write a group (``io_thread``), sync the file (``sync_io_thread``), or
both in one call (``sync_io_thread``), in a new file if the group begins one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fencelog.bookie.disk.port import Disk, Done, IoThread
from fencelog.bookie.format.records import JOURNAL_MAGIC, FileHeader
from fencelog.bookie.journal.file import Group, JournalFile
from fencelog.bookie.journal.spare_files import SpareFiles
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import KIB

_SUBMITTED_BYTES = 128 * KIB
"""Size up to which the event loop encodes a group and hands its bytes over: it takes less time than
to wake a thread that does it. To encode a larger one would hold the loop up."""


class JournalWriter:
    """The writer of the current file. ``write`` may be in flight together with ``sync``, but no
    other two calls; the caller ensures that."""

    def __init__(
        self,
        *,
        disk: Disk,
        io_thread: IoThread,
        sync_io_thread: IoThread,
        host: Host,
        directory: Path,
        incarnation: bytes,
        max_file_bytes: int,
    ) -> None:
        self._disk = disk
        self._io_thread = io_thread
        self._sync_io_thread = sync_io_thread
        self._host = host
        self._directory = directory
        self._incarnation = incarnation
        self._max_file_bytes = max_file_bytes
        self._file: JournalFile | None = None
        self._has_failed = False
        self.file_id = 0
        """The id of the file that the last submitted work is on."""

    async def begin(self, file_id: int, sequence: int) -> None:
        """Begin a file, whose first record gets ``sequence``. Raises OSError."""
        header = self._header(file_id, sequence)
        await self._sync_io_thread.run(lambda: self._create(header))

    def write(self, group: Group, *, durable: int, done: Done) -> None:
        self._submit(self._io_thread, lambda: self._open_file.write(group, durable=durable), done)

    def sync(self, done: Done) -> None:
        """Make durable all that was written before."""
        self._submit(self._sync_io_thread, lambda: self._open_file.sync(), done)

    def commit(self, group: Group, *, durable: int, finish: bool, done: Done) -> None:
        """Write a group and, if it asks for that, sync it and all before it. ``finish``: if the
        group begins a file, the file before it is not completely synced yet."""
        header = None
        if group.start.file_id != self.file_id:
            header = self._header(group.start.file_id, group.start.sequence)
        elif group.size <= _SUBMITTED_BYTES and self._file is not None and not self._has_failed:
            self._file.submit(self._sync_io_thread, group, durable=durable, done=self._noting(done))
            return

        def work() -> None:
            if header is not None:
                if finish:
                    self._open_file.sync()
                self._close_file()
                self._create(header)
            self._open_file.write(group, durable=durable)
            if group.sync:
                self._open_file.sync()

        self._submit(self._sync_io_thread, work, done)

    async def remove_spares(self) -> None:
        """Remove the spare files. Raises OSError."""
        await self._sync_io_thread.run(SpareFiles(self._disk, self._directory).remove_all)

    async def close(self) -> None:
        """Wait for the work in flight, and close the file."""
        await self._io_thread.run(lambda: None)
        await self._sync_io_thread.run(self._close_file)

    def _submit(self, io_thread: IoThread, work: Callable[[], None], done: Done) -> None:
        def guarded() -> None:
            # The other I/O thread's failure may not have reached the event loop yet.
            if self._has_failed:
                raise OSError("a write or a sync had failed before")
            try:
                work()
            except BaseException:
                self._has_failed = True
                raise

        io_thread.submit(guarded, done)

    def _noting(self, done: Done) -> Done:
        """Return ``done``, which marks the writer as failed before it gets an error."""

        def noted(error: BaseException | None) -> None:
            if error is not None:
                self._has_failed = True
            done(error)

        return noted

    # -- the file --------------------------------------------------------------------------------

    @property
    def _open_file(self) -> JournalFile:
        if self._file is None:
            raise OSError("journal has no open file")
        return self._file

    def _create(self, header: FileHeader) -> None:
        self._file = JournalFile(self._disk, self._directory, header, self._max_file_bytes)

    def _close_file(self) -> None:
        if (file := self._file) is not None:
            self._file = None
            file.close()

    def _header(self, file_id: int, sequence: int) -> FileHeader:
        self.file_id = file_id
        salt = self._host.random_bytes(16)
        return FileHeader(JOURNAL_MAGIC, file_id, sequence, self._incarnation, salt)
