r"""Lines of a byte stream, grouped into batches: pure code, fed with chunks as they come.

A line ends at ``\n`` and only there: everything else (``\r``, bytes that are no UTF-8) stays in the
message unchanged. The bytes after the last ``\n`` are a line too unless there are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES, MIB

CHUNK_BYTES = 1 * MIB
"""The bytes to feed at once. A batch is at most a chunk and one longest line that began before
it."""

MAX_LINES = 50_000
"""The limit of lines in one batch; below the service's limit, and their columns fit its largest
body."""


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Consecutive lines without their ends. ``first_line`` counts from 1; ``size``: bytes read."""

    first_line: int
    lines: list[bytes]
    size: int

    @property
    def last_line(self) -> int:
        return self.first_line + len(self.lines) - 1


class LineBatcher:
    """Cuts one stream into batches. ``name`` stands in errors: the file's."""

    def __init__(self, name: str, *, max_lines: int = MAX_LINES) -> None:
        self._name = name
        self._max_lines = max_lines
        self._next_line = 1
        self._rest: list[bytes] = []
        self._rest_size = 0

    def feed(self, chunk: bytes) -> Iterator[LineBatch]:
        """Yield batches of the lines that end in this chunk.

        Raises FencelogError(PAYLOAD_TOO_LARGE) at a line over MAX_MESSAGE_BYTES, after the batches
        of the lines before it.
        """
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            self._rest.append(head)
            whole = b"".join(self._rest)
            self._rest.clear()
            self._rest_size = 0
            yield from self._cut(whole.split(b"\n"))
        self._rest.append(tail)
        self._rest_size += len(tail)
        if self._rest_size > MAX_MESSAGE_BYTES:
            raise self._too_long()

    def finish(self) -> Iterator[LineBatch]:
        """Yield the last line, if it has no end. Errors as for ``feed``."""
        if self._rest_size:
            yield from self._cut([b"".join(self._rest)])
            self._rest.clear()
            self._rest_size = 0

    def _cut(self, lines: list[bytes]) -> Iterator[LineBatch]:
        longest = max(map(len, lines))
        for start in range(0, len(lines), self._max_lines):
            batch = lines[start : start + self._max_lines]
            if longest > MAX_MESSAGE_BYTES:
                batch = self._before_too_long(batch)
            if batch:
                yield LineBatch(self._next_line, batch, sum(map(len, batch)) + len(batch))
                self._next_line += len(batch)
            if len(batch) < min(self._max_lines, len(lines) - start):
                raise self._too_long()

    @staticmethod
    def _before_too_long(lines: list[bytes]) -> list[bytes]:
        for index, line in enumerate(lines):
            if len(line) > MAX_MESSAGE_BYTES:
                return lines[:index]
        return lines

    def _too_long(self) -> FencelogError:
        return FencelogError(
            ErrorCode.PAYLOAD_TOO_LARGE,
            f"{self._name}, line {self._next_line} is longer than the largest message, "
            f"{MAX_MESSAGE_BYTES:,} bytes",
            line=self._next_line,
        )
