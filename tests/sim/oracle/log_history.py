"""The events of one partition's log, as its clients and its list of ledgers saw it: the oracle.

A log is linearizable if there is one sequence of messages in which every acknowledged append has
its offset, every read is a part, and whatever began after another was known to be there comes
later. So it is enough to remember, for every offset, the message that anybody was ever told to be
there; for every append, how far the log was known to reach when it began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fencelog.api.subscriptions.dead_letters import REPLAY_FOR
from fencelog.broker.append.conditions import (
    FORGOTTEN,
    NO_CONDITIONS,
    AppendConditions,
    AppendFuture,
    AppendResult,
)
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import Effects, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, SequenceRange
from fencelog.ledgers.record_batch import Message
from tests.sim.commits.history import CommitHistory
from tests.sim.oracle.history import History
from tests.sim.oracle.limits.producer_limit import ProducerLimit
from tests.sim.oracle.state_watch import StateWatch

NAME = "sim-name"
"""The header that tells which message an empty one is."""

AGAIN = b"again/"
"""The beginning of the payload of a dead letter that came back."""


Asking = Callable[[PartitionLog, Callable[[], AppendFuture]], AppendFuture]
"""Gives what the callable gives, which asks that instance for an append."""


@dataclass(slots=True, eq=False)
class Sent:
    """One or more messages that are appended together. ``floor``: the log was known to end there
    when the first attempt began. Their bytes are used for nothing else."""

    payloads: tuple[bytes, ...]
    is_batch: bool
    floor: int
    key: bytes | None = None
    """The key of its messages."""
    conditions: AppendConditions = NO_CONDITIONS
    headers: tuple[tuple[str, bytes], ...] = ()
    """The headers of its messages."""
    removes: bool = False
    """Its messages are empty: they remove their key. ``payloads`` are their names."""
    attempts: int = 0
    refused: int = 0
    """Attempts that were told to have done nothing."""
    offset: int | None = None
    """The offset at which it was acknowledged."""
    is_certain: bool = False
    """True if a client was answered that it is in the log."""

    @property
    def may_be_there(self) -> bool:
        return self.refused < self.attempts

    def message(self, payload: bytes) -> Message:
        """The message of that payload, or name."""
        if self.removes:
            return Message(b"", self.key, None, (*self.headers, (NAME, payload)))
        return Message(payload, self.key, None, self.headers)


def payload_of(message: Message) -> bytes:
    """The bytes that tell it from all others: its value, or its name if that is empty. A dead
    letter that came back has the value that it had."""
    value = bytes(message.value)
    if message.headers and any(name == REPLAY_FOR for name, _ in message.headers):
        return AGAIN + value.removeprefix(AGAIN)
    return value or dict(message.headers).get(NAME, b"")


@dataclass(slots=True)
class LogHistory:
    """One partition."""

    history: History
    partition: int
    sent: dict[bytes, Sent] = field(default_factory=dict)
    """Appends by the bytes of each message."""
    sequences: dict[tuple[bytes, int], list[Sent]] = field(default_factory=dict)
    """Appends by producer and epoch."""
    messages: dict[int, bytes] = field(default_factory=dict)
    """Messages by offset, as any client was answered."""
    places: dict[bytes, int] = field(default_factory=dict)
    begins: dict[int, int] = field(default_factory=dict)
    """The offset at which an epoch's owner began, by epoch, once the ledger list states it."""
    starts: dict[int, int] = field(default_factory=dict)
    """The offset below which all was trimmed when an epoch began, by epoch."""
    owners: dict[int, object] = field(default_factory=dict)
    """The instance that acknowledged something in an epoch, by epoch."""
    acked_to: dict[int, int] = field(default_factory=dict)
    """The end of what was acknowledged in an epoch, by epoch."""
    known_end: int = 0
    """The offset below which everything was acknowledged or read."""
    acked_end: int = 0
    told_end: dict[object, int] = field(default_factory=dict)
    """The offset up to which an instance has acknowledged or shown messages, by instance."""
    times: dict[int, int] = field(default_factory=dict)
    """Publish times by offset, as far as clients were answered one."""
    start_offset: int = 0
    known_start: int = 0
    """The offset below which all was trimmed when the last owner took over, or somebody was told
    so."""
    on_trim: Callable[[int], None] = lambda offset: None
    only_for: dict[bytes, str] = field(default_factory=dict)
    """The only subscription that receives a message, by the message's bytes."""
    listed: set[int] = field(default_factory=set)
    """Ledgers that its list has had."""
    is_rolling: bool = False
    """Its list has two ledgers that are not sealed."""
    let_in: Asking = lambda instance, append: append()
    """Asks an instance for an append, and judges whether it is let in."""
    producer_limit: ProducerLimit | None = None
    """The limit of producers, if the partition forgets producers."""
    state: StateWatch = field(init=False)
    commits: CommitHistory = field(init=False)

    def __post_init__(self) -> None:
        self.commits = CommitHistory(self)
        self.state = StateWatch(self.history, self.violate)

    def violate(self, invariant: int, text: str) -> None:
        self.history.violate(invariant, f"partition {self.partition}: {text}")

    @property
    def counts(self) -> Counter[str]:
        return self.history.counts

    # -- appends ---------------------------------------------------------------------------------

    def new(
        self,
        *payloads: bytes,
        is_batch: bool,
        key: bytes | None = None,
        conditions: AppendConditions = NO_CONDITIONS,
    ) -> Sent:
        """An append that will begin now. Those of one producer and epoch come in the order of their
        sequences."""
        sent = Sent(payloads, is_batch, self.known_end, key, conditions)
        for payload in payloads:
            self.sent[payload] = sent
        sequences = conditions.sequences
        if sequences is not None and sequences.kind == RANGE_SEQUENCE:
            self.sequences.setdefault((sequences.id, sequences.epoch), []).append(sent)
        return sent

    def attempted(self, sent: Sent) -> None:
        sent.attempts += 1
        self.counts["appends"] += 1
        self.history.on_event("append")

    def refused(self, sent: Sent, error: FencelogError) -> None:
        """The broker gave an error instead of an offset."""
        self.counts[f"append: {error.code.slug}"] += 1
        if error.code.effects is Effects.NONE:
            sent.refused += 1

    def acknowledged(self, sent: Sent, told: AppendResult, instance: object, epoch: int) -> None:
        """The broker's own edge: this instance gave this answer just now."""
        self.counts["append acks"] += 1
        sent.is_certain = True
        if told.duplicate:
            self.counts["duplicates"] += 1
            if told.offset == FORGOTTEN:
                return
        end = told.offset + len(sent.payloads)
        if told.count != len(sent.payloads):
            self.violate(21, f"{len(sent.payloads)} messages were acknowledged as {told.count}")
        is_again = sent.offset != told.offset and self._may_come_again(sent)
        if sent.offset not in (None, told.offset) and not is_again:
            self.violate(17, f"{sent.payloads[0]!r} is at {sent.offset} and at {told.offset}")
        if (sent.offset is None or is_again) and not told.duplicate:
            self._check_epoch(told.offset, end, instance, epoch)
        sent.offset = told.offset
        if told.offset < sent.floor:
            self.violate(21, f"append at {told.offset}, began when the log had {sent.floor}")
        if sent.conditions.if_offset not in (None, told.offset):
            self.violate(21, f"append at {told.offset}, {sent.conditions.if_offset} was expected")
        self.seen(told.offset, sent.payloads, "acknowledged")
        self.published(told.offset, len(sent.payloads), told.publish_time_us)
        self.acked_end = max(self.acked_end, end)
        self.told_end[instance] = max(end, self.told_end.get(instance, 0))
        self.history.on_event("append ack")

    def _check_epoch(self, offset: int, end: int, instance: object, epoch: int) -> None:
        """One instance acknowledges in an epoch, in the order of the log, and in its part of it."""
        if self.owners.setdefault(epoch, instance) is not instance:
            self.violate(16, f"two instances acknowledge in epoch {epoch}")
        begin = self.begins.get(epoch)
        if begin is None or offset < begin:
            self.violate(16, f"epoch {epoch}, which begins at {begin}, acknowledges {offset}")
        later = [begin for other, begin in self.begins.items() if other > epoch]
        if later and end > min(later):
            self.violate(16, f"epoch {epoch} acknowledges {end - 1}, a later one begins below")
        if offset < self.acked_to.get(epoch, 0):
            self.violate(16, f"{offset} is acknowledged after {self.acked_to[epoch] - 1} was")
        self.acked_to[epoch] = end

    # -- what was seen ---------------------------------------------------------------------------

    def seen(self, offset: int, payloads: tuple[bytes, ...], how: str) -> None:
        """Record that a client was answered these messages at these offsets."""
        for place, payload in enumerate(payloads, offset):
            if self.messages.setdefault(place, payload) != payload:
                self.violate(
                    21, f"{how}: offset {place} has {payload!r}, had {self.messages[place]!r}"
                )
            previous = self.places.setdefault(payload, place)
            if previous != place and not self._may_come_again(self.sent.get(payload)):
                self.violate(21, f"{how}: {payload!r} is at {place}, and at {previous}")
        self.known_end = max(self.known_end, offset + len(payloads))

    def _may_come_again(self, sent: Sent | None) -> bool:
        """Tell whether it may be written twice; ``check_whole`` says whether it was right to."""
        limit = self.producer_limit
        return (
            sent is not None
            and limit is not None
            and limit.may_come_again(sent.conditions.sequences)
        )

    def published(self, offset: int, count: int, time_us: int) -> None:
        """Check a publish time that a client was answered: it never differs, and never falls from
        one message to the next. FORGOTTEN says nothing."""
        if time_us == FORGOTTEN:
            return
        before = self.times.get(offset - 1, time_us)
        after = self.times.get(offset + count, time_us)
        if not before <= time_us <= after:
            self.violate(21, f"{offset} was published at {time_us}, others at {before} and {after}")
        for place in range(offset, offset + count):
            if self.times.setdefault(place, time_us) != time_us:
                self.violate(21, f"{place} was published at {self.times[place]}, and at {time_us}")

    def floor_of(self, instance: object, epoch: int) -> int:
        """Return how far the instance knows the log to reach, as it has told."""
        return max(self.told_end.get(instance, 0), self.begins.get(epoch, 0))

    def tail_shown(self, tail: int, floor: int, instance: object) -> None:
        """The instance said that the log ends there; it had told ``floor`` when it was asked."""
        if tail < floor:
            self.violate(21, f"a tail of {tail} is shown, the same had told {floor}")
        self.told_end[instance] = max(tail, self.told_end.get(instance, 0))
        self.known_end = max(self.known_end, tail)  # everything below is durable

    def denied(self, offset: int, known_end: int) -> None:
        """An owner said for certain that the log does not reach that far. It was known to end there
        when the owner was asked: no owner may say it, replaced or not."""
        self.counts["offsets denied"] += 1
        if offset <= known_end:
            self.violate(25, f"{offset} is denied, the log was known to reach {known_end}")

    @property
    def newest_epoch(self) -> int:
        """Return the epoch of the last takeover."""
        return max(self.begins, default=0)

    def begin_shown(self, offset: int, epoch: int) -> None:
        """The owner of that epoch said that the log begins there."""
        if offset < self.starts.get(epoch, 0):
            self.violate(
                20, f"epoch {epoch} begins at {offset}, it was trimmed to {self.starts[epoch]}"
            )

    def begun(self, epoch: int, offset: int, start: int = 0) -> None:
        """A takeover stands in the list of ledgers. Below ``start`` all was trimmed before it."""
        self.begins[epoch] = offset
        self.starts[epoch] = start
        self.known_start = max(self.known_start, start)
        self.counts["takeovers"] += 1
        if offset < self.acked_end:
            self.violate(
                16, f"epoch {epoch} begins at {offset}, {self.acked_end - 1} was acknowledged"
            )
        if offset < self.known_end:
            self.violate(
                21, f"epoch {epoch} begins at {offset}, {self.known_end - 1} had been read"
            )
        self.known_end = max(self.known_end, offset)

    def trimmed(self, offset: int) -> None:
        """Record that everything below was trimmed."""
        self.counts["trims"] += 1
        self.on_trim(offset)
        self.start_offset = offset
        self.known_end = max(self.known_end, offset)  # what goes was durable, answered or not

    def check_whole(self, start: int, end: int, publish_times: list[int]) -> None:
        """The log was read from its start to its end, and nothing is going on any more."""
        if end < self.known_end:
            self.violate(21, f"the log ends at {end}, {self.known_end - 1} had been seen")
        missing = [offset for offset in range(start, end) if offset not in self.messages]
        if missing:
            self.violate(21, f"nobody read {missing[:5]} of {start} to {end}")
        if publish_times != sorted(publish_times):
            self.violate(21, "a publish time goes back")
        for offset in range(start, end):
            payload = self.messages.get(offset)
            sent = self.sent.get(payload) if payload is not None else None
            if sent is None:
                self.violate(21, f"offset {offset} has {payload!r}, which nobody sent")
            elif payload == sent.payloads[0]:
                self._check_place(offset, sent)
        for sent in self.sent.values():
            if sent.is_certain and not start and sent.payloads[0] not in self.places:
                self.violate(21, f"{sent.payloads[0]!r} was acknowledged, and is not there")
        self.commits.check(start, self.places)
        if self.producer_limit is not None:
            self.producer_limit.check(self._numbered(end))
            return
        latest: dict[bytes, int] = {}
        for (producer, epoch), all_sent in sorted(self.sequences.items()):
            there = self._check_sequence(epoch, all_sent, is_whole=not start)
            if there and there[0] < latest.get(producer, -1):
                self.violate(
                    17, f"epoch {epoch} begins at {there[0]}, a previous one goes on there"
                )
            latest[producer] = max([latest.get(producer, -1), *there])

    def _numbered(self, end: int) -> dict[int, SequenceRange]:
        """Return the appends with sequence numbers that are in the log, by offset."""
        found: dict[int, SequenceRange] = {}
        for offset in range(end):
            sent = self.sent.get(self.messages.get(offset, b""))
            if sent is None or self.messages[offset] != sent.payloads[0]:
                continue
            sequences = sent.conditions.sequences
            if sequences is not None and sequences.kind == RANGE_SEQUENCE:
                found[offset] = sequences
        return found

    def _check_sequence(self, epoch: int, all_sent: list[Sent], *, is_whole: bool) -> list[int]:
        """Check that a producer's messages are in the log in order and, as far as nothing was
        trimmed, without a gap. Return their offsets."""
        places = [self.places.get(sent.payloads[0]) for sent in all_sent]
        there = [place for place in places if place is not None]
        if there != sorted(there) or (is_whole and None in places[: len(there)]):
            first = all_sent[0].payloads[0]
            self.violate(17, f"epoch {epoch} of the producer of {first!r} stands at {places}")
        return there

    def _check_place(self, offset: int, sent: Sent) -> None:
        if not sent.may_be_there:
            self.violate(21, f"{sent.payloads[0]!r} at {offset} was refused")
        if offset < sent.floor:
            self.violate(21, f"{sent.payloads[0]!r} at {offset} began after {sent.floor}")
        if sent.conditions.if_offset not in (None, offset):
            self.violate(
                21, f"{sent.payloads[0]!r} at {offset} expected {sent.conditions.if_offset}"
            )
        there = [self.messages.get(offset + place) for place in range(len(sent.payloads))]
        if there != list(sent.payloads):
            self.violate(21, f"the batch at {offset} is torn: {there}")
