"""The state of a stream on Spark's driver, from trigger to trigger.

A micro-batch asks the service once: what there is becomes its end, and then its tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Any, Protocol

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.broker_reads import ReadTask
from fencelog.spark_connector.planning.segments import PartitionSegments
from fencelog.spark_connector.stream.admission_core import NO_LIMITS, advanced
from fencelog.spark_connector.stream.backlog_core import (
    backlogs,
    check_complete,
    check_partitions,
    check_topics,
    covers,
    ends_of,
    is_doubtful,
    within,
)
from fencelog.spark_connector.stream.options import StreamOptions
from fencelog.spark_connector.stream.position_core import StreamPosition
from fencelog.spark_connector.stream.slices_core import slices
from fencelog.spark_connector.stream.tasks_core import broker_tasks, scan_tasks

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.1
"""The pauses between looks at topics without new messages. Spark asks a hundred times a second, and
each look asks the owner of every partition."""

CURSOR_INTERVAL_S = 1.0
"""The time between moves of a subscription's cursor, each a durable write in every partition."""

_NEVER = -float("inf")


class StreamService(Protocol):
    """The part of ``TopicFollower`` that a stream needs."""

    def starting(self) -> StreamPosition:
        """Return where the options say that a stream begins."""

    def segments(
        self,
        start: StreamPosition | None,
        *,
        known: StreamPosition | None = None,
        confirmed: bool = False,
    ) -> list[PartitionSegments]:
        """Return every partition, also each that ``known`` has, with the segments from ``start`` on
        (None: with none). ``confirmed``: up to ends that are not older than the call."""

    def move_cursor(self, subscription: str, position: StreamPosition) -> None:
        """Acknowledge everything before ``position``, durably on return."""

    def sleep(self, seconds: float) -> None: ...

    def close(self) -> None: ...


class StreamDriver:
    """A stream of topics. Every method raises FencelogError, which ends the query: it can be
    started again from its checkpoint."""

    def __init__(
        self,
        options: StreamOptions,
        service: StreamService,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._options = options
        self._service = service
        self._now = now
        self._answers: list[PartitionSegments] = []
        self._asked_from: StreamPosition | None = None
        self._begun: StreamPosition | None = None
        self._end: StreamPosition | None = None
        self._target: StreamPosition | None = None
        self._pause_s = 0.0
        self._looked_s = self._advanced_s = self._cursor_s = _NEVER

    def begin(self) -> StreamPosition:
        """Return the start of a query that has completed no micro-batch. Spark asks again when it
        plans the first one, whose end is fixed by then, maybe by an earlier run."""
        start = self._begun = self._service.starting()
        self.acknowledge(start)
        return start

    def fix_end(self) -> None:
        """Read nothing from now on that is appended later."""
        self._target = ends_of(self._service.segments(None, confirmed=True))

    def next_end(self, start: StreamPosition, *, limited: bool) -> StreamPosition:
        """Return the end of the micro-batch that begins at ``start``, which may be ``start``: there
        is nothing new. ``limited``: within the limits of the options."""
        self._rest()
        target = self._target
        # Short of a fixed end the run would be over too early.
        self._look(start, known=start if target is None else start.joined(target))
        self._check(start)
        self.acknowledge(start)
        waiting = backlogs(start, self._answers, None if target is None else target.offsets)
        limits = self._options.limits if limited else NO_LIMITS
        if target is not None:
            limits = replace(limits, min_offsets=None)  # the rest of the run has to be read
        since_ms = (self._now() - self._advanced_s) * 1000
        if limits.must_wait(waiting, since_last_ms=since_ms):
            return self._ends_at(start, is_new=False)
        end = advanced(start, waiting, limits)
        return self._ends_at(end, is_new=end != start)

    def last_end(self) -> StreamPosition:
        """Return the end of all topics, the end of a micro-batch whose start Spark does not tell.

        Spark before 4.2 does not, and then limits have no meaning: they are refused.
        """
        if self._options.limits != NO_LIMITS:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                "fencelog data source: PySpark before 4.2 does not support limits of a trigger",
            )
        if self._end is not None:
            return self.next_end(self._end, limited=False)
        self._look(None)
        return self._ends_at(ends_of(self._answers), is_new=True)

    def progress(self) -> dict[str, Any] | None:
        """Return the ends of the topics as last seen, and how many messages the stream is
        behind."""
        if self._end is None or not self._answers:
            return None
        behind = sum(each.messages for each in backlogs(self._end, self._answers, None))
        return ends_of(self._answers).members() | {"messagesBehind": behind}

    def tasks(self, start: StreamPosition, end: StreamPosition) -> list[ReadTask]:
        """Return the tasks of a micro-batch: the same slices whenever it is planned again."""
        if start == self._begun:
            start = self._begin_before(end)
        self._begun = None
        groups = slices(start, end, min_partitions=self._options.read.min_partitions)
        check_topics(start, end.ids, self._options.read)
        check_partitions(start, end)  # the next batch would read the others again
        if start == end:
            return []
        if self._asked_from != start or not covers(self._answers, end):
            self._look(start, known=end.joined(start))
        self._check(start)
        # Topics and partitions that appear in this batch are in its end alone.
        found = ends_of(self._answers)
        check_topics(end, found.ids, self._options.read)
        check_partitions(end, found)
        if self._options.read.fail_on_data_loss:
            check_complete(end, self._answers)
        self.acknowledge(start)
        self._end = end
        if self._options.read.through_brokers:
            return [*broker_tasks(groups, self._answers)]
        return [*scan_tasks(groups, self._answers)]

    def acknowledge(self, position: StreamPosition) -> None:
        """Move the cursor of the subscription: what is before ``position`` has been processed. A
        call too soon after the previous one is left to the next one, except near a fixed end."""
        name, now = self._options.subscription, self._now()
        is_due = now - self._cursor_s >= CURSOR_INTERVAL_S or self._target is not None
        if name is not None and is_due:
            if not self._options.read.fail_on_data_loss:  # the log of a backup may end below
                position = within(position, self._answers)
            self._service.move_cursor(name, position)
            self._cursor_s = now

    def close(self) -> None:
        self._service.close()

    def _begin_before(self, end: StreamPosition) -> StreamPosition:
        """Return the start of the first micro-batch: what appeared after its end was fixed, and
        whatever is beyond that, is of the next one."""
        assert self._begun is not None
        start = self._begun.up_to(end)
        if start != self._begun:
            self._cursor_s = _NEVER  # it is beyond what has been processed
            self.acknowledge(start)
        return start

    def _rest(self) -> None:
        """Wait before the next look if the previous ones have found nothing new."""
        left = self._looked_s + self._pause_s - self._now()
        if self._pause_s and left > 0:
            self._service.sleep(left)

    def _look(self, start: StreamPosition | None, *, known: StreamPosition | None = None) -> None:
        """Ask for the segments from ``start`` on.

        ``known``: ends that were seen before, ``start`` among them. Ends never fall, and ids are
        never used again. So a lower end is that of an owner that was replaced and does not know it
        yet, and another id may be that of the topic's predecessor: no loss, and nothing to plan by.
        The confirmed answer is final; without ``known`` there is nothing to judge by, so it has to
        be confirmed.
        """
        ask = self._service.segments
        self._answers = ask(start, known=known, confirmed=known is None)
        if known is not None and is_doubtful(self._answers, known):
            self._answers = ask(start, known=known, confirmed=True)
        self._asked_from = start
        self._looked_s = self._now()

    def _check(self, start: StreamPosition) -> None:
        """Check that the answers are of the topics of ``start``, and go on there."""
        found = ends_of(self._answers)
        check_topics(start, found.ids, self._options.read)
        check_partitions(start, found)
        if self._options.read.fail_on_data_loss:
            check_complete(start, self._answers)

    def _ends_at(self, end: StreamPosition, *, is_new: bool) -> StreamPosition:
        if is_new:
            self._pause_s = 0.0
            self._advanced_s = self._now()
        else:
            self._pause_s = min(max(2 * self._pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
        self._end = end
        return end
