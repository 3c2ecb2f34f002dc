"""The requests of a stream to the service, on Spark's driver: what there is, and its cursor.

A stream outlives takeovers: refused and unanswered requests are repeated for OUTAGE_S. One that
never had an answer gives up early, since its address is more likely wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from fencelog.api.client import FencelogClient
from fencelog.api.client.retry import retry_idempotent
from fencelog.api.client.tasks import map_concurrently
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.bounds import resolve
from fencelog.spark_connector.planning.first_contact import servers_that_answer
from fencelog.spark_connector.planning.option_values import wrong
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.segments import (
    DELETED,
    PartitionSegments,
    check_one_topic_each,
    parse_segments,
)
from fencelog.spark_connector.planning.service import (
    MAX_CONCURRENT_REQUESTS,
    fetch_with,
    located,
    partitions_of,
)
from fencelog.spark_connector.stream.backlog_core import ends_of
from fencelog.spark_connector.stream.position_core import StreamPosition

T = TypeVar("T")

FIRST_ANSWER_S = 3.0
"""The time for the first answer; with that of a silent server it stays below 10 s."""

OUTAGE_S = 120.0
"""The time for which a stream waits for a service that has answered before: several takeovers, or
a rolling restart. Spark can restart the query from its checkpoint afterwards."""

TOPICS_INTERVAL_S = 1.0
"""The time between looks for new partitions and topics. Each is a request to the metadata store,
and there are up to some ten micro-batches a second."""

NOWHERE = StreamPosition({}, {})

ENDS_ONLY = 1 << 62
"""An offset beyond every log: segments from here on are none."""

_NO_CURSOR = (ErrorCode.SUBSCRIPTION_NOT_FOUND, *DELETED)
"""The answers to a move of a cursor that is not there: its subscription or topic was deleted, or
the asked broker does not know them, or a new partition, yet."""


class TopicFollower:
    """The connection of a stream to the service, for ordinary callers: it has an event loop of its
    own, which runs while one of its methods does. Not safe for several threads. Every method raises
    FencelogError: TOPIC_NOT_FOUND, NO_OWNER, ….
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._client = FencelogClient(options.servers)
        self._has_answered = False
        self._places: list[tuple[str, int]] = []
        self._gone: set[str] = set()
        """The topics of the position that a confirmed look has not found."""
        self._looked_s = -float("inf")
        self._cursors: dict[str, dict[int, int]] = {}

    def close(self) -> None:
        """Close the connections."""
        with self._runner:
            self._runner.run(self._client.close())

    def sleep(self, seconds: float) -> None:
        self._runner.run(anyio.sleep(seconds))

    def starting(self) -> StreamPosition:
        """Return where the options say that a stream begins."""
        return self._run(self._starting)

    def segments(
        self,
        start: StreamPosition | None,
        *,
        known: StreamPosition | None = None,
        confirmed: bool = False,
    ) -> list[PartitionSegments]:
        """Return every partition of the topics, with the segments from ``start`` on (None: with
        none), in order of topic and number.

        Partitions that ``known`` has are among them, unless the topic was deleted or is another one
        by now: a broker may not know yet that its topic has got them, and is asked again then.
        ``confirmed``: everything that was acknowledged before the call, in every partition; else an
        owner that was replaced may answer with an earlier end.
        """
        return self._run(lambda: self._segments(start, known or NOWHERE, confirmed))

    def move_cursor(self, subscription: str, position: StreamPosition) -> None:
        """Acknowledge everything before ``position``, durably on return; create the subscription if
        it does not exist. Also raises BAD_REQUEST for one that is not durable."""
        self._run(lambda: self._move_cursors(subscription, position))

    # -- on the event loop -----------------------------------------------------------------------

    def _run(self, request: Callable[[], Awaitable[T]]) -> T:
        """Run a request that is harmless to repeat."""

        async def main() -> T:
            timeout_s = OUTAGE_S
            try:
                if not self._has_answered:
                    timeout_s = FIRST_ANSWER_S
                    await self._reach(timeout_s)
                    self._has_answered, timeout_s = True, OUTAGE_S
                return await retry_idempotent(request, timeout_s=timeout_s)
            except FencelogError as error:
                raise located(error, self._options) from error

        return self._runner.run(main())

    async def _reach(self, timeout_s: float) -> None:
        """Go on with a server that answers."""
        servers = await retry_idempotent(
            lambda: servers_that_answer(self._options.servers), timeout_s=timeout_s
        )
        await self._client.close()
        self._client = FencelogClient(servers)

    async def _starting(self) -> StreamPosition:
        found = await fetch_with(self._client, self._options)
        starts, _ = resolve(found.partitions, self._options, found.times)
        return StreamPosition(ends_of(found.partitions).ids, starts)

    async def _segments(
        self, start: StreamPosition | None, known: StreamPosition, confirmed: bool
    ) -> list[PartitionSegments]:
        places = await self._places_with(known, confirmed)

        async def ask_one(place: tuple[str, int]) -> PartitionSegments | None:
            topic, partition = place
            offset = ENDS_ONLY if start is None else start.next_offset(topic, partition)
            try:
                answer = await self._client.segments(
                    topic, partition, from_offset=offset, confirmed=confirmed
                )
            except FencelogError as error:
                if error.code in DELETED:
                    return None
                raise
            return parse_segments(topic, answer, from_offset=offset)

        answers = await map_concurrently(ask_one, places, limit=MAX_CONCURRENT_REQUESTS)
        found = [answer for answer in answers if answer is not None]
        check_one_topic_each(found)
        missing = [place for place, answer in zip(places, answers, strict=True) if answer is None]
        self._check_missing(missing, known, ends_of(found))
        return found

    def _check_missing(
        self, missing: Sequence[tuple[str, int]], known: StreamPosition, found: StreamPosition
    ) -> None:
        """Check that the topics of partitions that nobody has are other ones by now, which the
        driver refuses. Raises READ_UNKNOWN, for a new look at the topics."""
        for topic, partition in missing:
            asked = known.ids.get(topic)
            if asked is None or found.ids.get(topic, asked) == asked:
                self._looked_s = -float("inf")
                raise FencelogError(
                    ErrorCode.READ_UNKNOWN,
                    f"partition {partition} of {topic} was deleted, or is not known everywhere yet",
                )

    async def _places_with(self, known: StreamPosition, confirmed: bool) -> list[tuple[str, int]]:
        """Return the partitions of the topics, as of the last look or (``confirmed``) of now, and
        those of ``known``. A topic of ``known`` is missing only if it is so in a confirmed look:
        the asked broker may lag behind."""
        is_due = anyio.current_time() - self._looked_s >= TOPICS_INTERVAL_S
        if confirmed or is_due:
            await self._look(confirmed=confirmed)
        if self._missing(known) - self._gone:
            await self._look(confirmed=True)
        self._gone = self._missing(known)
        named = {
            (topic, partition)
            for topic in known.offsets.keys() - self._gone
            for partition in known.offsets[topic]
        }
        return sorted(named.union(self._places))

    def _missing(self, known: StreamPosition) -> set[str]:
        return known.offsets.keys() - {topic for topic, _ in self._places}

    async def _look(self, *, confirmed: bool) -> None:
        """Look at the topics, and their partitions."""
        now = anyio.current_time()
        self._places, self._looked_s = await self._listed(confirmed=confirmed), now

    async def _listed(self, *, confirmed: bool) -> list[tuple[str, int]]:
        try:
            return await partitions_of(self._client, self._options, confirmed=confirmed)
        except FencelogError as error:
            if error.code is not ErrorCode.TOPIC_NOT_FOUND:
                raise
            if confirmed and self._options.topics_pattern is None:
                raise
        if not confirmed:
            return await self._listed(confirmed=True)
        return []  # the driver decides whether that is a loss

    async def _move_cursors(self, subscription: str, position: StreamPosition) -> None:
        """Move the cursors of the partitions whose offset has changed since the last time."""
        for topic, offsets in position.offsets.items():
            known = self._cursors.get(topic, {})
            moved = {p: offset for p, offset in offsets.items() if known.get(p) != offset}
            if not moved:
                continue
            try:
                if not known:
                    await self._ensure_subscription(topic, subscription)
                await self._client.seek(topic, subscription, offsets=moved)
            except FencelogError as error:
                self._cursors.pop(topic, None)
                if error.code not in _NO_CURSOR:
                    raise
                # The next look misses the topic, or the next move finds or creates the cursor.
            else:
                self._cursors[topic] = known | moved

    async def _ensure_subscription(self, topic: str, name: str) -> None:
        """Create the subscription unless it exists. From the earliest message on, so that none is
        trimmed before the cursor is moved for the first time."""
        try:
            found = await self._client.subscription(topic, name)
        except FencelogError as error:
            if error.code is not ErrorCode.SUBSCRIPTION_NOT_FOUND:
                raise
            found = await self._client.create_subscription(
                topic, name, type="exclusive", start="earliest"
            )
        if not found["durable"]:
            raise wrong(
                f"option 'subscription': {name!r} of topic {topic} is not durable, so it keeps "
                f"nothing from being trimmed"
            )
