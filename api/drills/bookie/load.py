"""Ledger writers that survive failures of bookies, and the check of what they wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from functools import partial

import anyio

from fencelog.api.client.retry import retry_not_applied
from fencelog.api.drills.harness.account import Account, Attempt, account, message_value
from fencelog.api.drills.harness.load import GIVE_UP_S
from fencelog.ledgers.client import LedgerClient, Replication
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.writer.writer import LedgerWriter

REPLICATION = Replication(ensemble_size=3, write_quorum=3, ack_quorum=2)


@dataclass(frozen=True, slots=True)
class BurstLoad:
    """The load of a writer: ``burst`` entries of ``entry_bytes``, then a pause, since the disk has
    to hold a whole drill. ``exclude``: bookies that are in no ledger's first ensemble."""

    entry_bytes: int = 100
    burst: int = 50
    pause_s: float = 0.01
    exclude: tuple[str, ...] = ()

    def payload(self, ledger_id: int, entry_id: int) -> bytes:
        """Return the bytes of an entry, which name it."""
        return message_value(ledger_id, entry_id, size=self.entry_bytes)


@dataclass(slots=True)
class WrittenLedger:
    """A ledger and its ends. ``acknowledged`` and ``sent``: the last entries that its writer
    reported as such."""

    ledger_id: int
    acknowledged: int = -1
    sent: int = -1


class LedgerLoad:
    """A writer of one ledger after the other; it begins the next one when a writer has failed."""

    def __init__(self, client: LedgerClient, load: BurstLoad) -> None:
        self._client = client
        self._load = load
        self._changed = anyio.Event()
        self.ledgers: list[WrittenLedger] = []
        self.acknowledged = 0
        self.longest_wait_s = 0.0

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Write until ``is_over``. Raises FencelogError when nothing works for GIVE_UP_S."""
        while not is_over():
            writer = await self._create()
            written = WrittenLedger(writer.ledger_id)
            self.ledgers.append(written)
            await self._write(writer, is_over)
            written.acknowledged = writer.last_add_confirmed
            written.sent = writer.last_add_pushed
            await writer.abandon()

    async def _write(self, writer: LedgerWriter, is_over: Callable[[], bool]) -> None:
        """Write burst after burst, each acknowledged before the next; ends with the writer's
        failure."""
        load, ledger_id, entry_id = self._load, writer.ledger_id, 0
        while writer.failure is None and not is_over():
            began = anyio.current_time()
            for _ in range(load.burst):
                writer.append(load.payload(ledger_id, entry_id))
                entry_id += 1
            while writer.failure is None and writer.last_add_confirmed < entry_id - 1:
                await self._progress(began)
            if writer.failure is None:
                self.acknowledged += load.burst
                self.longest_wait_s = max(self.longest_wait_s, anyio.current_time() - began)
                await anyio.sleep(load.pause_s)

    async def _progress(self, began: float) -> None:
        self._changed = anyio.Event()
        with anyio.CancelScope(deadline=began + GIVE_UP_S):
            await self._changed.wait()
            return
        raise FencelogError(
            ErrorCode.APPEND_UNKNOWN, f"nothing was acknowledged for {GIVE_UP_S:.0f} s"
        )

    async def _create(self) -> LedgerWriter:
        return await retry_not_applied(
            lambda: self._client.create(
                REPLICATION,
                on_ack=lambda lac: self._changed.set(),
                on_failure=lambda error: self._changed.set(),
                exclude=self._load.exclude,
            )
        )


@dataclass(slots=True)
class BurstResult:
    """The result of the comparison. ``different``: entries with other bytes than their writer gave
    them."""

    account: Account = field(default_factory=Account)
    different: int = 0


async def recover_and_compare(
    client: LedgerClient, written: Iterable[WrittenLedger], load: BurstLoad
) -> BurstResult:
    """Recover every ledger, read it from beginning to end, and compare."""
    result = BurstResult()
    for ledger in written:
        metadata = await retry_not_applied(partial(client.recover, ledger.ledger_id))
        values = await _read_all(client.reader(metadata))
        found = account(_attempts(ledger), values)
        result.account = _sum(result.account, found)
        result.different += sum(
            value != load.payload(ledger.ledger_id, entry_id)
            for entry_id, value in enumerate(values)
        )
    return result


def _attempts(ledger: WrittenLedger) -> list[Attempt]:
    unknown = ledger.acknowledged + 1
    return [
        Attempt(ledger.ledger_id, 0, unknown, 0),
        Attempt(ledger.ledger_id, unknown, ledger.sent + 1 - unknown, None),
    ]


def _sum(one: Account, other: Account) -> Account:
    return Account(*map(sum, zip(astuple(one), astuple(other), strict=True)))


async def _read_all(reader: LedgerReader) -> list[bytes]:
    """Return the payloads of a closed ledger, in order; index = entry id."""
    values: list[bytes] = []
    while len(values) <= reader.last_confirmed:
        read = partial(reader.read, len(values), reader.last_confirmed)
        values += [bytes(entry.payload) for entry in await retry_not_applied(read)]
    return values
