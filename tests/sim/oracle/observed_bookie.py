"""A bookie whose promises are noted at its edge: what it acknowledged must hold for ever after.

Subclasses the real one and only looks; with ``damage`` it also flips bits of what it sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Any

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.engine.opening import OpenShard
from fencelog.bookie.storage.entry_log import StoredRun
from fencelog.ledgers.errors import FencelogError, ProtocolError
from fencelog.ledgers.format.availability import MAX_ENTRY_ID, Range
from fencelog.ledgers.format.digest import DigestType, crc32c, digest_size
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.format.run import (
    ENTRY_HEADER,
    RUN_HEADER,
    Run,
    read_run_header,
    run_lac,
    run_starts,
    verify_run,
)
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, LedgerState
from fencelog.ledgers.rpc.bookie_port import (
    NO_LAC,
    AddCallback,
    AddsCallback,
    AddToken,
    LedgerLac,
    ReadReply,
)
from tests.sim.oracle.history import NOES, BookieMemory, History, write_set_of

_COUNTED = {
    "garbage": {"passes": "garbage passes", "removed_entry_logs": "entry logs removed"},
    "integrity": {
        "copied_entries": "entries copied back",
        "damaged_runs_found": "damaged runs found",
        "damaged_runs_replaced": "damaged runs replaced",
    },
    "scrub": {"passes": "scrub passes"},
}
"""The counters that the parts of a bookie keep since its start, and their names here."""

_DIGEST_BYTES = {int(kind): digest_size(kind) for kind in DigestType}


class ObservedBookie(Bookie):
    """``history`` is set by the cluster before any bookie is opened."""

    history: History
    damage: Random | None = None
    """Bad memory: flips a bit of each entry it sends, as this stream of chance decides."""

    def _memory(self) -> BookieMemory:
        memory = self.history.bookie(self.bookie_id)
        if memory.incarnation != self.incarnation:
            memory.incarnation = self.incarnation
            memory.previous_entries |= memory.entries.keys()
            memory.entries.clear()
            memory.listed.clear()
            memory.in_limbo.clear()
            memory.removed.clear()
            memory.lacs.clear()
        return memory

    def add(self, run: bytes, *, recovery: bool, on_reply: AddCallback) -> None:
        report = partial(self._added, run, recovery, on_reply)
        if recovery:
            self.history.on_event("recovery add")
        super().add(run, recovery=recovery, on_reply=report)

    def add_many(
        self, runs: Sequence[Run], tokens: Sequence[AddToken], *, on_replies: AddsCallback
    ) -> None:
        noted = list(zip(runs, tokens, strict=True))
        super().add_many(runs, noted, on_replies=partial(self._all_added, on_replies))

    def _all_added(
        self,
        on_replies: AddsCallback,
        noted: Sequence[tuple[Run, AddToken]],
        error: FencelogError | None,
    ) -> None:
        for run, _ in noted:
            self._note(run.data, error, recovery=False)
        on_replies([token for _, token in noted], error)

    def _added(
        self, run: bytes, recovery: bool, on_reply: AddCallback, error: FencelogError | None
    ) -> None:
        self._note(run, error, recovery=recovery)
        on_reply(error)

    def _note(self, run: bytes, error: FencelogError | None, *, recovery: bool) -> None:
        if error is None:
            self.history.counts["bookie acks"] += 1
            self.history.on_event("bookie ack")
            header, memory = read_run_header(run), self._memory()
            # The journal keeps the order: an add taken before the fence is answered before it.
            if not recovery and header.ledger_id in memory.fenced:
                self._violate(9, f"took {_name(header)} after it had been fenced")
            if header.ledger_id in memory.removed:
                self._violate(9, f"took {_name(header)}, which it had removed as deleted")
            for entry_id, digest in entry_digests(run):
                entry = (header.ledger_id, entry_id)
                if not recovery:
                    memory.from_writers.add(entry)
                if memory.entries.setdefault(entry, digest) != digest:
                    self._violate(5, f"acknowledged two bodies of entry {entry_id}")
            lac = run_lac(run, header)
            self._check_lac(header.ledger_id, lac)
            memory.lacs[header.ledger_id] = max(lac, memory.lacs.get(header.ledger_id, NO_LAC))

    def write_lacs(
        self, lacs: Sequence[LedgerLac], tokens: Sequence[AddToken], *, on_replies: AddsCallback
    ) -> None:
        def report(
            noted: Sequence[tuple[LedgerLac, AddToken]], error: FencelogError | None
        ) -> None:
            for (ledger_id, lac), _ in noted if error is None else ():
                self.history.counts["explicit LACs"] += 1
                self.history.on_event("explicit LAC")
                self._check_lac(ledger_id, lac)
                known = self._memory().lacs
                known[ledger_id] = max(lac, known.get(ledger_id, NO_LAC))
            on_replies([token for _, token in noted], error)

        self.history.counts["LACs of several ledgers"] += len(lacs) > 1
        super().write_lacs(lacs, list(zip(lacs, tokens, strict=True)), on_replies=report)

    async def read(self, ledger_id: int, first_entry_id: int, **limits: Any) -> ReadReply:
        memory, entry = self._memory(), (ledger_id, first_entry_id)
        had_it = entry in memory.entries or entry in memory.listed
        try:
            reply = await super().read(ledger_id, first_entry_id, **limits)
        except FencelogError as error:
            self._failed(error, ledger_id, first_entry_id, had_it=had_it)
            self._answered_fencing(ledger_id, error, fence=limits.get("fence", False))
            raise
        self._answered_fencing(ledger_id, None, fence=limits.get("fence", False))
        self._check_reply(ledger_id, reply)
        return (
            reply
            if self.damage is None
            else ReadReply(reply.lac, flipped(bytes(reply.run), self.damage))
        )

    async def read_ranges(
        self, ledger_id: int, ranges: Sequence[Range], *, max_bytes: int
    ) -> list[bytes]:
        memory = self._memory()
        entry = (ledger_id, ranges[0][0])
        had_it = entry in memory.entries or entry in memory.listed
        try:
            runs = await super().read_ranges(ledger_id, ranges, max_bytes=max_bytes)
        except FencelogError as error:
            self._failed(error, ledger_id, ranges[0][0], had_it=had_it)
            raise
        self.history.counts["reads of ranges"] += 1
        for run in runs:
            self._check_reply(ledger_id, ReadReply(NO_LAC, run))
        return runs if self.damage is None else [flipped(run, self.damage) for run in runs]

    async def read_lac(self, ledger_id: int, *, fence: bool = False, **poll: Any) -> int:
        memory = self._memory()
        floor = memory.lacs.get(ledger_id, NO_LAC)
        try:
            lac = await super().read_lac(ledger_id, fence=fence, **poll)
        except FencelogError as error:
            self._denied(error, ledger_id, self._promised(ledger_id))
            self._answered_fencing(ledger_id, error, fence=fence)
            raise
        if lac < floor:
            self._violate(6, f"says LAC {lac} of ledger {ledger_id}, had promised {floor}")
        memory.lacs[ledger_id] = max(lac, memory.lacs.get(ledger_id, NO_LAC))
        self._check_lac(ledger_id, lac)
        self._answered_fencing(ledger_id, None, fence=fence)
        return lac

    async def list_entries(self, ledger_id: int, from_entry: int = 0) -> EntryList:
        held = self._promised(ledger_id)
        try:
            reply = await super().list_entries(ledger_id, from_entry)
        except FencelogError as error:
            self._denied(error, ledger_id, held)
            raise
        self.history.counts["lists of entries"] += 1
        in_limbo = self._memory().in_limbo
        in_limbo.add(ledger_id) if reply.in_limbo else in_limbo.discard(ledger_id)
        if reply.in_limbo:
            self._memory().limbo_told_s[ledger_id] = asyncio.get_running_loop().time()
        self.history.on_event("list")
        self._memory().listed.update(
            (ledger_id, n) for a, b in reply.availability.ranges() for n in range(a, b + 1)
        )
        following = MAX_ENTRY_ID if reply.next_entry is None else reply.next_entry
        for entry_id in [] if reply.in_limbo else sorted(held):
            is_due = from_entry <= entry_id < following
            is_missing = is_due and entry_id not in reply.availability
            if is_missing and not self._may_be_cut_off(ledger_id, entry_id):
                self._violate(10, f"does not list entry {entry_id} of ledger {ledger_id}")
        return reply

    def _promised(self, ledger_id: int) -> set[int]:
        """The entries that it has acknowledged or listed, whatever it went through since; of those
        that it lost with a disk, what the ledger kept: nothing else is ever brought back."""
        memory, metadata = self._memory(), self.history.latest(ledger_id)
        known = (*memory.entries, *memory.listed)
        promised = {entry for ledger, entry in known if ledger == ledger_id}
        if metadata is not None:
            promised |= {
                entry
                for ledger, entry in memory.previous_entries
                if ledger == ledger_id
                and self._may_not_deny(metadata, entry)
                and not (metadata.is_closed and entry > metadata.last_entry_id)
            }
        return promised

    # -- what it does by itself ------------------------------------------------------------------

    async def _add_shard(self, opened: OpenShard, disk: Disk) -> None:
        await super()._add_shard(opened, disk)
        shard = self.shards[-1]
        remove, repoint = shard.remove, shard.storage.index.repoint

        async def observed_remove(ledger_id: int, *, deleted: bool) -> None:
            self._check_removal(ledger_id, deleted=deleted)
            if not deleted:
                # Named again, perhaps at another place, it is given what belongs there.
                self._memory().forget(ledger_id)
            await remove(ledger_id, deleted=deleted)
            if deleted:
                self._memory().removed.add(ledger_id)
            self.history.counts["ledgers removed" if deleted else "ledgers given up"] += 1
            self.history.on_event("removed")

        def observed_repoint(moves: Iterable[tuple[StoredRun, StoredRun]]) -> int:
            moved = repoint(moves)
            self.history.counts["compactions"] += 1
            self.history.counts["runs moved"] += moved
            return moved

        setattr(shard, "remove", observed_remove)  # noqa: B010 - an observer around the original
        setattr(shard.storage.index, "repoint", observed_repoint)  # noqa: B010 - an observer around the original

    def _check_removal(self, ledger_id: int, *, deleted: bool) -> None:
        """Garbage is what the metadata does not have, or gives to others (invariant 14)."""
        metadata = self.history.latest(ledger_id)
        if deleted and metadata is not None:
            self._violate(14, f"removes ledger {ledger_id}, which was not deleted")
        elif metadata is not None and not deleted:
            named = any(self.bookie_id in fragment.bookies for fragment in metadata.fragments)
            if named or not metadata.is_closed:
                self._violate(14, f"gives up ledger {ledger_id}: {metadata}")

    def fence_forgotten(self, ledger_id: int) -> None:
        """Check that it does not end the writer of a ledger of which it never had anything (9)."""
        versions = self.history.metadata.get(ledger_id, [])
        is_open = all(each.state is LedgerState.OPEN for each in versions)
        fragments = (fragment for each in versions for fragment in each.fragments)
        if versions and is_open and not any(self.bookie_id in each.bookies for each in fragments):
            self._violate(9, f"fences ledger {ledger_id}, which is open and was never here")
        super().fence_forgotten(ledger_id)

    async def clear_limbo(self, ledger_id: int) -> None:
        """Check, since negatives are definite from now on, that it has everything metadata assigns
        to it."""
        metadata = self.history.latest(ledger_id)
        await super().clear_limbo(ledger_id)
        self.history.counts["limbo cleared"] += 1
        self._memory().in_limbo.discard(ledger_id)
        if metadata is None:
            return
        if not metadata.is_closed:
            self._violate(10, f"takes ledger {ledger_id} out of limbo, which is not closed")
            return
        with suppress(FencelogError):
            listed = await super().list_entries(ledger_id)
            if listed.in_limbo or listed.next_entry is not None:
                return
            for entry_id in range(metadata.last_entry_id + 1):
                is_own = self.bookie_id in write_set_of(metadata, entry_id)
                if is_own and entry_id not in listed.availability:
                    self._violate(10, f"takes {ledger_id} out of limbo without entry {entry_id}")

    def count_maintenance(self, *, may_be_damaged: bool) -> None:
        """Add up, at its end, what its services report. Damage that they found, and repaired,
        needs a reason."""
        for part, names in _COUNTED.items():
            told = self.status_parts[part]() if part in self.status_parts else {}
            for name, what in names.items():
                self.history.counts[what] += told.get(name, 0)
        damage = self.status_parts.get("integrity", dict[str, Any])().get("damaged_runs_found")
        if damage and not may_be_damaged and not self._memory().is_damaged:
            self._violate(14, f"has found {damage} damaged runs, which nobody had damaged")

    # -- checks ----------------------------------------------------------------------------------

    def _denied(self, error: FencelogError, ledger_id: int, held: Collection[int]) -> None:
        """Check the answer that it does not know the ledger: it was deleted, or has nothing
        here."""
        if error.code in NOES and self._is_gone(ledger_id):
            return
        if error.code in NOES and held:
            self._violate(10, f"does not know ledger {ledger_id} any more")

    def _is_gone(self, ledger_id: int) -> bool:
        """Tell whether it may have removed the ledger; then nothing of it is expected any more."""
        if ledger_id not in self.history.deleted:
            return False
        if self.history.may_come_back and ledger_id not in self._memory().removed:
            return False
        self._memory().forget(ledger_id)
        return True

    def _answered_fencing(
        self, ledger_id: int, error: FencelogError | None, *, fence: bool
    ) -> None:
        """An answer that recovery may count on: the fence holds from here on."""
        if fence and (error is None or error.code in NOES):
            self.history.counts["fences"] += 1
            self.history.on_event("fence")
            self._memory().fenced[ledger_id] = self.incarnation

    def _failed(self, error: FencelogError, ledger_id: int, entry_id: int, *, had_it: bool) -> None:
        if error.code not in NOES:
            return
        self.history.counts["negative reads"] += 1
        if self._is_gone(ledger_id):
            return
        entry = (ledger_id, entry_id)
        if had_it and not self._may_be_cut_off(ledger_id, entry_id):
            self._violate(10, f"says that it has no entry {entry_id} of ledger {ledger_id}")
        metadata = self.history.latest(ledger_id)
        if metadata is None or self._is_behind_the_end(ledger_id, entry_id):
            return
        forgot = entry in self._memory().previous_entries
        if forgot and self._may_not_deny(metadata, entry_id):
            self._violate(10, f"forgot entry {entry_id} of ledger {ledger_id} and says no")

    def _may_not_deny(self, metadata: LedgerMetadata, entry_id: int) -> bool:
        """Tell whether it may not deny an entry that it lost with a disk. Nobody concludes anything
        from one that metadata does not name; nor, while the ledger is open, from a copy of a closed
        fragment: a worker may name the bookie after its start (``engine/boot.py``)."""
        if self.bookie_id not in write_set_of(metadata, entry_id):
            return False
        is_last = metadata.fragments[-1].first_entry_id <= entry_id
        from_writers = self._memory().from_writers
        return metadata.is_closed or is_last or (metadata.ledger_id, entry_id) in from_writers

    def _may_be_cut_off(self, ledger_id: int, entry_id: int) -> bool:
        """Tell whether it may have left out this entry that it had: of a damaged run that goes on
        behind the closed end, a repair keeps the entries before it alone."""
        return self._memory().is_damaged and self._is_behind_the_end(ledger_id, entry_id)

    def _is_behind_the_end(self, ledger_id: int, entry_id: int) -> bool:
        metadata = self.history.latest(ledger_id)
        return metadata is not None and metadata.is_closed and entry_id > metadata.last_entry_id

    def _check_reply(self, ledger_id: int, reply: ReadReply) -> None:
        self.history.counts["bookie reads"] += 1
        self._check_lac(ledger_id, reply.lac)
        memory = self._memory()
        try:
            verify_run(reply.run)
        except ProtocolError as error:
            self._violate(12, f"read of ledger {ledger_id} gave {error.detail}")
            return
        for entry_id, digest in entry_digests(bytes(reply.run)):
            if memory.entries.get((ledger_id, entry_id), digest) != digest:
                self._violate(5, f"changed the bytes of entry {entry_id} of ledger {ledger_id}")

    def _check_lac(self, ledger_id: int, lac: int) -> None:
        ledger = self.history.ledgers.get(ledger_id)
        if ledger is not None and lac > ledger.confirmed:
            self._violate(6, f"has LAC {lac} of ledger {ledger_id}, its writer {ledger.confirmed}")

    def _violate(self, invariant: int, text: str) -> None:
        self.history.violate(invariant, f"bookie {self.bookie_id} {text}")


def entry_digests(run: bytes) -> list[tuple[int, int]]:
    """(entry id, digest of all its bytes) of each entry of a run. The padding behind it is no part
    of it: the digest of its writer does not guard it, and nobody reads it."""
    header = read_run_header(run)
    digests: list[tuple[int, int]] = []
    unpack, view = ENTRY_HEADER.unpack_from, memoryview(run)
    for entry_id, start in enumerate(run_starts(run, header), header.first_entry_id):
        _, _, _, _, size, kind = unpack(run, start)
        end = start + ENTRY_HEADER.size + _DIGEST_BYTES[kind] + size
        digests.append((entry_id, crc32c(view[start:end])))
    return digests


def flipped(run: bytes, random: Random) -> bytes:
    """A run with one bit of an entry flipped, in half of the cases before it was summed up."""
    header = read_run_header(run)
    damaged = bytearray(run)
    place = random.randrange(run_starts(run, header)[0], len(run))
    damaged[place] ^= 1 << random.randrange(8)
    if random.random() < 0.5:
        checksum = crc32c(damaged[RUN_HEADER.size :], crc32c(damaged[:24]))
        damaged[24:28] = checksum.to_bytes(4, "little")
    return bytes(damaged)


def _name(header: Any) -> str:
    return f"{header.ledger_id}/{header.first_entry_id}..{header.last_entry_id}"
