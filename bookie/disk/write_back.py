"""Writing dirty pages of a file to the disk without a commit: Linux's ``sync_file_range``."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from errno import ENOSYS

_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4

_Call = Callable[[int, int, int, int], int]


def _system_call() -> _Call | None:
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (AttributeError, OSError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found: _Call = call
    return found


_sync_file_range = _system_call()


def write_back(descriptor: int, offset: int, size: int) -> None:
    """Write the dirty pages of a range, and wait for the disk. Neither the file's size nor its
    blocks become durable, so the file system commits nothing, and the disk flushes no cache.

    Where the system has no such call, it is a sync. Raises OSError.
    """
    if _sync_file_range is not None:
        flags = _WAIT_BEFORE | _WRITE | _WAIT_AFTER
        if _sync_file_range(descriptor, offset, size, flags) == 0:
            return
        error = ctypes.get_errno()
        if error != ENOSYS:
            raise OSError(error, os.strerror(error))
    os.fdatasync(descriptor)
