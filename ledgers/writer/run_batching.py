"""The division of waiting entries into runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencelog.ledgers.format.digest import digest_size
from fencelog.ledgers.format.run import ENTRY_HEADER, Payload
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.limits import MAX_RUN_ENTRIES, TARGET_RUN_BYTES


@dataclass(frozen=True, slots=True)
class RunBatching:
    """The limits of the runs of one ledger. ``overhead``: bytes added to each entry."""

    max_entries: int
    overhead: int

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> RunBatching:
        """Return the limits for a ledger. The entries of a run share a write set, so a run of a
        striped ledger holds one."""
        is_striped = metadata.ensemble_size != metadata.write_quorum
        overhead = ENTRY_HEADER.size + digest_size(metadata.digest_type)
        return cls(1 if is_striped else MAX_RUN_ENTRIES, overhead)

    def end_of_run(self, queue: Sequence[Payload], start: int) -> int:
        """Return the end of the run that begins at ``start``: by entries and by bytes, at least one
        entry."""
        limit = min(len(queue), start + self.max_entries)
        if limit == start + 1:
            return limit
        size, end = 0, start
        while end < limit:
            size += len(queue[end]) + self.overhead
            if size > TARGET_RUN_BYTES and end > start:
                break
            end += 1
        return end
