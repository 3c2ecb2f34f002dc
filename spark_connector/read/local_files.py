"""The files of bookies on this machine, as a task opens them.

A path that a bookie names may lead to nothing here, or to the file of another bookie, where the two
are on different machines or in different containers. A file is read only if it begins with the
bytes that the bookie has at the beginning of its own: they hold the bookie's incarnation and 16
random bytes of this one file.

A file is open only while it is read. Opening it costs some µs of a read that takes ms, and no
descriptor is left to keep the space of a file that the bookie has removed since. What was read from
a file that was removed meanwhile is right: entry logs only grow.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from fencelog.ledgers.format.run import Buffer
from fencelog.ledgers.rpc.places import PlacedRuns

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Neither a link nor a pipe, for whose writer it would wait, is an entry log."""

_ELSEWHERE = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG})
"""Errors that each file of the bookie will have."""

MAX_FAILURES = 3
"""The reads in a row that may fail, as where a file was removed, before a bookie is no longer asked
for places: each costs a round trip."""

_READING_THREADS = 4
"""A read of another replica does not wait for a disk that does not answer."""


class _NotHereError(Exception):
    """The path leads to no file of the bookie."""


class LocalFiles:
    """The files as a task finds them. Implements ``FilesOfBookies``."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._failures: Counter[str] = Counter()
        """The reads of each bookie's files that have failed in a row."""

    def may_have(self, bookie_id: str) -> bool:
        return self._failures[bookie_id] < MAX_FAILURES

    async def read(self, bookie_id: str, wanted: PlacedRuns) -> Buffer | None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_READING_THREADS, "fencelog-local-reads")
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._threads, _read, wanted)
        except _NotHereError:
            self._failures[bookie_id] = MAX_FAILURES
            return None
        except (
            asyncio.CancelledError
        ):  # as when another replica was faster: its thread may be stuck
            self._failures[bookie_id] += 1
            raise
        except (OSError, RuntimeError):  # also where no thread can be started
            self._failures[bookie_id] += 1
            return None
        self._failures[bookie_id] = 0
        return data

    def give_up(self, bookie_id: str) -> None:
        self._failures[bookie_id] = MAX_FAILURES

    def close(self) -> None:
        """Wait for no read: one of a disk that does not answer takes as long as it likes."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _read(wanted: PlacedRuns) -> bytes:
    """Return a part of the file. Raises _NotHereError; OSError, also where the file is shorter."""
    try:
        found = os.lstat(wanted.path)
        if not stat.S_ISREG(found.st_mode):
            raise _NotHereError  # nor is it opened: that alone has effects on some devices
        if found.st_size < wanted.offset + wanted.size:  # as of files that are none, as in /proc
            raise OSError(errno.EIO, "the file ends before the run does")
        descriptor = os.open(wanted.path, _FLAGS)
    except OSError as error:
        has_directory = os.path.isdir(os.path.dirname(wanted.path))
        if error.errno in _ELSEWHERE or not has_directory:
            raise _NotHereError from error
        raise
    try:
        if os.pread(descriptor, len(wanted.head), 0) != wanted.head:
            raise _NotHereError
        data = os.pread(descriptor, wanted.size, wanted.offset)
    finally:
        os.close(descriptor)
    if len(data) < wanted.size:
        raise OSError(errno.EIO, "the file ends before the run does")
    return data
