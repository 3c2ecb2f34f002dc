"""What the oracle expects after a restore: the promises that go back to the time of the backup, and
those that do not (``k8s/OPERATIONS.md``, "What is lost with a restore").

Bookies did not go back, so all that they have promised stays. A partition's log is what was in the
ledgers that the backup names, also what was appended to them later; everything else is as if it had
never been appended, and may be appended anew.
"""

from __future__ import annotations

from functools import partial

from fencelog.broker.ledger_list.codec import decode_ledger_list
from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.ledgers.format.entry_header import KIND_MESSAGES, read_entry_header
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, decode_metadata
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from tests.sim.metadata.restores.tree import Backup
from tests.sim.metadata.watch import MetadataWatch
from tests.sim.oracle.history import History
from tests.sim.oracle.list_watch import LOGS_PATH, LedgerListWatch
from tests.sim.oracle.log_history import LogHistory
from tests.sim.oracle.subscription_history import SubscriptionHistory

INVARIANT = 41


def ledgers_in(backup: Backup) -> dict[int, tuple[LedgerMetadata, int]]:
    """Return the metadata of all ledgers that a backup names, and the number of its version."""
    found: dict[int, tuple[LedgerMetadata, int]] = {}
    for path, node in backup.nodes.items():
        parts = path.split("/")
        if path.startswith(f"{LEDGERS_PATH}/") and len(parts) == 4:
            metadata = decode_metadata(node.value)
            found[metadata.ledger_id] = metadata, node.version.number
    return found


def roll_back_ledgers(history: History, watch: MetadataWatch, backup: Backup) -> None:
    """Have the oracle know the ledgers of the backup, as they were then. Those that were open end
    anew, at what was acknowledged or above it; all others are gone."""
    there = ledgers_in(backup)
    history.deleted |= history.metadata.keys()
    history.deleted -= there.keys()
    history.metadata = {ledger_id: [metadata] for ledger_id, (metadata, _) in there.items()}
    watch._versions = {ledger_id: number for ledger_id, (_, number) in there.items()}
    for ledger_id, (metadata, _) in there.items():
        if not metadata.is_closed:
            history.ends.pop(ledger_id, None)
            history._found_ends.pop(ledger_id, None)


def list_in(backup: Backup, partition: int) -> LedgerList | None:
    """Return a partition's list of ledgers as a backup has it; None: it had none."""
    for path, node in backup.nodes.items():
        parts = path.split("/")
        if path.startswith(f"{LOGS_PATH}/") and len(parts) == 4 and int(parts[3]) == partition:
            return decode_ledger_list(node.value)
    return None


def kept_end(history: History, now: LedgerList | None) -> int:
    """Return the offset below which all messages stay: those in the ledgers of that list, up to
    what was acknowledged to their writers, or where a later owner had found their ends. Called
    before the ledgers are rolled back."""
    if now is None or not now.segments:
        return 0 if now is None else now.start_offset
    end = now.segments[0].base_offset or 0
    for segment in now.segments:
        if segment.sealed is not None:
            end += segment.sealed.messages
            continue
        ledger, metadata = history.ledgers.get(segment.ledger_id), history.latest(segment.ledger_id)
        if ledger is None:
            continue
        is_closed = metadata is not None and metadata.is_closed
        last = max(ledger.confirmed, metadata.last_entry_id if metadata and is_closed else -1)
        headers = map(read_entry_header, ledger.payloads[: last + 1])
        end += sum(header.count for header in headers if header.kind == KIND_MESSAGES)
    return end


def rolled_back(log: LogHistory, backup: Backup) -> LogHistory:
    """Return the history of a partition after the restore: what was said of the messages that stay
    is true for ever, and of all others nothing was ever said."""
    history, now = log.history, list_in(backup, log.partition)
    end = kept_end(history, now)
    after = LogHistory(history, log.partition, sent=log.sent, sequences=log.sequences)
    after.messages = {at: payload for at, payload in log.messages.items() if at < end}
    after.times = {at: time_us for at, time_us in log.times.items() if at < end}
    after.places = {payload: at for at, payload in after.messages.items()}
    after.known_end = min(log.known_end, end)
    after.acked_end = min(log.acked_end, end)
    after.listed = set(log.listed)
    after.only_for = log.only_for
    if now is not None:
        after.begins = {epoch: at for epoch, at in log.begins.items() if epoch <= now.epoch}
        after.starts = {epoch: at for epoch, at in log.starts.items() if epoch <= now.epoch}
        after.start_offset = now.start_offset
    for sent in {id(sent): sent for sent in log.sent.values()}.values():
        sent.floor = min(sent.floor, after.known_end)
        if sent.payloads[0] not in after.places:
            history.counts["messages lost by a restore"] += sent.is_certain
            sent.offset, sent.is_certain = None, False
    history.counts["messages kept by a restore"] += len(after.messages)
    return after


def roll_back_lists(lists: LedgerListWatch, logs: list[LogHistory], backup: Backup) -> None:
    """Have the oracle know the lists of the backup, and ``logs`` what is left of them."""
    lists._logs[:] = logs
    lists.ledger_lists = {}
    for log in logs:
        now = list_in(backup, log.partition)
        if now is not None:
            lists.ledger_lists[log.partition] = now
            log.is_rolling = now.is_rolling
            log.state.listed(now.state_ledger)
            log.state.rewinds_to = partial(_last_base, lists, log.partition)


def _last_base(lists: LedgerListWatch, partition: int) -> int:
    """Return where the last ledger of the list begins: the end that its owner has found."""
    now = lists.ledger_lists[partition]
    return (now.segments[-1].base_offset if now.segments else now.next_base) or 0


def rolled_back_subscription(before: SubscriptionHistory, log: LogHistory) -> SubscriptionHistory:
    """Return the history of a subscription after the restore: acknowledgements of messages that
    stay may be durable, and none of others is."""
    after = SubscriptionHistory(log, before.info)
    after.follow()
    after.asked = {at: set(asks) for at, asks in before.asked.items() if at < log.known_end}
    return after
