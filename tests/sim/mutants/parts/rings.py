"""Wrong use of the kernel's rings: what was not synced is acknowledged, or the order is lost."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

IO_URING = "fencelog.bookie.disk.io_uring"
POSIX = "fencelog.bookie.disk.posix"

_RULE = "STORAGE.md: io_uring"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "sync-beside-its-write",
        _RULE,
        "The kernel may sync a file before the bytes are in it.",
        (Edit(IO_URING, "Ring.submit", "(_LINKED, 2)", "(1 << 6, 2)"),),
    ),
    Mutant(
        "write-reported-before-its-sync",
        _RULE,
        "The end of a write counts as the end of its sync.",
        (Edit(IO_URING, "Ring.submit", "(_LINKED, 2)", "(1 << 2, 2)"),),
    ),
    Mutant(
        "short-write-is-whole",
        _RULE,
        "A write that ended early counts as done.",
        (
            Edit(
                POSIX,
                "PosixIoThread.write",
                "error is None and written < len(data)",
                "error is None and written < 0",
            ),
        ),
    ),
    Mutant(
        "rest-of-a-short-write-not-synced",
        _RULE,
        "The thread writes what the kernel has left, and reports the sync that did not begin.",
        (
            Edit(
                POSIX,
                "PosixIoThread.write",
                "offset + written, sync=sync)",
                "offset + written, sync=False)",
            ),
        ),
    ),
    Mutant(
        "failed-sync-by-the-kernel-is-done",
        _RULE,
        "A sync that failed counts as done.",
        (
            Edit(
                IO_URING,
                "Ring.reap",
                "if result < 0 else None",
                "if result < 0 and not is_sync else None",
            ),
        ),
    ),
    Mutant(
        "write-without-a-sync-tried-again",
        _RULE,
        "The kernel has taken the write alone, and the thread writes the same beside it.",
        (Edit(IO_URING, "Ring.submit", "        if taken > 0:\n", "        if taken > 2:\n"),),
    ),
    Mutant(
        "bytes-in-flight-are-let-go-of",
        _RULE,
        "The kernel reads memory that is in use for something else already.",
        (Edit(IO_URING, "Ring.submit", "        _in_flight.add(self)\n", ""),),
    ),
    Mutant(
        "work-overtakes-the-kernel",
        _RULE,
        "Work begins while the write before it is in flight.",
        (
            Edit(
                POSIX,
                "PosixIoThread._put",
                "self._ring is not None and self._ring.is_busy",
                "self._ring is not None and not self._ring",
            ),
        ),
    ),
    Mutant(
        "kernel-overtakes-work",
        _RULE,
        "A write begins while the work before it is queued.",
        (Edit(POSIX, "PosixIoThread.write", " or self._queued", ""),),
    ),
    Mutant(
        "file-with-its-own-write-bypassed",
        _RULE,
        "A file of another kind is written without its own rules.",
        (
            Edit(
                POSIX,
                "PosixIoThread.write",
                "type(file) is not PosixFile",
                "not isinstance(file, PosixFile)",
            ),
        ),
    ),
)
