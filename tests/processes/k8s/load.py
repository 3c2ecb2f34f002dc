"""The load, a program within the cluster: clients that append, and account for every message.

    python3.11 -m tests.processes.k8s.load http://SERVICE default/load

Half of the clients are fencelog's own, which go to the owner of a partition themselves; the others
send plain HTTP to the Service. Each waits five seconds for an answer, repeats nothing of unknown
outcome, and has one append in flight at a time. ``tests.processes.k8s.ask`` tells the program what
to do.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import httpx

from fencelog.api.client import BATCH_TYPE, FencelogClient, topic_path
from fencelog.api.client.conditions import Producer
from fencelog.api.client.http import error_from_answer, json_object
from fencelog.api.drills.harness.account import Account, account
from fencelog.api.drills.harness.load import LoadClient, read_log
from fencelog.api.drills.harness.senders import AnyBroker, Sender
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.processes.k8s.ask import ADDRESS
from tests.processes.k8s.window import Window

PARTITIONS = 4

TIMEOUT_S = 5.0
"""The time for an answer: clients of people wait no longer."""

CONNECT_TIMEOUT_S = 1.0
"""A Service names pods of a dead node for a while: the next attempt may find another one."""

PAUSE_S = 0.1
"""The time between an acknowledgement and the next append, so that the load leaves the machine to
the cluster."""

RETRY_DELAY_S = 0.05


class PlainHttp:
    """A sender of plain HTTP requests to the Service, which picks a broker for each connection."""

    def __init__(self, http: httpx.AsyncClient, url: str, topic: str, partition: int) -> None:
        self._http = http
        self._url = f"{url}{topic_path(topic)}/messages:batch?partition={partition}"

    async def append(self, batch: bytes, producer: Producer | None = None) -> int:
        try:
            answer = await self._http.post(
                self._url, content=batch, headers={"content-type": BATCH_TYPE}
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise FencelogError(ErrorCode.NO_OWNER, "no connection") from error
        except httpx.TransportError as error:
            raise FencelogError(ErrorCode.APPEND_UNKNOWN, repr(error)) from error
        if not answer.is_success:
            raise error_from_answer(answer)
        (appended,) = json_object(answer)["appended"]
        return int(appended["offset"])


class Watched:
    """A sender that tells a window how each append was answered."""

    def __init__(self, load: Load, name: str, sender: Sender) -> None:
        self._load = load
        self._name = name
        self._sender = sender

    async def append(self, batch: bytes, producer: Producer | None = None) -> int:
        try:
            offset = await self._sender.append(batch, producer)
        except FencelogError as error:
            self._load.window.on_error(self._name, error.code.name.lower())
            sys.stdout.write(f"{self._load.now():.1f} {self._name} {error.code}: {error.detail}\n")
            raise
        self._load.window.on_acknowledged(self._name, self._load.now())
        return offset


class Load:
    """All clients, which append between ``begin`` and ``end``."""

    def __init__(self, server: str, topic: str) -> None:
        self._server = server
        self._topic = topic
        self.clients: list[list[LoadClient]] = [[] for _ in range(PARTITIONS)]
        self._names: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = True
        self.now = asyncio.get_running_loop().time
        self.window = Window(self.now(), ())

    async def connect(self, stack: AsyncExitStack) -> None:
        """Make the clients; their connections end with the stack."""
        timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        for number, partition in enumerate([*range(PARTITIONS), *range(PARTITIONS)]):
            sender: Sender
            if number < PARTITIONS:
                client = await stack.enter_async_context(FencelogClient([self._server]))
                sender = AnyBroker([client], self._topic, partition, timeout_s=TIMEOUT_S)
                name = f"client {partition}"
            else:
                http = httpx.AsyncClient(timeout=timeout, trust_env=False)
                await stack.enter_async_context(http)
                sender = PlainHttp(http, self._server, self._topic, partition)
                name = f"http {partition}"
            self._names.append(name)
            self.clients[partition].append(
                LoadClient(
                    number,
                    Watched(self, name, sender),
                    retry_delay_s=RETRY_DELAY_S,
                    pause_s=PAUSE_S,
                )
            )

    async def ping(self) -> dict[str, Any]:
        """Answer: the load listens."""
        return {}

    async def begin(self) -> dict[str, Any]:
        """Begin a window, and append."""
        self.window = Window(self.now(), self._names)
        if self._is_over:
            self._is_over = False
            self._tasks = [
                asyncio.create_task(
                    client.run(is_over=lambda: self._is_over, on_acknowledged=lambda sent_at: None)
                )
                for clients in self.clients
                for client in clients
            ]
        return {}

    async def end(self) -> dict[str, Any]:
        """Stop appending, and return the report of the window."""
        report = self.window.report(self.now())
        self._is_over = True
        await asyncio.gather(*self._tasks)
        self._tasks = []
        return report

    async def verify(self) -> dict[str, Any]:
        """Read the whole topic, and account for every message that was ever sent."""
        total = Account()
        for partition, clients in enumerate(self.clients):
            log = await read_log([self._server], self._topic, partition)
            attempts = [attempt for client in clients for attempt in client.attempts]
            found = account(attempts, log)
            for field in dataclasses.fields(Account):
                value = getattr(total, field.name) + getattr(found, field.name)
                setattr(total, field.name, value)
        return {**dataclasses.asdict(total), "is_clean": total.is_clean}

    async def on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request of ``tests.processes.k8s.ask``."""
        actions = {"begin": self.begin, "end": self.end, "verify": self.verify, "ping": self.ping}
        request = (await reader.readline()).decode().strip()
        try:
            answer = await actions[request]()
        except FencelogError as error:
            answer = {"error": f"{error.code}: {error.detail}"}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()


async def serve(server: str, topic: str) -> None:
    """Answer requests until the pod ends."""
    async with AsyncExitStack() as stack:
        load = Load(server, topic)
        await load.connect(stack)
        listener = await asyncio.start_unix_server(load.on_connection, ADDRESS)
        async with listener:
            await listener.serve_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    server, topic = arguments or sys.argv[1:]
    asyncio.run(serve(server, topic))


if __name__ == "__main__":
    main()
