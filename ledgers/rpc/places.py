"""The body of a reply to READ that names places instead of entries, for a client on the bookie's
machine.

    reply  0  i64 LAC
           8  u16 number of places
          10  u16 size of the path
          12  u32 0
          16  first 64 bytes of the file, which no other file has
          80  places, ascending and apart from one another:
               0  u64 offset of a run
               8  u32 its size
           …  absolute path of the file

The runs are adjacent: each begins with the entry behind the last one of the run before. The bookie
has not read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.format.run import RUN_HEADER, Buffer, read_run_header
from fencelog.ledgers.limits import (
    KIB,
    MAX_PLACED_PATH_BYTES,
    MAX_PLACED_RUNS,
    MAX_RUN_BYTES,
)
from fencelog.ledgers.rpc.bookie_port import Place
from fencelog.ledgers.rpc.wire import FILE_HEAD_BYTES, PLACE, PLACES_HEAD

_NEAR_BYTES = 4 * KIB
"""The gap between runs up to which they are read together: more than the frame of a record."""

_LARGEST_FILE_BYTES = (1 << 63) - 1
"""The largest offset that a system call takes."""


class PlacedRuns(NamedTuple):
    """Adjacent runs in a file. ``head``: its first bytes; ``places``: as the file has them."""

    path: bytes
    head: bytes
    places: Sequence[Place]

    @property
    def offset(self) -> int:
        return self.places[0][0]

    @property
    def size(self) -> int:
        """Return the bytes from the beginning of the first run to the end of the last one."""
        offset, size = self.places[-1]
        return offset + size - self.offset

    @property
    def in_memory(self) -> tuple[Place, ...]:
        """Return the places in what was read from the file."""
        begin = self.offset
        return tuple((offset - begin, size) for offset, size in self.places)

    def split(self, max_bytes: int) -> tuple[PlacedRuns, PlacedRuns]:
        """Return the runs to read at a time, those that lie close together up to a size but at
        least one, and the rest."""
        count, end = 1, self.places[0][0] + self.places[0][1]
        for offset, size in self.places[1:]:
            if offset - end > _NEAR_BYTES or offset + size - self.offset > max_bytes:
                break
            count, end = count + 1, offset + size
        return self._replace(places=self.places[:count]), self._replace(places=self.places[count:])


class FilesOfBookies(Protocol):
    """The files of bookies, as far as this process can open them."""

    def may_have(self, bookie_id: str) -> bool:
        """Tell whether to ask a bookie for places."""

    async def read(self, bookie_id: str, wanted: PlacedRuns) -> Buffer | None:
        """Return the part of a file from the first run to the end of the last one; None: there is
        no such file here, or not any more. Never raises."""

    def give_up(self, bookie_id: str) -> None:
        """Record that a bookie's files are of no use here: they hold other bytes, or do not
        answer."""


def encode_places(lac: int, found: PlacedRuns) -> bytes:
    """Return the body of a reply."""
    head = PLACES_HEAD.pack(lac, len(found.places), len(found.path), 0)
    return b"".join((head, found.head, *(PLACE.pack(*place) for place in found.places), found.path))


def decode_places(body: Buffer) -> tuple[int, PlacedRuns]:
    """Read the body of a reply: LAC and places. Raises ProtocolError."""
    if len(body) < PLACES_HEAD.size:
        raise ProtocolError(f"places in {len(body)} bytes")
    lac, count, path_bytes, zero = PLACES_HEAD.unpack_from(body)
    begin = PLACES_HEAD.size + FILE_HEAD_BYTES
    end = begin + count * PLACE.size
    if not 1 <= count <= MAX_PLACED_RUNS or zero or end + path_bytes != len(body):
        raise ProtocolError(f"{count} places and a path of {path_bytes} bytes in {len(body)}")
    places = list(PLACE.iter_unpack(body[begin:end]))
    path = bytes(body[end:])
    if len(path) > MAX_PLACED_PATH_BYTES or not path.startswith(b"/") or b"\0" in path:
        raise ProtocolError(f"places in a file {path[:64]!r}")
    following = FILE_HEAD_BYTES
    for offset, size in places:
        if offset < following or not RUN_HEADER.size < size <= MAX_RUN_BYTES:
            raise ProtocolError(f"a place of {size} bytes at {offset}, behind {following}")
        following = offset + size
    if following > _LARGEST_FILE_BYTES:
        raise ProtocolError(f"a place that ends at {following}")
    return lac, PlacedRuns(path, bytes(body[PLACES_HEAD.size : begin]), places)


def end_of_runs(places: Sequence[Place], data: Buffer, ledger_id: int, entry_id: int) -> int | None:
    """Return the entry behind adjacent runs of a ledger, of which the first holds an entry; None:
    by their headers they are not at these places."""
    try:
        headers = [read_run_header(data, offset) for offset, _ in places]
    except ProtocolError:
        return None
    first, last = headers[0].first_entry_id, headers[0].last_entry_id
    ends = [header.last_entry_id + 1 for header in headers]
    are_there = (
        first <= entry_id <= last
        and all(header.ledger_id == ledger_id for header in headers)
        and [header.size for header in headers] == [size for _, size in places]
        and [header.first_entry_id for header in headers[1:]] == ends[:-1]
    )
    return ends[-1] if are_there else None
