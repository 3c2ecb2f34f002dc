"""The entries that each bookie acknowledged, and the check that it can still return them.

A ledger tolerates a bookie that loses entries, since there are other copies. A drill of bookies
does not, so it remembers every answer of every bookie and asks each of them, alone, at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import read_run_header, verify_entries
from fencelog.ledgers.limits import MAX_READ_BYTES, MAX_RUN_ENTRIES
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import AddCallback, BookieClient, SingleAdds

Payload = Callable[[int, int], bytes]
"""The payload that a writer of the drill gave to an entry, by ledger id and entry id."""


@dataclass(slots=True)
class OwnCopies:
    """The entries that bookies acknowledged, by their current answers. ``unknown``: an error that
    is no negative; ``wrong_negatives``: "no such entry", or "no such ledger"."""

    read: int = 0
    unknown: int = 0
    wrong_negatives: int = 0
    different: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.wrong_negatives or self.different)

    def add(self, other: OwnCopies) -> None:
        """Add the counts of another bookie."""
        self.read += other.read
        self.unknown += other.unknown
        self.wrong_negatives += other.wrong_negatives
        self.different += other.different


@dataclass(slots=True)
class BookieAcks:
    """The answers of one bookie to adds, over all its restarts. ``ranges``: first and last entry of
    each run that it acknowledged, by ledger; ``refusals``: the number of times that it, or the
    connection to it, gave each error."""

    ranges: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    refusals: Counter[ErrorCode] = field(default_factory=Counter)
    acknowledged: int = 0

    def forget(self) -> None:
        """Forget the acknowledged ranges: the bookie has lost its disk, and its answers so far do
        not count any more."""
        self.ranges.clear()

    def watch(self, run: bytes, on_reply: AddCallback) -> AddCallback:
        """Return a callback that notes the answer and then calls ``on_reply``."""
        header = read_run_header(run)

        def reply(error: FencelogError | None) -> None:
            if error is None:
                found = header.first_entry_id, header.last_entry_id
                self.ranges.setdefault(header.ledger_id, []).append(found)
                self.acknowledged += header.entries
            else:
                self.refusals[error.code] += 1
            on_reply(error)

        return reply


class WatchedBookieClient(TcpBookieClient):
    """A client that notes the entries that its bookie acknowledges."""

    def __init__(self, bookie_id: str, address: str, acks: BookieAcks) -> None:
        super().__init__(bookie_id, address)
        self._acks = acks

    def add(
        self, run: bytes, *, recovery: bool, incarnation: str | None, on_reply: AddCallback
    ) -> None:
        watched = self._acks.watch(run, on_reply)
        super().add(run, recovery=recovery, incarnation=incarnation, on_reply=watched)

    add_many = SingleAdds.add_many  # each of them by ``add``, which watches it


async def own_copies(client: BookieClient, acks: BookieAcks, payload: Payload) -> OwnCopies:
    """Ask a bookie for every entry that it has acknowledged by now."""
    result = OwnCopies()
    for ledger_id, ranges in list(acks.ranges.items()):
        for first, last in joined(ranges):
            await _compare(client, ledger_id, first, last, payload, result)
    return result


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same entries in as few ranges as possible, ascending."""
    whole: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if whole and first <= whole[-1][1] + 1:
            whole[-1] = whole[-1][0], max(last, whole[-1][1])
        else:
            whole.append((first, last))
    return whole


async def _compare(
    client: BookieClient, ledger_id: int, first: int, last: int, payload: Payload, result: OwnCopies
) -> None:
    """Read the entries from ``first`` to ``last``; one that cannot be read counts alone."""
    while first <= last:
        wanted = min(last - first + 1, MAX_RUN_ENTRIES)
        try:
            reply = await client.read(
                ledger_id, first, max_entries=wanted, max_bytes=MAX_READ_BYTES
            )
            entries = verify_entries(reply.run)
        except FencelogError as error:
            if error.code.is_negative:
                result.wrong_negatives += 1
            else:
                result.unknown += 1
            first += 1
            continue
        for entry in entries:
            same = entry.ledger_id == ledger_id and entry.entry_id == first
            if same and entry.payload == payload(ledger_id, first):
                result.read += 1
            else:
                result.different += 1
            first += 1
