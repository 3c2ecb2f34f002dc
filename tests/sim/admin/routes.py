"""The service's own routes for changes of a partition, over the simulated HTTP and links: fencing
tokens, claims and their release, trims, the end of a partition.

Clients send them to any broker, once. The owner that carries a change out notes it, like one that
clients ask directly (``admin/edge.py``); what is answered to the client is compared with that (26).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec

from fencelog.api.admin.partition_admin import PartitionAdmin
from fencelog.api.http.asgi import JSON
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.problems import error_from_problem
from fencelog.api.http.targets import Endpoint
from fencelog.api.http.waits import Waits
from fencelog.api.produce.access import Producers
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.server.app import Handler
from fencelog.broker.broker import Broker
from fencelog.broker.log.retention import Trimmed
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import FencelogError
from tests.sim.admin.edge import Edge
from tests.sim.oracle.call_history import CALL, Call, CallHistory
from tests.sim.oracle.incarnations import AdminLog
from tests.sim.topics.brokers import ANSWER_S, TOPIC
from tests.sim.topics.front import Front
from tests.sim.topics.http import Answer, Broken, NoConnection, Refused, Request, Silent
from tests.sim.topics.posts import CONNECT_S

T = TypeVar("T")

PATH = f"/v1/topics/{TOPIC}/partitions"


class Routes:
    """The routes of all brokers."""

    def __init__(self, edge: Edge, front: Front, calls: CallHistory) -> None:
        """Have every broker serve them."""
        self.edge = edge
        self.calls = calls
        self._front = front
        self._number = 0
        front.taken.more = self._endpoints

    def _endpoints(
        self, broker: Broker, forwarder: Forwarder, waits: Waits, bodies: BodyReader
    ) -> dict[Endpoint, dict[str, Handler]]:
        changing: Any = _Changing(broker, self)
        ownership = OwnerProxy(changing, forwarder, waits)
        producers = Producers(ownership, forwarder, bodies)
        partitions = PartitionAdmin(changing, ownership, forwarder, bodies)
        return {
            Endpoint.FENCE: {"POST": producers.fence},
            Endpoint.CLAIM: {"POST": producers.claim},
            Endpoint.PRODUCER: {"DELETE": producers.release},
            Endpoint.TRIM: {"POST": partitions.trim},
            Endpoint.TERMINATE: {"POST": partitions.terminate},
        }

    # -- clients ---------------------------------------------------------------------------------

    async def fence(self, target: str, partition: int, token: str | None) -> bool:
        """Tell whether it is done, for certain."""
        told, _ = await self._post(target, partition, "POST", ":fence", {"token": token})
        return told is not None

    async def claim(
        self, target: str, partition: int, name: str, mode: str, wait_ms: int
    ) -> tuple[str, int] | None:
        """Return the topic's id and the epoch that was given, if an answer came."""
        body = {"mode": mode, "wait_ms": wait_ms}
        told, call = await self._post(
            target, partition, "POST", f"/producers/{name}:claim", body, said=("epoch",)
        )
        return None if told is None else (call.topic_id, told["epoch"])

    async def release(self, target: str, partition: int, name: str, epoch: int) -> bool:
        """Tell whether it is done, for certain."""
        path, query = f"/producers/{name}", b"epoch=%d" % epoch
        told, _ = await self._post(target, partition, "DELETE", path, None, query=query)
        return told is not None

    async def trim(self, target: str, partition: int, before: int) -> bool:
        """Tell whether it is done, for certain."""
        said = ("earliest_offset", "held_back")
        body = {"before": before}
        told, _ = await self._post(target, partition, "POST", ":trim", body, said=said)
        return told is not None

    async def terminate(self, target: str, partition: int) -> bool:
        """Tell whether it is done, for certain."""
        told, _ = await self._post(
            target, partition, "POST", ":terminate", None, said=("end_offset",)
        )
        return told is not None

    async def _post(
        self,
        target: str,
        partition: int,
        method: str,
        path: str,
        body: Any,
        *,
        query: bytes = b"",
        said: Iterable[str] = (),
    ) -> tuple[Any, ChangeCall]:
        """Return the answer, None if there was none or an error. ``said``: what of it owners have
        said."""
        self._number += 1
        call = ChangeCall(f"{method} {path} {self._number}", "")
        content = b"" if body is None else msgspec.json.encode(body)
        headers = [(b"content-type", JSON)]
        request = Request(method, f"{PATH}/{partition}{path}", query, headers, content, call)
        answer: Answer | None = None
        try:
            answer = await self._front.http.ask(
                target, request, connect_s=CONNECT_S, answer_s=ANSWER_S
            )
        except (Refused, NoConnection, Broken, Silent):
            self.calls.count("call: no answer")
        if answer is None or not answer.is_whole:
            return None, call
        if answer.status not in (200, 204):
            self.calls.told_error(call, error_from_problem(answer.body, answer.status))
            return None, call
        told = msgspec.json.decode(answer.body) if answer.body else {}
        self.calls.told_done(call, [told.get(name) for name in said], (partition,))
        return told, call


class ChangeCall(Call):
    """A request for a change. ``topic_id``: of the incarnation whose owner has done it."""

    topic_id = ""


class _Changing:
    """The broker as these endpoints see it."""

    def __init__(self, broker: Broker, routes: Routes) -> None:
        self._broker = broker
        self._routes = routes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def partition(self, topic: TopicName, partition: int) -> _ChangingLog:
        instance = await self._broker.partition(topic, partition)
        return _ChangingLog(self._routes, *self._routes.edge.of(instance, partition))


class _ChangingLog:
    """An open log as these endpoints see it; also its ``access`` and its ``retention``."""

    def __init__(self, routes: Routes, instance: PartitionLog, log: AdminLog) -> None:
        self._calls = routes.calls
        self._edge = routes.edge
        self._instance = instance
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    @property
    def access(self) -> _ChangingLog:
        return self

    @property
    def retention(self) -> _ChangingLog:
        return self

    async def fence(self, token: str | None, *, expected: Any) -> None:
        work = partial(self._edge.fence_at, self._instance, self._log, token)
        await self._once(work, lambda _: ())

    async def claim(self, name: str, mode: str, *, wait_ms: int) -> int:
        work = partial(self._edge.claim_at, self._instance, self._log, name, mode, wait_ms)
        return await self._once(work, lambda epoch: (epoch,))

    async def release(self, name: str, epoch: int) -> None:
        work = partial(self._edge.release_at, self._instance, self._log, name, epoch)
        await self._once(work, lambda _: ())

    async def trim(self, before: int) -> Trimmed:
        work = partial(self._edge.trim_at, self._instance, self._log, before)
        return await self._once(work, lambda one: (one.earliest_offset, one.held_back))

    async def terminate(self) -> None:
        work = partial(self._edge.terminate_at, self._instance, self._log)
        await self._once(work, lambda _: (self._instance.tail_offset,))

    async def _once(
        self, work: Callable[[], Awaitable[T]], says: Callable[[T], Iterable[Any]]
    ) -> T:
        call = CALL.get()
        assert isinstance(call, ChangeCall)
        partition = self._instance.partition
        self._calls.takes(call, partition)
        try:
            result = await work()
        except FencelogError as error:
            self._calls.failed(call, partition, error)
            raise
        call.topic_id = self._log.topic_id
        self._calls.did(call, partition, says(result))
        return result
