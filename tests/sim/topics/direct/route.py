"""The service's own route for ranges, over the simulated HTTP and links.

Clients ask any broker. The answer is judged where the owner gives it, by what it was asked for, and
where it arrives, by what the client asked for: whoever passed it on has changed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.problems import error_from_problem
from fencelog.api.http.targets import Endpoint
from fencelog.api.http.waits import Waits
from fencelog.api.read.read import Read
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.server.app import Handler
from fencelog.broker.broker import Broker
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from tests.sim.oracle.log_history import LogHistory
from tests.sim.topics.brokers import ANSWER_S, TOPIC
from tests.sim.topics.direct.ranges import Asked, Judge
from tests.sim.topics.front import Front
from tests.sim.topics.http import (
    IS_FORWARDED,
    Broken,
    NoConnection,
    Refused,
    Request,
    Silent,
)
from tests.sim.topics.posts import CONNECT_S


@dataclass(eq=False)
class _Anybody:
    """The owner as a client sees it, which knows nothing of it before the answer."""

    topic_id: str = ""
    epoch: int = 0
    earliest_offset: int = 0


class RangeRoute:
    """The route of all brokers, for one partition."""

    def __init__(self, front: Front, log: LogHistory) -> None:
        """Have every broker serve it."""
        self._front = front
        self._log = log
        front.taken.more = self._endpoints

    def _endpoints(
        self, broker: Broker, forwarder: Forwarder, waits: Waits, bodies: BodyReader
    ) -> dict[Endpoint, dict[str, Handler]]:
        judged: Any = _JudgedBroker(broker, self._log)
        read = Read(OwnerProxy(judged, forwarder, waits), waits, ApiMetrics())
        return {Endpoint.SEGMENTS: {"GET": read.get_segments}}

    async def ask(self, target: str, asked: Asked) -> bool:
        """Ask that broker; tell whether there was an answer."""
        anybody, log = _Anybody(), self._log
        judge = Judge(log, anybody, asked)
        path = f"/v1/topics/{TOPIC}/partitions/{log.partition}/segments"
        request = Request("GET", path, _query(asked), [], b"")
        try:
            answer = await self._front.http.ask(
                target, request, connect_s=CONNECT_S, answer_s=ANSWER_S
            )
        except (Refused, NoConnection, Broken, Silent):
            return False
        if not answer.is_whole:
            return False
        if answer.status != 200:
            slug = error_from_problem(answer.body, answer.status).code.slug
            log.counts[f"ranges over HTTP: {slug}"] += 1
            return False
        ranges = msgspec.json.decode(answer.body)
        anybody.topic_id = ranges["topic_id"]
        log.counts["ranges over HTTP"] += 1
        judge.answered(ranges)
        return True


def _query(asked: Asked) -> bytes:
    """Return the query as the Python client writes it."""
    query = b"from_offset=%d" % asked.from_offset
    query += b"&confirmed=true" if asked.confirmed else b""
    return query if asked.refresh is None else query + b"&refresh=%d" % asked.refresh


class _JudgedBroker:
    """The broker as this endpoint sees it."""

    def __init__(self, broker: Broker, log: LogHistory) -> None:
        self._broker = broker
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def partition(self, topic: TopicName, partition: int) -> _JudgedLog:
        return _JudgedLog(await self._broker.partition(topic, partition), self._log)


class _JudgedLog:
    """An open log as this endpoint sees it."""

    def __init__(self, instance: PartitionLog, log: LogHistory) -> None:
        self._instance = instance
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    async def segments(
        self, from_offset: int, *, confirmed: bool, refresh: int | None
    ) -> dict[str, Any]:
        self._log.counts["ranges over links"] += IS_FORWARDED.get()
        judge = Judge(self._log, self._instance, Asked(from_offset, confirmed, refresh))
        answer = await self._instance.segments(from_offset, confirmed=confirmed, refresh=refresh)
        judge.answered(answer)
        return answer
