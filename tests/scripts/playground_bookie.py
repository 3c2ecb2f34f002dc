"""A bookie as small as its rules: what it stores, what it refuses, what it may say "no" to.

It answers at once and keeps everything in dictionaries. ``forget`` is what a real bookie may only
do after it lost a disk, or ran without a journal (PROTOCOL.md rules 6, 7 and 10; seed 002).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.format.run import merge_runs, read_run_header, run_lac, slice_run
from fencelog.ledgers.rpc.bookie_port import NO_LAC, FenceAnswer, ReadReply

PAYLOAD_OFFSET = 32 + 8 + 40 + 8
"""The offset of the payload in a run of one entry: after the run's header and index, and the
entry's header and digest."""


@dataclass
class StoredLedger:
    """The part of a bookie that holds one ledger; ``entries`` are runs of one entry each."""

    entries: dict[int, bytes] = field(default_factory=dict)
    lac: int = NO_LAC
    fenced: bool = False
    in_limbo: bool = False
    is_deleted: bool = False
    """A tombstone: nothing is here, and nothing is taken."""


@dataclass
class ModelBookie:
    """One bookie. Requests raise FencelogError where a real one would answer with it."""

    bookie_id: str
    run: int = 1
    is_down: bool = False
    ledgers: dict[int, StoredLedger] = field(default_factory=dict)
    polls: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def incarnation(self) -> str:
        return f"{self.bookie_id}-{self.run}"

    def add(self, run: bytes, *, recovery: bool, incarnation: str | None) -> None:
        header = read_run_header(run)
        ledger = self._admit(header.ledger_id, recovery=recovery, incarnation=incarnation)
        entries = range(header.first_entry_id, header.last_entry_id + 1)
        missing = [entry_id for entry_id in entries if entry_id not in ledger.entries]
        for entry_id in missing:  # what is stored stays as it is
            ledger.entries[entry_id] = slice_run(run, entry_id, entry_id)
        if missing:
            self._learn(ledger, run_lac(run, header))

    def write_lac(self, ledger_id: int, lac: int, *, incarnation: str | None) -> None:
        """A number alone makes no ledger known."""
        if ledger_id not in self.ledgers:
            raise self._unknown()
        self._learn(self._admit(ledger_id, recovery=False, incarnation=incarnation), lac)

    def read(
        self, ledger_id: int, first: int, *, max_entries: int, max_bytes: int, fence: bool
    ) -> ReadReply:
        ledger = self._known(ledger_id, fence=fence)
        runs: list[bytes] = []
        while first + len(runs) in ledger.entries and len(runs) < max_entries:
            runs.append(ledger.entries[first + len(runs)])
            if sum(map(len, runs)) > max_bytes:
                break
        if not runs:
            self._deny(ledger, ErrorCode.NO_SUCH_ENTRY)
        return ReadReply(ledger.lac, merge_runs(runs))

    def fence_and_read(self, ledger_id: int, above: int) -> FenceAnswer:
        """All that is there from the LAC on, or from ``above``: that entry may be missing."""
        ledger = self._known(ledger_id, fence=True)
        if ledger.lac == NO_LAC and ledger.in_limbo:
            self._deny(ledger, ErrorCode.NO_SUCH_LEDGER)
        first = max(ledger.lac, above)
        if first not in ledger.entries:
            first += first < 0 or not ledger.in_limbo
        held: list[bytes] = []
        while first + len(held) in ledger.entries:
            held.append(ledger.entries[first + len(held)])
        absent = None if ledger.in_limbo else first + len(held)
        return FenceAnswer(ledger.lac, merge_runs(held) if held else b"", absent)

    async def read_lac(self, ledger_id: int, *, fence: bool, above: int, wait_ms: int) -> int:
        if wait_ms and not fence:
            await self._wait_for_lac(ledger_id, above, wait_ms)
        ledger = self._known(ledger_id, fence=fence)
        if ledger.lac == NO_LAC and ledger.in_limbo:
            self._deny(ledger, ErrorCode.NO_SUCH_LEDGER)
        return ledger.lac

    def forget(self, fence: Iterable[int], *, limbo: Iterable[int]) -> None:
        """Lose everything. A bookie that knows that fences all ledgers that name it, and puts
        those that are not closed into limbo, before it serves."""
        self.ledgers = {ledger_id: StoredLedger(fenced=True) for ledger_id in fence}
        for ledger_id in limbo:
            self.ledgers.setdefault(ledger_id, StoredLedger()).in_limbo = True

    def remove(self, ledger_id: int) -> None:
        """Metadata does not have the ledger any more: a tombstone is all that is left."""
        self.ledgers[ledger_id] = StoredLedger(fenced=True, is_deleted=True)

    def damage(self, ledger_id: int, entry_id: int) -> None:
        """The payload is another, and the run's own checksum fits it: only the digest tells."""
        entries = self.ledgers[ledger_id].entries
        entries[entry_id] = with_other_payload(entries[entry_id])

    def lines(self) -> Iterator[str]:
        """Yield what it holds, a line for each ledger."""
        for ledger_id, ledger in sorted(self.ledgers.items()):
            words = ["fenced"] * ledger.fenced + ["in limbo"] * ledger.in_limbo
            held = ranges(sorted(ledger.entries)) or "nothing"
            yield f"{self.bookie_id}: L{ledger_id} {', '.join([held, f'lac {ledger.lac}', *words])}"

    def _admit(self, ledger_id: int, *, recovery: bool, incarnation: str | None) -> StoredLedger:
        if incarnation not in (None, self.incarnation):
            raise FencelogError(ErrorCode.WRONG_INCARNATION, f"this is {self.incarnation}")
        ledger = self.ledgers.setdefault(ledger_id, StoredLedger())
        if ledger.fenced and not recovery:
            raise FencelogError(ErrorCode.LEDGER_FENCED, f"{self.bookie_id} has fenced it")
        if ledger.is_deleted:
            raise self._unknown()
        return ledger

    def _known(self, ledger_id: int, *, fence: bool) -> StoredLedger:
        """Fencing comes before any answer, and makes an unknown ledger known (rule 6)."""
        if fence:
            self.ledgers.setdefault(ledger_id, StoredLedger()).fenced = True
            self._wake()
        if ledger_id not in self.ledgers or self.ledgers[ledger_id].is_deleted:
            raise self._unknown()
        return self.ledgers[ledger_id]

    def _unknown(self) -> FencelogError:
        return FencelogError(ErrorCode.NO_SUCH_LEDGER, f"not on {self.bookie_id}")

    def _deny(self, ledger: StoredLedger, code: ErrorCode) -> None:
        """No is no: not from a ledger of which something may have been forgotten (rule 7)."""
        code = ErrorCode.LEDGER_IN_LIMBO if ledger.in_limbo else code
        raise FencelogError(code, f"not on {self.bookie_id}")

    def _learn(self, ledger: StoredLedger, lac: int) -> None:
        if lac > ledger.lac:
            ledger.lac = lac
            self._wake()

    async def _wait_for_lac(self, ledger_id: int, above: int, wait_ms: int) -> None:
        """Return when the LAC grows above ``above``, with a fence, or after that time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        while loop.time() < until:
            ledger = self.ledgers.get(ledger_id)
            if ledger is not None and (ledger.lac > above or ledger.fenced):
                return
            self.polls.append(loop.create_future())
            timer = loop.call_at(until, self._wake)
            await self.polls[-1]
            timer.cancel()

    def _wake(self) -> None:
        """Let those who wait for a higher LAC look again."""
        polls, self.polls = self.polls, []
        for poll in polls:
            if not poll.done():
                poll.set_result(None)


def with_other_payload(run: bytes) -> bytes:
    """A run of one entry whose last payload byte is flipped, under a checksum that holds."""
    damaged = bytearray(run)
    damaged[PAYLOAD_OFFSET] ^= 0xFF
    struct.pack_into("<I", damaged, 24, crc32c(damaged[32:], crc32c(damaged[:24])))
    return bytes(damaged)


def range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in ascending order, adjacent ones as first..last."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(range_text(first, last) for first, last in parts)
