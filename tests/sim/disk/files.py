"""The state of one file on a simulated disk: its page cache, and what of that a crash leaves.

A file's content is there twice: ``cached`` is what reads see, ``durable`` what is on the medium.
Between them lie the writes since the last sync, in order. A power loss decides for each of them
whether it reached the medium: whole, not at all, or in some of its sectors. Sectors are written
whole, as the page cache holds them at some moment: a later write of a sector never survives without
the earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

SECTOR_BYTES = 512
_PAGE_BYTES = 64 * 1024
_ZEROS = bytes(4 * 1024 * 1024)


class SparseBytes:
    """Bytes of a file: zeros where nothing was written, which take no memory."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self.size = 0

    def copy(self) -> SparseBytes:
        other = SparseBytes()
        other._pages = {number: bytearray(page) for number, page in self._pages.items()}
        other.size = self.size
        return other

    def write(self, offset: int, data: bytes | memoryview) -> None:
        number, at = divmod(offset, _PAGE_BYTES)
        page = self._pages.get(number)
        if page is not None and at <= len(page) and at + len(data) <= _PAGE_BYTES:  # mostly
            page[at : at + len(data)] = data
            if data:
                self.size = max(self.size, offset + len(data))
            return
        view = memoryview(data)
        position = 0
        while position < len(view):
            number, at = divmod(offset + position, _PAGE_BYTES)
            part = view[position : position + _PAGE_BYTES - at]
            page = self._pages.setdefault(number, bytearray())
            if len(page) < at:
                page.extend(_ZEROS[: at - len(page)])
            page[at : at + len(part)] = part
            position += len(part)
        if position:
            self.size = max(self.size, offset + position)

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        first, at = divmod(offset, _PAGE_BYTES)
        if at + size <= _PAGE_BYTES:
            data = bytes(self._pages.get(first, b"")[at : at + size])
            return data + _ZEROS[: size - len(data)]
        numbers = range(first, (offset + size - 1) // _PAGE_BYTES + 1)
        present = [number for number in numbers if number in self._pages]
        if not present and size <= len(_ZEROS):
            return _ZEROS[:size]
        data_ = bytearray(size)
        for number in present:
            start = number * _PAGE_BYTES - offset
            page = memoryview(self._pages[number])[max(0, -start) : size - start]
            data_[max(0, start) : max(0, start) + len(page)] = page
        return bytes(data_)

    def flip(self, offset: int, bit: int) -> None:
        number, at = divmod(offset, _PAGE_BYTES)
        self._pages[number][at] ^= 1 << bit

    def some_byte(self, random: Random) -> int | None:
        """Offset of a byte in a place that was written; None if there are only zeros."""
        ends = {number: len(page.rstrip(b"\0")) for number, page in self._pages.items()}
        total = sum(ends.values())
        if not total:
            return None
        position = random.randrange(total)
        for number, end in ends.items():
            if position < end:
                return number * _PAGE_BYTES + position
            position -= end
        raise AssertionError("a position below the sum lies in one of the parts")


@dataclass(frozen=True, slots=True)
class _Write:
    """Bytes written, or (``data`` empty) space reserved up to ``offset``."""

    offset: int
    data: bytes

    @property
    def sectors(self) -> range:
        end = self.offset + len(self.data)
        return range(self.offset // SECTOR_BYTES, -(-end // SECTOR_BYTES))

    def put(self, content: SparseBytes, sector: int) -> None:
        start = max(0, sector * SECTOR_BYTES - self.offset)
        end = (sector + 1) * SECTOR_BYTES - self.offset
        content.write(self.offset + start, self.data[start:end])


class FileData:
    """One file (an inode): its names are the directories' affair. ``name`` is the latest one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cached = SparseBytes()
        self.durable = SparseBytes()
        self._unsynced: list[_Write] = []
        self._lost_some = False

    def write(self, offset: int, data: bytes) -> None:
        if data:
            self.cached.write(offset, data)
            self._unsynced.append(_Write(offset, data))

    def reserve(self, size: int) -> None:
        if size > self.cached.size:
            self.cached.size = size
            self._unsynced.append(_Write(size, b""))

    def sync(self) -> None:
        for write in self._unsynced:
            self.durable.write(write.offset, write.data)
            self.durable.size = max(self.durable.size, write.offset + len(write.data))
        self._unsynced.clear()

    def fail_sync(self, random: Random) -> None:
        """Linux marks the pages clean all the same: reads still see them, no later sync writes
        them."""
        self._settle(random)
        self._lost_some = True

    def lose_power(self, random: Random) -> None:
        if self._unsynced or self._lost_some:
            self._settle(random)
            self._lost_some = False
            self.cached = self.durable.copy()

    def rot(self, random: Random, below: int | None) -> str | None:
        """Flip a bit of the medium; reads see it unless the page cache is about to mend it."""
        offset = self.durable.some_byte(random)
        if offset is None:
            return None
        if below is not None:
            offset = random.randrange(below)
        bit = random.randrange(8)
        self.durable.flip(offset, bit)
        if not any(w.offset <= offset < w.offset + len(w.data) for w in self._unsynced):
            self.cached.flip(offset, bit)
        return f"{self.name} bit {bit} of byte {offset}"

    def _settle(self, random: Random) -> None:
        """Let some of the unsynced writes reach the medium, and forget the rest."""
        general = random.choice((None, None, 0.0, 1.0))
        reached: dict[int, int] = {}
        sizes: list[int] = []
        for index, write in enumerate(self._unsynced):
            share = random.choice((0.0, 1.0, random.random())) if general is None else general
            kept = [s for s in write.sectors if share == 1 or random.random() < share]
            reached.update(dict.fromkeys(kept, index))
            if random.random() < share:
                sizes.append(write.offset + len(write.data))
        for index, write in enumerate(self._unsynced):
            for sector in write.sectors:
                if reached.get(sector, -1) >= index:
                    write.put(self.durable, sector)
        self.durable.size = max([self.durable.size, *sizes])
        self._unsynced.clear()
