"""Every version of the lists of ledgers of all incarnations: those of a living topic as in
``ledger_list_watch``, and how those of a deleted one go."""

from __future__ import annotations

from fencelog.broker.ledger_list.codec import decode_ledger_list
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from fencelog.ledgers.metastore.memory import MemoryCluster
from tests.sim.oracle.history import History
from tests.sim.oracle.incarnations import AdminLog, Incarnations
from tests.sim.oracle.list_watch import LOGS_PATH, LedgerListWatch

Key = tuple[str, int]
"""Topic id, partition."""


class IncarnationLedgerLists(LedgerListWatch):
    """Made after the incarnations, so that it finds them up to date."""

    def __init__(
        self, history: History, cluster: MemoryCluster, incarnations: Incarnations
    ) -> None:
        self._incarnations = incarnations
        self.by_key: dict[Key, LedgerList] = {}
        self._made_too_late: set[Key] = set()
        super().__init__(history, cluster, [])

    def _changed(self, path: str) -> None:
        parts = path.split("/")
        if path.startswith(f"{LEDGERS_PATH}/") and len(parts) == 4:
            self._ledger_changed(int(parts[2], 16) << 16 | int(parts[3], 16))
        elif path.startswith(f"{LOGS_PATH}/") and len(parts) == 4:
            self._list_changed(path, parts[2], int(parts[3]))

    def _ledger_changed(self, ledger_id: int) -> None:
        if self.history.latest(ledger_id) is not None:
            return
        for (topic_id, partition), ledger_list in self.by_key.items():
            if ledger_id in ledger_list.ledgers and not ledger_list.deleted:
                self.history.violate(
                    16, f"ledger {ledger_id} is deleted, {topic_id[:4]}/{partition} lists it (I4)"
                )

    def _list_changed(self, path: str, topic_id: str, partition: int) -> None:
        log = self._incarnations.log(topic_id, partition)
        is_living = self._incarnations.is_living(topic_id)
        before = self.by_key.get((topic_id, partition))
        try:
            now = decode_ledger_list(self._cluster.get(path).value)
        except FencelogError:
            self.by_key.pop((topic_id, partition), None)
            if is_living:
                log.violate(16, f"{path} is gone, and its topic is not")
            elif before is not None and before.segments and not before.deleted:
                log.violate(16, f"{path} is gone, and was never marked")
            return
        self.by_key[topic_id, partition] = now
        if before is None and not is_living:
            self._made_too_late.add((topic_id, partition))
        elif (topic_id, partition) in self._made_too_late and before and now.epoch > before.epoch:
            log.violate(24, "its topic was deleted before it was made, and it is taken over")
        if is_living and now.deleted:
            log.violate(16, f"{path} is marked deleted, and its topic is not")
        if before is not None and before.deleted:
            log.violate(16, f"{path} was changed after it was marked deleted")
        log.state.cursors()  # what was acknowledged before is judged by the list of before
        log.listed |= now.ledgers
        log.is_rolling = sum(segment.sealed is None for segment in now.segments) > 1
        if is_living and not now.deleted:  # else it may have been made again, and be empty
            log.state.listed(now.state_ledger)
            log.check_access()
        if before is not None and not now.deleted:
            horizon = 0 if now.compacted is None else now.compacted.end_offset
            log.check_gone(now.start_offset, horizon)
            self._check(log, before, now)
            self._check_end(log, before, now)
        log.segments = now.segments
        self.listed |= now.ledgers
        for ledger_id in sorted(now.ledgers & self.history.deleted):
            if not now.deleted:
                log.violate(16, f"ledger {ledger_id} is listed, and was deleted (I4)")

    def _check_end(self, log: AdminLog, before: LedgerList, now: LedgerList) -> None:
        """A log that was ended stays so, and no ledger follows; the view goes on (24)."""
        unsealed = [s.ledger_id for s in now.segments if s.sealed is None]
        if now.terminated and unsealed:
            log.violate(24, f"it has ended, and ledgers {unsealed} are not sealed")
        if before.terminated and not now.terminated:
            log.violate(24, "it had ended, and goes on")
        if before.terminated and {s.ledger_id for s in now.segments} - before.ledgers:
            log.violate(24, "it had ended, and got a ledger")
        if now.terminated and now.next_base is not None:
            log.ended(now.next_base)
        previous = before.compacted
        if previous is not None and (
            now.compacted is None or now.compacted.end_offset < previous.end_offset
        ):
            log.violate(24, f"the compacted view ended at {previous.end_offset}, and goes back")
        if now.compacted is not None and now.compacted != previous:
            begin = 0 if previous is None else previous.end_offset
            log.horizons[now.compacted.end_offset] = begin
