"""Commits of one log: its part of ``exactlyOnce=segments``.

A committer (a Spark query) has ledgers made for the log, writes them itself, straight to bookies,
and asks the owner to commit them under the number of its batch. One compare-and-set of the list of
ledgers adds them all and stores the number, so a batch is in the log once or not at all, whoever
dies when; a commit of that batch, or of an earlier one, that comes again changes nothing and tells
what was committed.

The owner closes each ledger by recovery, so its writer adds nothing more, and checks and claims it
(``pending_core``) before appends are held; then they are held, those in flight are settled, and the
segments join (``LogCore.adopt``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fencelog.broker.append.access_changes import AccessChanges
from fencelog.broker.append.admission import Admission
from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.commits import pending_core
from fencelog.broker.ledger_list.ledger_list import Commit, LedgerList, Segment
from fencelog.broker.ledger_list.open_ledger import LedgerFactory
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.ledger_list.withdrawal import Properties
from fencelog.broker.limits import MAX_WAITING_COMMITS
from fencelog.broker.log.log_writer import LogWriter
from fencelog.broker.log.step_runner import Adoption
from fencelog.broker.read.log_reader import LogReader
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of
from fencelog.ledgers.format.entry_header import read_entry_header
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

T = TypeVar("T")

CHECKED_AT_ONCE = 16
"""The ledgers of one commit that are closed and checked at the same time."""

_LOOKS = 4
"""The number of times that a step of the log may begin as appends are held for a commit."""

_BY_OWNER = (
    ErrorCode.BACKLOG_QUOTA_EXCEEDED,
    ErrorCode.LEDGER_NOT_FOUND,
    ErrorCode.LIMIT_REACHED,
)
"""The refusals of an owner that its successor may have no reason for: it may have fewer committers,
ledgers and messages, and may have made this commit, and trimmed it, since."""


@dataclass(frozen=True, slots=True)
class PendingLedger:
    """A new ledger for a committer to write, and the incarnations of its bookies, which each add
    names."""

    metadata: LedgerMetadata
    incarnations: dict[str, str]


@dataclass(frozen=True, slots=True)
class Committed:
    """The last commit of a committer. ``duplicate``: it was in the log before the request."""

    commit: Commit
    duplicate: bool


class Commits:
    """Makes, commits and withdraws the ledgers of committers, one request after the other. A
    request continues if its caller goes away."""

    def __init__(
        self,
        node: LedgerListStore,
        factory: LedgerFactory,
        writer: LogWriter,
        pipeline: AppendPipeline,
        reader: LogReader,
        access: AccessChanges,
        admission: Admission,
    ) -> None:
        self._node = node
        self._factory = factory
        self._writer = writer
        self._pipeline = pipeline
        self._reader = reader
        self._access = access
        self._admission = admission
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def create(self, committer: str) -> PendingLedger:
        """Make a ledger for this committer to write. Raises TOPIC_TERMINATED, why the log has
        ended, NOT_ENOUGH_BOOKIES, OUT_OF_SPACE, METADATA_…."""
        self._check_open()
        writer = await self._factory.create_pending(committer)
        await writer.abandon()  # it is written elsewhere
        return PendingLedger(writer.metadata, dict(writer.incarnations))

    def last(self, committer: str) -> Commit | None:
        """Return the last commit of a committer, as this owner knows it."""
        return self._node.ledger_list.commits.get(committer)

    async def commit(
        self,
        committer: str,
        batch: int,
        ledgers: Sequence[tuple[int, int]],
        partitions: int = 0,
        *,
        ends: bool = False,
        by_appends: bool = False,
    ) -> Committed:
        """Add these ledgers, each with its number of messages, to the log as this batch; all of
        them are in it on return, or a commit of this batch or a later one was before. ``ends``: the
        committer commits nothing after it. ``by_appends``: it names no ledgers, for it appends the
        batch; ledgers that are to be committed under its number later are not.

        Raises FencelogError. METADATA_UNKNOWN: they may be in the log. Nothing was added with
        BAD_REQUEST, LEDGER_NOT_FOUND (one was withdrawn), LIMIT_REACHED, NO_OWNER,
        BACKLOG_QUOTA_EXCEEDED, PRODUCER_BUSY, PRECONDITION_FAILED, TOPIC_TERMINATED,
        RECOVERY_INCOMPLETE, READ_UNKNOWN, ….
        """
        if by_appends and ledgers:
            what = f"batch {batch} is appended, and {len(ledgers)} ledgers were to be committed"
            raise FencelogError(ErrorCode.BAD_REQUEST, what)
        flags = {"ends": ends, "by_appends": by_appends}
        return await self._one(self._commit(committer, batch, ledgers, partitions, flags))

    async def abort(self, committer: str, batch: int, ledgers: Sequence[int]) -> Commit | None:
        """Withdraw the ledgers of a batch unless it is committed; return its commit, or that of a
        later one, in this case. A commit of these ledgers that is still on its way is refused from
        then on. Raises FencelogError: BAD_REQUEST, NO_OWNER, METADATA_…; repeat it."""
        return await self._one(self._abort(committer, batch, ledgers))

    async def _one(self, work: Coroutine[Any, Any, T]) -> T:
        if len(self._tasks) >= MAX_WAITING_COMMITS:
            work.close()
            raise FencelogError(ErrorCode.OVERLOADED, f"{len(self._tasks)} commits wait")
        task = asyncio.get_running_loop().create_task(self._in_turn(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def _in_turn(self, work: Awaitable[T]) -> T:
        async with self._turn:
            return await work

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the error is the caller's, which may have gone away

    # -- commit ----------------------------------------------------------------------------------

    async def _commit(
        self,
        committer: str,
        batch: int,
        ledgers: Sequence[tuple[int, int]],
        partitions: int,
        flags: Mapping[str, bool],
    ) -> Committed:
        done = self._found(committer, batch)
        if done is not None:
            return Committed(done, duplicate=True)
        self._check_open()
        now_us = self._factory.host.now_us()
        messages = sum(count for _, count in ledgers)
        tail = self._pipeline.tail_offset
        commit = Commit(batch, tail, messages, now_us, partitions, **flags)
        async with self._reader.refusing_as_owner(*_BY_OWNER):
            self._admission.check_quota()
            # Before anything is closed, and before the list grows by the next ledger.
            self._node.ledger_list.with_commit(committer, commit)
            if ledgers:
                self._node.ledger_list.check_adoptable([ledger_id for ledger_id, _ in ledgers])
            checked = await self._checked(committer, ledgers)
            if checked:
                segments, metadata = zip(*checked, strict=True)
                await self._adopt(Adoption(committer, commit, segments, metadata))
            else:
                await self._note(committer, commit)
        made = self.last(committer)
        assert made is not None
        return Committed(made, duplicate=False)

    def _found(self, committer: str, batch: int) -> Commit | None:
        last = self.last(committer)
        return last if last is not None and last.batch >= batch else None

    def _check_open(self) -> None:
        self._node.check_held()
        refusal = self._pipeline.mode.refusal
        if refusal is not None:
            raise copy_of(refusal)
        if self._node.ledger_list.terminated:  # the log is about to be told
            raise self._terminated()

    def _terminated(self) -> FencelogError:
        tail = self._pipeline.tail_offset
        detail = f"the partition is terminated at offset {tail}"
        return FencelogError(ErrorCode.TOPIC_TERMINATED, detail, tail_offset=tail)

    async def _adopt(self, adoption: Adoption) -> None:
        """Add the segments between two steps of the log: one that waits for the metadata store may
        wait for long, and appends must not wait behind it."""
        for left in reversed(range(_LOOKS)):
            await self._writer.rest()
            async with self._access.held():
                if self._writer.is_at_rest or not left:
                    await self._writer.adopt(adoption)
                    break
        if adoption.dropped is not None:
            with suppress(FencelogError):  # an empty ledger that is on no list may stay behind
                await self._factory.ledgers.delete(adoption.dropped)

    async def _note(self, committer: str, commit: Commit) -> None:
        """Store the number of a batch that has no messages here."""

        def noted(ledger_list: LedgerList) -> LedgerList:
            if ledger_list.terminated:  # meanwhile
                raise self._terminated()
            return ledger_list.with_commit(committer, commit)

        try:
            await self._node.change(noted)
        except LedgerListLost as lost:
            raise FencelogError(
                ErrorCode.METADATA_UNKNOWN, f"the batch may be committed, or not: {lost.detail}"
            ) from lost

    async def _checked(
        self, committer: str, ledgers: Sequence[tuple[int, int]]
    ) -> list[tuple[Segment, LedgerMetadata]]:
        """Close, check and claim every ledger; return their segments and metadata, in order."""
        if len({ledger_id for ledger_id, _ in ledgers}) != len(ledgers):
            raise FencelogError(ErrorCode.BAD_REQUEST, "a ledger is named twice")
        slots = asyncio.Semaphore(CHECKED_AT_ONCE)

        async def checked(ledger_id: int, messages: int) -> tuple[Segment, LedgerMetadata]:
            async with slots:
                return await self._check(committer, ledger_id, messages)

        found = await asyncio.gather(
            *(checked(*each) for each in ledgers), return_exceptions=True
        )  # all come to an end before any error is told
        segments: list[tuple[Segment, LedgerMetadata]] = []
        for each in found:
            if isinstance(each, BaseException):
                raise each
            segments.append(each)
        return segments

    async def _check(
        self, committer: str, ledger_id: int, messages: int
    ) -> tuple[Segment, LedgerMetadata]:
        ledgers = self._factory.ledgers
        # Whose it is comes before the fence: nobody closes ledgers of others this way.
        claim = partial(self._claimed, committer)
        await ledgers.describe(ledger_id, lambda metadata: _nothing(claim(metadata)))
        metadata = await ledgers.recover(ledger_id)
        last = await ledgers.reader(metadata).read_last()
        facts = pending_core.facts_of(
            metadata,
            None if last is None else read_entry_header(last.payload),
            messages=messages,
            now_us=self._factory.host.now_us(),
        )
        await ledgers.describe(ledger_id, claim)
        return Segment(ledger_id, metadata.created_us, None, facts), metadata

    def _claimed(self, committer: str, metadata: LedgerMetadata) -> Properties:
        epoch = self._node.ledger_list.epoch
        return pending_core.claimed(
            metadata, log=self._factory.log_name, committer=committer, epoch=epoch
        )

    # -- abort -----------------------------------------------------------------------------------

    async def _abort(self, committer: str, batch: int, ledgers: Sequence[int]) -> Commit | None:
        done = self._found(committer, batch)
        if done is not None:
            return done
        # A commit by this owner that nobody heard of may be in the list: it is looked at.
        await self._node.check_unchanged()
        withdrawn: Callable[[LedgerMetadata], Properties | None] = partial(
            pending_core.withdrawn,
            log=self._factory.log_name,
            committer=committer,
            epoch=self._node.ledger_list.epoch,
        )
        for ledger_id in ledgers:
            if ledger_id in self._node.ledger_list.ledgers:
                raise FencelogError(
                    ErrorCode.BAD_REQUEST, f"ledger {ledger_id} is in the log, by another batch"
                )
            try:
                await self._factory.ledgers.describe(ledger_id, withdrawn)
                await self._factory.ledgers.delete(ledger_id)
            except FencelogError as error:
                if error.code not in (ErrorCode.LEDGER_NOT_FOUND, ErrorCode.RECOVERY_INCOMPLETE):
                    raise  # else it is deleted already, or the sweep deletes it
        return None


def _nothing(checked: object) -> None:
    """Change nothing: it was to be checked whether a change is allowed."""
