"""Writing and syncing by Linux's io_uring: threads of the kernel do both, one after the other.

A thread of Python needs the interpreter's lock after each system call. While the event loop is busy
it is woken in vain again and again, and what is durable already waits for its answer. With io_uring
the loop submits the write and the sync in one system call, and its selector reports the end, as it
does for a socket. Sources: the manual pages io_uring_setup(2), io_uring_enter(2), io_uring(7).

The sync is linked to the write: it begins once all bytes are written, and otherwise never. The
write reports failures only (IOSQE_CQE_SKIP_SUCCESS), and a sync that has not begun reports nothing,
so there is one completion for both.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from collections.abc import Callable
from errno import EAGAIN, ECANCELED, EINTR, EIO

_SETUP, _ENTER = 425, 426

_MACHINES = ("x86_64",)
"""Machines on which stores become visible in their order. Others need barriers between the numbers
of a ring and its entries, which Python does not have."""

_ENTRIES = 4
"""Two are in flight at most."""

_SQES_AT = 0x1000_0000  # IORING_OFF_SQES
_SQE_BYTES, _CQE_BYTES = 64, 16

_NEEDED = 1 << 0 | 1 << 11
"""IORING_FEAT_SINGLE_MMAP and IORING_FEAT_CQE_SKIP: Linux 5.17."""

_FSYNC, _WRITE = 3, 23  # IORING_OP_…
_LINKED = 1 << 2 | 1 << 6  # IOSQE_IO_LINK, IOSQE_CQE_SKIP_SUCCESS
_NOT_BEGUN = frozenset({EAGAIN, ECANCELED, EINTR})
"""Errors of a write for which the kernel had no thread, say: it may be done in another way. Not so
for a sync: nothing tells that it has not begun."""

_U32 = 0xFFFF_FFFF
_DATASYNC = 1  # IORING_FSYNC_DATASYNC

_PARAMS = struct.Struct("<10I8IQ8IQ")
"""``io_uring_params``: seven numbers, three that are reserved, and the offsets of both queues."""
_SQE = struct.Struct("<BBHiQQIIQ24x")
"""``io_uring_sqe``: opcode, flags, priority, descriptor, offset, address, length, flags of the
operation, user data."""
_CQE = struct.Struct("<Qi4x")
"""``io_uring_cqe``: user data and result."""

Ended = Callable[[int, OSError | None], None]
"""Gets the number of bytes that were written, and the error."""

_in_flight: set[Ring] = set()
"""Rings whose bytes the kernel may still read: they stay in memory, whoever forgets them."""


class Ring:
    """A ring for one write at a time, with or without a sync behind it. It is used on one event
    loop, which calls ``reap`` when ``descriptor`` is readable."""

    def __init__(self, enter: Callable[..., int], descriptor: int, params: tuple[int, ...]) -> None:
        self.descriptor = descriptor
        self._enter = enter
        sq_entries, cq_entries = params[:2]
        array, self._cqes = params[16], params[24]
        self._sq_tail, self._cq_head, self._cq_tail = (
            params[11] // 4,
            params[19] // 4,
            params[20] // 4,
        )
        self._sq_mask, self._cq_mask = sq_entries - 1, cq_entries - 1
        size = max(array + 4 * sq_entries, self._cqes + _CQE_BYTES * cq_entries)
        self._rings = mmap.mmap(descriptor, size)
        self._sqes = mmap.mmap(descriptor, _SQE_BYTES * sq_entries, offset=_SQES_AT)
        self._numbers = memoryview(self._rings).cast("I")
        for index in range(sq_entries):
            self._numbers[array // 4 + index] = index
        self._id = 0
        self._data = b""
        self._ended: Ended | None = None

    @classmethod
    def open(cls) -> Ring | None:
        """Return a new ring; None where the system has no such rings, or allows none."""
        if platform.machine() not in _MACHINES:
            return None
        try:
            # The interpreter's lock is kept during the calls: they do not wait.
            library = ctypes.PyDLL(None)
            setup, enter = library["syscall"], library["syscall"]
        except (AttributeError, OSError):
            return None
        setup.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p)
        enter.argtypes = (*[ctypes.c_long] * 5, ctypes.c_void_p, ctypes.c_size_t)
        setup.restype = enter.restype = ctypes.c_long
        params = ctypes.create_string_buffer(_PARAMS.size)
        descriptor = setup(_SETUP, _ENTRIES, params)
        if descriptor < 0:
            return None
        numbers = _PARAMS.unpack(params.raw)
        try:
            if numbers[5] & _NEEDED == _NEEDED:
                return cls(enter, descriptor, numbers)
        except OSError:
            pass  # no memory may be locked, for example
        os.close(descriptor)
        return None

    @property
    def is_busy(self) -> bool:
        return self._ended is not None

    def submit(self, file: int, data: bytes, offset: int, *, sync: bool, ended: Ended) -> bool:
        """Write ``data`` to the file of a descriptor and, with ``sync``, make it durable with all
        that was written to the file before. ``ended`` is called by ``reap``. Return False if the
        kernel takes nothing now: then nothing has happened.

        A write with a sync that ends early without an error was not synced. Raises OSError if the
        kernel took the write and not the sync: whether it takes place is unknown, and the ring is
        of no more use; it may not even be closed.
        """
        address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
        self._id = number = self._id + 2
        tail = self._numbers[self._sq_tail]
        flags, count = (_LINKED, 2) if sync else (0, 1)
        self._put(tail, (_WRITE, flags, 0, file, offset, address, len(data), 0, number))
        if sync:
            self._put(tail + 1, (_FSYNC, 0, 0, file, 0, 0, 0, _DATASYNC, number + 1))
        self._numbers[self._sq_tail] = (tail + count) & _U32
        self._data, self._ended = data, ended
        _in_flight.add(self)
        taken = self._enter(_ENTER, self.descriptor, count, 0, 0, None, 0)
        if taken == count:
            return True
        if taken > 0:
            self._ended = None
            raise OSError(EIO, "the kernel took a write without its sync")
        self._numbers[self._sq_tail] = tail
        self._forget()
        return False

    def reap(self) -> None:
        """Take what has completed, and call ``ended`` if it was what is in flight."""
        numbers = self._numbers
        while (head := numbers[self._cq_head]) != numbers[self._cq_tail]:
            place = self._cqes + _CQE_BYTES * (head & self._cq_mask)
            number, result = _CQE.unpack_from(self._rings, place)
            numbers[self._cq_head] = (head + 1) & _U32
            if number & ~1 != self._id or (ended := self._ended) is None:
                continue
            is_sync = bool(number & 1)
            if not is_sync and -result in _NOT_BEGUN:
                result = 0
            written = len(self._data) if is_sync else max(result, 0)
            self._forget()
            ended(written, OSError(-result, os.strerror(-result)) if result < 0 else None)

    def _forget(self) -> None:
        """Take note that nothing is in flight any more."""
        self._data, self._ended = b"", None
        _in_flight.discard(self)

    def _put(self, index: int, entry: tuple[int | None, ...]) -> None:
        _SQE.pack_into(self._sqes, _SQE_BYTES * (index & self._sq_mask), *entry)

    def close(self) -> None:
        """Give the ring back; nothing may be in flight."""
        self._numbers.release()
        self._rings.close()
        self._sqes.close()
        os.close(self.descriptor)
