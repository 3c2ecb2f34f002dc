"""The batches that committers asked one partition to commit: a batch is in the log once, as one of
its attempts wrote it, whole and in order, or not at all (invariant 37)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from tests.sim.oracle.log_history import LogHistory, Sent

INVARIANT = 37


@dataclass(slots=True, eq=False)
class Attempt:
    """The ledgers that were written for a batch, with what is in them."""

    committer: str
    batch: int
    number: int
    ledgers: list[int] = field(default_factory=list)
    sent: list[list[Sent]] = field(default_factory=list)
    """The entries of each ledger."""
    is_aborted: bool = False
    """True if an owner has answered that it never gets into the log."""

    @property
    def payloads(self) -> list[bytes]:
        return [payload for ledger in self.sent for sent in ledger for payload in sent.payloads]

    def __str__(self) -> str:
        return f"batch {self.batch} of {self.committer}, attempt {self.number}"


@dataclass(slots=True, eq=False)
class CommitHistory:
    """The attempts of all batches of one partition."""

    log: LogHistory
    attempts: dict[tuple[str, int], list[Attempt]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    """The offset that was told for a batch, by its committer and number."""

    def begin(self, committer: str, batch: int) -> Attempt:
        tried = self.attempts.setdefault((committer, batch), [])
        tried.append(Attempt(committer, batch, len(tried)))
        return tried[-1]

    def of_ledger(self, committer: str, batch: int, ledger_id: int) -> Attempt:
        """Return the attempt of a batch that wrote this ledger."""
        tried = self.attempts[committer, batch]
        return next(attempt for attempt in tried if ledger_id in attempt.ledgers)

    def told(self, attempt: Attempt, batch: int, offset: int, *, duplicate: bool) -> None:
        """An owner has answered that the batch, or a later one, is in the log."""
        counts = self.log.counts
        counts["commits repeated" if duplicate else "commits"] += 1
        if batch < attempt.batch:
            self._violate(f"{attempt}: batch {batch} is told to be the last")
        known = self.committed.setdefault((attempt.committer, batch), offset)
        if known != offset:
            self._violate(f"{attempt}: told to be at {offset}, was at {known}")
        if not duplicate:
            self.log.seen(offset, tuple(attempt.payloads), "committed")
            for ledger in attempt.sent:
                for sent in ledger:
                    sent.is_certain = True
            self.log.acked_end = max(self.log.acked_end, offset + len(attempt.payloads))

    def turned_away(self, error: FencelogError, epoch: int, newest_epoch: int) -> None:
        """Check that the owner of ``epoch`` did not say for certain that others take the place if
        it had been replaced when it was asked: its successor may have forgotten them (25)."""
        if error.code is not ErrorCode.LIMIT_REACHED:
            return
        self.log.counts["commits turned away"] += 1
        if newest_epoch > epoch:
            self.log.violate(
                25, f"epoch {epoch} has no place for a commit, {newest_epoch} had begun"
            )

    def check(self, start: int, places: Mapping[bytes, int]) -> None:
        """Check the whole log, from ``start`` on, when nothing is going on any more."""
        for key, attempts in self.attempts.items():
            there = [each for each in attempts if any(p in places for p in each.payloads)]
            if len(there) > 1:
                self._violate(f"in the log twice: {', '.join(map(str, there))}")
            for attempt in there:
                self._check_there(attempt, start, places)
            wrote = any(each.payloads for each in attempts)
            if not there and key in self.committed and not start and wrote:
                self._violate(f"batch {key[1]} of {key[0]} was committed, and is not there")

    def _check_there(self, attempt: Attempt, start: int, places: Mapping[bytes, int]) -> None:
        found = [places.get(payload) for payload in attempt.payloads]
        offset = next(at - number for number, at in enumerate(found) if at is not None)
        for expected, at in enumerate(found, offset):
            # One that was trimmed may have been read by nobody.
            if at != expected and (at is not None or expected >= start):
                self._violate(f"{attempt} stands at {found}, the log begins at {start}")
                break
        if attempt.is_aborted:
            self._violate(f"{attempt} was aborted, and is at {found}")
        told = self.committed.get((attempt.committer, attempt.batch))
        if told is not None and told != offset:
            self._violate(f"{attempt} was told to be at {told}, and is at {offset}")

    def _violate(self, text: str) -> None:
        self.log.violate(INVARIANT, text)
