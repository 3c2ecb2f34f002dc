"""Every version of a partition's list of ledgers, checked as it takes effect (invariant 16, I4,
I8, I9, I13): what the store has is the truth, whatever a broker believes."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from fencelog.broker.ledger_list.codec import decode_ledger_list
from fencelog.broker.ledger_list.ledger_list import LedgerList, Segment
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from fencelog.ledgers.metastore.memory import MemoryCluster
from tests.sim.oracle.history import History
from tests.sim.oracle.log_history import LogHistory

LOGS_PATH = "/logs"


class LedgerListWatch:
    """Made after the watch over ledgers, so that it finds their metadata up to date."""

    def __init__(self, history: History, cluster: MemoryCluster, logs: list[LogHistory]) -> None:
        self.history = history
        self._cluster = cluster
        self._logs = logs
        self.ledger_lists: dict[int, LedgerList] = {}
        self.listed: set[int] = set()
        """Ledgers that a ledger list has had."""
        self._topic_id: str | None = None
        """The topic of the logs: the first one that has a list."""
        cluster.subscribe(self._changed)

    def _changed(self, path: str) -> None:
        parts = path.split("/")
        if path.startswith(f"{LEDGERS_PATH}/") and len(parts) == 4:
            self._ledger_changed(int(parts[2], 16) << 16 | int(parts[3], 16))
        elif path.startswith(f"{LOGS_PATH}/") and len(parts) == 4:
            self._topic_id = self._topic_id or parts[2]
            if parts[2] == self._topic_id:
                self._ledger_list_changed(path, int(parts[3]))
            else:
                self._other_list_changed(path)

    def _ledger_changed(self, ledger_id: int) -> None:
        if self.history.latest(ledger_id) is not None:
            return
        for partition, ledger_list in self.ledger_lists.items():
            if ledger_id in ledger_list.ledgers:
                self.history.violate(
                    16, f"ledger {ledger_id} is deleted, partition {partition} lists it (I4)"
                )

    def _ledger_list_changed(self, path: str, partition: int) -> None:
        log = self._logs[partition]
        try:
            now = decode_ledger_list(self._cluster.get(path).value)
        except FencelogError:
            log.violate(16, f"{path} is gone")
            return
        before = self.ledger_lists.get(partition)
        self.ledger_lists[partition] = now
        log.listed |= now.ledgers
        log.is_rolling = sum(segment.sealed is None for segment in now.segments) > 1
        log.state.listed(now.state_ledger)
        if before is not None:
            self._check(log, before, now)
        self.listed |= now.ledgers
        for ledger_id in sorted(now.ledgers & self.history.deleted):
            log.violate(16, f"ledger {ledger_id} is listed, and was deleted (I4)")

    def _other_list_changed(self, path: str) -> None:
        """Note the ledgers of a topic of dead letters, of which no more is watched here."""
        with suppress(FencelogError):  # it is gone
            self.listed |= decode_ledger_list(self._cluster.get(path).value).ledgers

    def _check(self, log: LogHistory, before: LedgerList, now: LedgerList) -> None:
        if now.token == before.token:
            log.violate(16, "two changes of the list have one token")
        if now.last_publish_us < before.last_publish_us:
            log.violate(16, "the list's last publish time goes back")
        if now.start_offset < before.start_offset:
            log.violate(20, f"the log begins at {now.start_offset}, was {before.start_offset}")
        if now.start_offset > log.start_offset:
            log.trimmed(now.start_offset)
        unsealed = [s.ledger_id for s in now.segments[:-2] if s.sealed is None]
        if unsealed:
            log.violate(16, f"ledgers {unsealed} are not sealed, and not among the last two (I2b)")
        for previous, following in pairwise(now.segments):
            if following.base_offset != _end_of(previous):
                log.violate(16, f"a gap before ledger {following.ledger_id} (I8)")
        self._check_kept(log, before, now)
        for segment in now.segments:
            self._check_sealed(log, segment)
        if now.epoch != before.epoch:
            self._check_takeover(log, before, now)
        elif len(now.segments) > len(before.segments):
            self.history.on_event("rolling")
            self.history.counts["rolls"] += 1
        else:
            self.history.on_event("sealed")

    def _check_kept(self, log: LogHistory, before: LedgerList, now: LedgerList) -> None:
        """Check that sealed ledgers stay, and that removed ones were trimmed, or closed empty
        (I13)."""
        there = {segment.ledger_id: segment for segment in now.segments}
        for segment in before.segments:
            after = there.get(segment.ledger_id)
            if after is None:
                self._check_dropped(log, segment, now)
            elif segment.sealed is not None and after != segment:
                log.violate(16, f"sealed ledger {segment.ledger_id} was changed")
        ids = [segment.ledger_id for segment in before.segments if segment.ledger_id in there]
        if [segment.ledger_id for segment in now.segments][: len(ids)] != ids:
            log.violate(16, "the order of the ledgers was changed")

    def _check_dropped(self, log: LogHistory, segment: Segment, now: LedgerList) -> None:
        if segment.end_offset is not None and segment.end_offset <= now.start_offset:
            return
        metadata = self.history.latest(segment.ledger_id)
        if metadata is None or not metadata.is_closed or metadata.last_entry_id >= 0:
            log.violate(16, f"ledger {segment.ledger_id} was dropped, and not proved empty (I13)")

    def _check_sealed(self, log: LogHistory, segment: Segment) -> None:
        if segment.sealed is None:
            return
        metadata = self.history.latest(segment.ledger_id)
        if metadata is None:
            log.violate(16, f"ledger {segment.ledger_id} is listed, and not there")
        elif not metadata.is_closed or metadata.last_entry_id + 1 != segment.sealed.entries:
            log.violate(
                16,
                f"ledger {segment.ledger_id} is {metadata.state.value} at "
                f"{metadata.last_entry_id}, sealed with {segment.sealed.entries} entries (I6)",
            )

    def _check_takeover(self, log: LogHistory, before: LedgerList, now: LedgerList) -> None:
        if now.epoch != before.epoch + 1:
            log.violate(16, f"epoch {now.epoch} follows {before.epoch}")
        open_ledgers = [s.ledger_id for s in now.segments[:-1] if s.sealed is None]
        if open_ledgers:
            log.violate(16, f"epoch {now.epoch} begins, ledgers {open_ledgers} are open (I2)")
        base = now.segments[-1].base_offset if now.segments else None
        if now.terminated:  # it gets no ledger
            base = now.next_base
        if base is None:
            log.violate(16, f"epoch {now.epoch} begins at an offset that is not known")
        else:
            log.begun(now.epoch, base, now.start_offset)
        log.state.taken_over(now.epoch)
        self.history.on_event("takeover")


def _end_of(segment: Segment) -> int | None:
    """Return where its successor has to begin; None as long as nobody can know."""
    if segment.base_offset is None or segment.sealed is None:
        return None
    return segment.base_offset + segment.sealed.messages
