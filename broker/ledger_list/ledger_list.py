"""The ledger list: the list of ledgers that make up one partition's log, and its legal changes.

A ledger list is an immutable value in one metadata node, changed only by compare-and-set under a
fresh token. These invariants of every ledger list are checked at every change:

* offsets are dense: a segment's base is its predecessor's base and messages together;
* only the last two segments may be unsealed (a roll lists its successor before the old ledger is
  closed, and no second roll begins before that), so fencing two ledgers is enough at takeover;
* the epoch grows with every takeover and with nothing else;
* segments that were written elsewhere (``with_adopted``) join after the last sealed one, sealed,
  together with the commit that names them;
* segments are removed from the beginning only, sealed ones only; ``start_offset`` never decreases.

An empty ledger is dropped only at a takeover, when its metadata says CLOSED with no entry: "not
found" and "no answer" prove nothing (apache/pulsar#26074).

Besides the messages' ledgers the ledger list names the one ledger of the partition's state
(``state_log``) and those of its compacted view: a takeover replaces all of them with the same
compare-and-set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fencelog.broker.limits import IDLE_COMMITTER_S, MAX_COMMITTERS, MAX_LISTED_TAKEOVERS
from fencelog.ledgers.errors import ErrorCode, FencelogError, check

MAX_UNSEALED = 2

MAX_SEGMENTS = 3000
"""The maximum number of ledgers of one log; above it none is rolled. One takes up to 250 bytes of a
metadata node, which holds 900 KiB: this leaves space for the commits and for the ledgers that
takeovers and failures add. A list that outgrows its node cannot be taken over."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The facts of a closed ledger, which never change. ``size`` in payload bytes.

    ``has_producers``: some entry names producers or idempotency keys, so that a takeover which
    rebuilds their table has to read the ledger.
    """

    entries: int
    messages: int
    size: int
    last_publish_us: int
    sealed_us: int
    has_producers: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """One ledger of the log. ``base_offset`` is None until the predecessor is sealed; ``epoch`` is
    its creator's. ``is_adopted``: it was written elsewhere and joined by a commit;
    ``sealed.last_publish_us``, the time of that, is the publish time of all its messages."""

    ledger_id: int
    created_us: int
    base_offset: int | None
    sealed: Sealed | None = None
    epoch: int = 0
    is_adopted: bool = False

    @property
    def end_offset(self) -> int | None:
        if self.sealed is None or self.base_offset is None:
            return None
        return self.base_offset + self.sealed.messages


@dataclass(frozen=True, slots=True)
class Compacted:
    """The newest message of every key below ``end_offset``, in ledgers of their own; from there on
    the compacted view is the log itself. ``size`` in payload bytes."""

    ledgers: tuple[int, ...]
    end_offset: int
    messages: int
    size: int
    created_us: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The last commit of one committer: the number of the batch, the offset and number of its
    messages here, and its time. ``partitions``: the number of partitions that the committer spread
    the batch over, as it has stated. ``ends``: it commits nothing after this batch;
    ``by_appends``: it appends the batch instead, so it commits no ledgers under this number."""

    batch: int
    offset: int
    messages: int
    committed_us: int
    partitions: int = 0
    ends: bool = False
    by_appends: bool = False


@dataclass(frozen=True, slots=True)
class Takeover:
    """The beginning of an epoch: the broker that took the partition over, and when."""

    epoch: int
    broker_id: str
    taken_us: int


@dataclass(frozen=True, slots=True)
class LedgerList:
    """One value of the list. ``token`` names the change that wrote this value, ``owner`` the broker
    that took it over last (for operators). ``terminated``: nothing is ever appended again;
    ``deleted`` ledger lists stay deleted. ``start_offset``: nothing below is readable any more."""

    epoch: int = 0
    token: str = ""
    owner: str = ""
    segments: tuple[Segment, ...] = ()
    last_publish_us: int = 0
    start_offset: int = 0
    state_ledger: int | None = None
    compacted: Compacted | None = None
    commits: Mapping[str, Commit] = field(default_factory=dict)
    """The last commit of every committer."""
    takeovers: tuple[Takeover, ...] = ()
    """The newest takeovers, in order, for operators: nothing is decided by them."""
    terminated: bool = False
    deleted: bool = False

    @property
    def to_recover(self) -> tuple[Segment, ...]:
        """The segments not marked sealed, and in any case the last two (seed 001)."""
        tail = len(self.segments) - MAX_UNSEALED
        return tuple(s for n, s in enumerate(self.segments) if n >= tail or s.sealed is None)

    @property
    def is_rolling(self) -> bool:
        """Tell whether an old ledger still waits to be sealed."""
        return any(segment.sealed is None for segment in self.segments[:-1])

    @property
    def next_base(self) -> int | None:
        """The base of a ledger that would be added now; None while the last one is not sealed."""
        return self.segments[-1].end_offset if self.segments else self.start_offset

    @property
    def ledgers(self) -> frozenset[int]:
        """The ledgers that belong to the partition, all of them."""
        state = () if self.state_ledger is None else (self.state_ledger,)
        compacted = () if self.compacted is None else self.compacted.ledgers
        return frozenset((*(s.ledger_id for s in self.segments), *state, *compacted))

    def taken_over(
        self, sealed: Mapping[int, Sealed], *, ledger_id: int | None, created_us: int, owner: str
    ) -> LedgerList:
        """Return the list after the first step of a new owner: all ledgers sealed, the empty ones
        dropped, its own added (None: the log is terminated)."""
        segments = self.segments
        for segment in segments:
            if segment.sealed is None:
                segments = _sealed(segments, segment.ledger_id, sealed[segment.ledger_id])
        base = segments[-1].end_offset if segments else self.start_offset
        kept = tuple(s for s in segments if s.sealed is not None and s.sealed.entries > 0)
        epoch = self.epoch + 1
        check((ledger_id is None) == self.terminated, "a terminated log gets no ledger")
        if ledger_id is not None:
            kept = (*kept, Segment(ledger_id, created_us, base, epoch=epoch))
        newest = max((s.last_publish_us for s in sealed.values()), default=0)
        return _checked(
            replace(
                self,
                epoch=epoch,
                owner=owner,
                segments=kept,
                last_publish_us=max(self.last_publish_us, newest),
                takeovers=(*self.takeovers, Takeover(epoch, owner, created_us))[
                    -MAX_LISTED_TAKEOVERS:
                ],
            )
        )

    def with_next(self, *, ledger_id: int, created_us: int) -> LedgerList:
        """Return the list after the first step of a roll. The base is known if the last ledger is
        sealed already."""
        check(not self.is_rolling, "a second roll before the first is finished")
        check(not self.terminated, "a terminated log gets no ledger")
        following = Segment(ledger_id, created_us, self.next_base, epoch=self.epoch)
        return _checked(replace(self, segments=(*self.segments, following)))

    def with_sealed(self, ledger_id: int, sealed: Sealed) -> LedgerList:
        """Return the list after a ledger was closed: its size is known, and its successor's base
        with it."""
        return _checked(
            replace(
                self,
                segments=_sealed(self.segments, ledger_id, sealed),
                last_publish_us=max(self.last_publish_us, sealed.last_publish_us),
            )
        )

    def with_commit(self, committer: str, commit: Commit) -> LedgerList:
        """Return the list with the last commit of this committer. Where there are too many
        committers, one is forgotten: the oldest that has ended, else the one that was silent
        longest. Raises FencelogError(LIMIT_REACHED) if that one may repeat its batch yet."""
        before = self.commits.get(committer)
        check(before is None or before.batch < commit.batch, "a batch is committed again")
        check(not self.terminated, "a terminated log gets no commits")
        kept = {name: each for name, each in self.commits.items() if name != committer}
        if len(kept) >= MAX_COMMITTERS:
            del kept[_forgettable(kept, commit.committed_us)]
        return replace(self, commits={**kept, committer: commit})

    def check_adoptable(self, ledger_ids: Collection[int]) -> None:
        """Check, before these ledgers are closed, what ``with_adopted`` will. Raises
        FencelogError: LIMIT_REACHED, BAD_REQUEST."""
        _check_joins(self, ledger_ids, max(0, len(self.segments) - 1))  # if the last one is empty

    def with_adopted(self, segments: Sequence[Segment]) -> LedgerList:
        """Return the list after these sealed segments, which have no base yet, have joined it at
        the end. Every ledger is sealed; the last one is left out if it is empty. A ledger to write
        must follow (``with_next``). Raises FencelogError: LIMIT_REACHED, BAD_REQUEST (a ledger is
        in the log already)."""
        base = self.next_base
        check(base is not None, "segments join before the last ledger is sealed")
        kept = self.segments
        if kept and kept[-1].sealed is not None and kept[-1].sealed.entries == 0:
            kept = kept[:-1]
        _check_joins(self, [segment.ledger_id for segment in segments], len(kept))
        joined: list[Segment] = []
        for segment in segments:
            joined.append(replace(segment, base_offset=base, epoch=self.epoch, is_adopted=True))
            base = joined[-1].end_offset
        newest = max((s.sealed.last_publish_us for s in segments if s.sealed), default=0)
        return replace(
            self,
            segments=(*kept, *joined),
            last_publish_us=max(self.last_publish_us, newest),
        )

    def with_state(self, ledger_id: int) -> LedgerList:
        """Return the list with this ledger for the state log; it begins with the state in the
        previous one."""
        return _checked(replace(self, state_ledger=ledger_id))

    def with_compacted(self, compacted: Compacted) -> LedgerList:
        """Return the list with a new compacted view, in place of the previous one."""
        previous = 0 if self.compacted is None else self.compacted.end_offset
        check(compacted.end_offset >= previous, "the compacted view goes back")
        return _checked(replace(self, compacted=compacted))

    def trimmed(self, ledger_ids: Sequence[int]) -> LedgerList:
        """Return the list without the oldest segments, exactly these. The last one is removed only
        if the log is terminated: appends need it, and an unsealed ledger may still get some."""
        count = len(ledger_ids)
        dropped, kept = self.segments[:count], self.segments[count:]
        check([s.ledger_id for s in dropped] == list(ledger_ids), "not the oldest ledgers")
        check(all(s.sealed is not None for s in dropped), "a ledger that is not sealed is trimmed")
        check(bool(kept) or self.terminated, "the last ledger is trimmed")
        end = (dropped[-1].end_offset if dropped else None) or 0
        return _checked(replace(self, segments=kept, start_offset=max(self.start_offset, end)))

    def with_start(self, offset: int) -> LedgerList:
        """Return the list in which nothing below ``offset`` is readable. The offset never
        decreases."""
        return _checked(replace(self, start_offset=max(self.start_offset, offset)))

    def as_terminated(self) -> LedgerList:
        """Return the list of a log to which nothing is appended any more; all ledgers are
        sealed."""
        check(all(s.sealed is not None for s in self.segments), "a ledger is not sealed yet")
        return _checked(replace(self, terminated=True))

    def as_deleted(self) -> LedgerList:
        """Return the list marked deleted: no broker may change it or take it over any more."""
        return replace(self, deleted=True)


def _forgettable(commits: Mapping[str, Commit], now_us: int) -> str:
    """Return the committer to be forgotten. Raises FencelogError(LIMIT_REACHED)."""
    name = min(commits, key=lambda each: (not commits[each].ends, commits[each].committed_us))
    if commits[name].ends or now_us - commits[name].committed_us >= IDLE_COMMITTER_S * 1e6:
        return name
    raise FencelogError(
        ErrorCode.LIMIT_REACHED,
        f"the partition has {len(commits)} committers that may repeat their last batch yet: none "
        f"has ended, or was silent for {IDLE_COMMITTER_S / 86_400:g} days",
    )


def _check_joins(ledger_list: LedgerList, ledger_ids: Collection[int], kept: int) -> None:
    """Check that the ledgers may join ``kept`` others and the ledger after them."""
    if kept + len(ledger_ids) >= MAX_SEGMENTS:
        raise FencelogError(
            ErrorCode.LIMIT_REACHED,
            f"the partition has {kept} ledgers and cannot take {len(ledger_ids)} more: at most "
            f"{MAX_SEGMENTS}. Trim it or give the topic a retention, and commit fewer and larger "
            "ledgers",
        )
    listed = sorted(ledger_list.ledgers.intersection(ledger_ids))
    if listed:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"ledgers {listed} are in the log already")


def _sealed(segments: tuple[Segment, ...], ledger_id: int, sealed: Sealed) -> tuple[Segment, ...]:
    changed = list(segments)
    (position,) = (n for n, segment in enumerate(segments) if segment.ledger_id == ledger_id)
    segment = replace(changed[position], sealed=sealed)
    changed[position] = segment
    if position + 1 < len(changed):
        changed[position + 1] = replace(changed[position + 1], base_offset=segment.end_offset)
    return tuple(changed)


def _checked(ledger_list: LedgerList) -> LedgerList:
    segments = ledger_list.segments
    check(not ledger_list.deleted, "a deleted ledger list is not changed")
    check(len({s.ledger_id for s in segments}) == len(segments), "a ledger is listed twice")
    check(bool(segments) or ledger_list.terminated, "a log without a ledger")
    check(not segments or segments[0].base_offset is not None, "the log has no beginning")
    for before, after in pairwise(segments):
        check(before.end_offset == after.base_offset, f"gap before ledger {after.ledger_id}")
    old = segments[:-MAX_UNSEALED]
    check(all(segment.sealed is not None for segment in old), "an old ledger is not sealed")
    return ledger_list
