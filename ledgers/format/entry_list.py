"""The answer of a bookie to the request for its entries of a ledger.

reply   0  u64 next entry to ask from; 2**64 - 1: the list is complete
        8  u32 flags: 1 in limbo
       12  u32 0
       16  availability (format/availability.py): all of it lies between the entry asked from
           and the next entry
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.format.availability import (
    GROUP_BYTES,
    HEADER_BYTES,
    MAX_ENTRY_ID,
    Availability,
)
from fencelog.ledgers.limits import MAX_LISTED_RUNS

_HEADER = struct.Struct("<QII")
_THAT_WAS_ALL = (1 << 64) - 1
_IN_LIMBO = 1

MIN_LIST_BYTES = _HEADER.size + HEADER_BYTES
MAX_LIST_BYTES = MIN_LIST_BYTES + MAX_LISTED_RUNS * GROUP_BYTES


@dataclass(frozen=True, slots=True)
class EntryList:
    """A list of entries on a bookie. ``availability`` is complete from the entry asked for up to,
    not including, ``next_entry`` (None: to the end). ``in_limbo``: the bookie may have lost entries
    that are missing in it, so nothing follows from their absence; the entries that it holds are
    there."""

    availability: Availability
    next_entry: int | None = None
    in_limbo: bool = False

    def encode(self) -> bytes:
        following = _THAT_WAS_ALL if self.next_entry is None else self.next_entry
        flags = _IN_LIMBO if self.in_limbo else 0
        return _HEADER.pack(following, flags, 0) + self.availability.encode()

    @classmethod
    def decode(cls, body: bytes, from_entry: int) -> EntryList:
        """Decode the answer to a request for the entries from ``from_entry`` on. The next entry
        must be greater than that, so that a caller that continues comes to an end. Raises
        ProtocolError."""
        if len(body) < MIN_LIST_BYTES:
            raise ProtocolError(f"list of entries: {len(body)} bytes are no reply")
        following, flags, zero = _HEADER.unpack_from(body)
        if flags & ~_IN_LIMBO or zero:
            raise ProtocolError(f"list of entries: flags {flags:#x} and {zero} mean nothing")
        next_entry = None if following == _THAT_WAS_ALL else following
        if next_entry is not None and not from_entry < next_entry <= MAX_ENTRY_ID:
            raise ProtocolError(f"list of entries from {from_entry} goes on at {next_entry}")
        availability = Availability.decode(body[_HEADER.size :])
        last = MAX_ENTRY_ID if next_entry is None else next_entry - 1
        if (span := availability.span) and not from_entry <= span[0] <= span[1] <= last:
            raise ProtocolError(
                f"list of entries {from_entry}..{last} has those of {span[0]}..{span[1]}"
            )
        return cls(availability, next_entry, bool(flags & _IN_LIMBO))
