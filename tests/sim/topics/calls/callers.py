"""Consumers that call a subscription of all partitions over HTTP, through any broker, each in a
process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random  # noqa: TID251 - for its type: the streams are the engine's
from typing import Any

import msgspec

from fencelog.api.http.asgi import JSON
from fencelog.api.http.problems import error_from_problem
from fencelog.broker.registry.subscription_config import ORDERED
from fencelog.broker.subscriptions.ack_id import partition_of_ack_id
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.sim.oracle.call_history import Call, CallHistory, is_replayed
from tests.sim.plan.caller_plan import CallerPlan, CallPlan
from tests.sim.topics.brokers import TOPIC
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients
from tests.sim.topics.http import Broken, NoConnection, Refused, Request, Silent
from tests.sim.topics.posts import CONNECT_S
from tests.sim.topics.reads import READ_BYTES

NAME = "s1"
"""The name of the subscription."""

Messages = list[dict[str, Any]]


class Caller:
    """One consumer. It sends each request once, and does not repeat it."""

    def __init__(
        self, plan: CallerPlan, course: CallPlan, clients: Clients, calls: CallHistory
    ) -> None:
        self._plan = plan
        self._course = course
        self._clients = clients
        self._calls = calls
        self._chance: Random = clients.chance(plan.machine)
        self._target = clients.some_broker(self._chance).name
        self._number = 0

    async def run(self) -> None:
        """Run until the safety phase ends."""
        plan, chance = self._plan, self._chance
        await asyncio.sleep(plan.starts_ms / 1000)
        while not self._clients.is_over.is_set():
            if chance.random() < plan.rests:
                await asyncio.sleep(chance.uniform(0.5, 3) * self._lease_s)
            messages: Messages = []
            with suppress(FencelogError):
                messages = await self.next_messages()
            await asyncio.sleep(chance.uniform(0, plan.thinks_ms / 1000))
            if chance.random() < plan.seeks:
                await self._seek()
            elif messages:
                await self.treat(messages)

    @property
    def _lease_s(self) -> float:
        return self._course.config.lease_ms / 1000

    def _query(self) -> bytes:
        if self._chance.random() >= self._plan.one_partition:
            return b""
        return b"partition=%d" % self._chance.randrange(self._course.partitions)

    async def treat(self, messages: Messages) -> None:
        """Acknowledge, refuse, extend or keep the messages that it got."""
        plan, chance = self._plan, self._chance
        ids = [str(message["ack_id"]) for message in messages if not is_replayed(message)]
        if back := [str(message["ack_id"]) for message in messages if is_replayed(message)]:
            await self._say("ack", back, {"ack_ids": back})
        if not ids:
            return
        if chance.random() < plan.extends:
            await self._extend(ids)
            await asyncio.sleep(chance.uniform(0, self._lease_s))
        if chance.random() < plan.keeps:
            await asyncio.sleep(chance.uniform(0, 2) * self._lease_s)
            return
        what = chance.random()
        if what < plan.refuses:
            failed = self._number % 3 != 0
            await self._say("nack", ids, {"ack_ids": ids, "failed": failed})
        elif what < plan.refuses + plan.through and self._course.config.type in ORDERED:
            last = {partition_of_ack_id(ack_id): ack_id for ack_id in ids}
            through = list(last.values())
            await self._say(
                "ack", through, {"through": through, "consumer": self._plan.machine}, ended=ids
            )
        else:
            some = ids if chance.random() < 0.7 else ids[::2]
            await self._say("ack", some, {"ack_ids": some})

    # -- requests --------------------------------------------------------------------------------

    async def next_messages(self) -> Messages:
        """Return the messages of the next pull. Raises FencelogError."""
        return await self.pull()

    async def pull(self) -> Messages:
        """Return the messages of a pull. Raises FencelogError."""
        body = {
            "max": self._plan.pulls,
            "max_bytes": READ_BYTES,
            "wait": self._chance.choice((0, 0.02, 0.2)),
            "consumer": self._plan.machine,
        }
        call, told = await self._call("pull", body, self._query())
        self._calls.told_messages(call, told["messages"], asyncio.get_running_loop().time())
        messages: Messages = told["messages"]
        return messages

    async def _extend(self, ids: Sequence[str]) -> None:
        lease_ms = self._course.config.lease_ms
        body = {"ack_ids": ids, "lease_ms": lease_ms, "consumer": self._plan.machine}
        with suppress(FencelogError):
            call, told = await self._call("extend", body)
            self._calls.told_done(call, told["stale"], map(partition_of_ack_id, ids))
            self._calls.told_extended(call)

    async def _say(
        self, verb: str, ids: Sequence[str], body: Any, *, ended: Sequence[str] | None = None
    ) -> None:
        """Send a request about these ids; the work on them, or on those ``ended``, ends with it."""
        now_s = asyncio.get_running_loop().time()
        self._calls.ends(ids if ended is None else ended, now_s)
        with suppress(FencelogError):
            call, told = await self._call(verb, body)
            self._calls.told_done(call, told["stale"], map(partition_of_ack_id, ids))

    async def _seek(self) -> None:
        chance, partitions = self._chance, range(self._course.partitions)
        body: Any = {"to": "earliest"}
        if chance.random() < 0.7:
            partitions = range(chance.randrange(len(partitions)), len(partitions))
            ends = [self._clients.logs[partition].known_end for partition in partitions]
            offsets = [chance.randint(0, end) for end in ends]
            pairs = zip(partitions, offsets, strict=True)
            body = {"offsets": [{"partition": p, "offset": offset} for p, offset in pairs]}
        with suppress(FencelogError):
            call, told = await self._call("seek", body)
            said = [f"{one['partition']}/{one['offset']}" for one in told["offsets"]]
            self._calls.told_done(call, said, partitions)

    async def _call(self, verb: str, body: Any, query: bytes = b"") -> tuple[Call, Any]:
        """Return the answer. Raises FencelogError."""
        self._number += 1
        call = Call(f"{verb} {self._number} of {self._plan.machine}", self._plan.machine)
        path = f"/v1/topics/{TOPIC}/subscriptions/{NAME}:{verb}"
        content = msgspec.json.encode(body)
        request = Request("POST", path, query, [(b"content-type", JSON)], content, call)
        answer = None
        error = FencelogError(ErrorCode.STATE_UNKNOWN, f"{self._target} did not answer")
        try:
            answer = await self._clients.front.http.ask(
                self._target,
                request,
                connect_s=CONNECT_S,
                answer_s=self._clients.timeout_s(self._chance),
            )
        except (Refused, NoConnection):
            self._calls.count("call: no answer")
            error = FencelogError(ErrorCode.NO_OWNER, f"cannot reach {self._target}")
        except (Broken, Silent):
            self._calls.count("call: no answer")
        if answer is not None and answer.is_whole:
            if answer.status == 200:
                return call, msgspec.json.decode(answer.body)
            error = error_from_problem(answer.body, answer.status)
            self._calls.told_error(call, error)
            if error.code is ErrorCode.SUBSCRIPTION_BUSY and self._chance.random() < 0.8:
                await asyncio.sleep(self._chance.uniform(0, 0.02))
                raise error
        self._target = self._clients.some_broker(self._chance).name
        await asyncio.sleep(self._chance.uniform(0, RETRY_PAUSE_S))
        raise error
