"""Links between brokers over the simulated network: the real ones, at both ends.

Requests come over them to the same application as those of clients (``topics/http.py``), whose
faults befall links too: connections that are refused, cannot be made, or break soon after
something was sent.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Iterator, MutableSet
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fencelog.api.http.asgi import Event, Receive, Scope, Send
from fencelog.api.routing.link import Links
from fencelog.api.routing.link_answer import LinkAnswer, Unanswered
from fencelog.api.routing.link_core import Outcome
from fencelog.api.routing.link_frames import RequestHead
from fencelog.api.routing.served_link import LinkHost, serve_link
from fencelog.broker.append.conditions import AppendFuture
from fencelog.ledgers.errors import FencelogError
from tests.sim.oracle.call_history import CALL, Call
from tests.sim.oracle.history import History
from tests.sim.topics.http import AMID_S, IS_FORWARDED, SHUTDOWN_S, Http

if TYPE_CHECKING:
    from tests.sim.network.transport import SimTransport

PORT = 80

_CALL = b"sim-call"
"""The header in which the name of a call travels."""


class InOrder(MutableSet[Any]):
    """A set whose order is not that of addresses, so that it is the same in every run."""

    def __init__(self) -> None:
        self._items: dict[Any, None] = {}

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any) -> None:
        self._items[value] = None

    def discard(self, value: Any) -> None:
        self._items.pop(value, None)


class ServedLinks:
    """The port of one broker's process where links of others end."""

    def __init__(self, host: LinkHost) -> None:
        self._host = host
        self._connections = InOrder()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, None, PORT)

    async def close(self) -> None:
        """End as uvicorn does: wait for connections and requests, then cut off what is left."""
        if self._server is not None:
            self._server.close()
        for link in list(self._connections):
            link.shutdown()
        deadline = asyncio.get_running_loop().time() + SHUTDOWN_S
        while (  # noqa: ASYNC110 - uvicorn polls here too
            self._connections or self._tasks
        ) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.1)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for link in list(self._connections):
            link.abort()

    def _accept(self) -> asyncio.Protocol:
        return _Upgrade(
            lambda transport: serve_link(self._host, transport, self._connections, self._tasks)
        )


class _Upgrade(asyncio.Protocol):
    """HTTP as far as it becomes a link."""

    def __init__(self, become: Callable[[asyncio.Transport], None]) -> None:
        self._become = become
        self._head = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._head.endswith(b"\r\n\r\n"):
            self._become(self._transport)


class SimLinks(Links):
    """The links of one broker, whose requests are noted."""

    def __init__(self, http: Http, history: History) -> None:
        super().__init__(connect=_Ways(http).connect)
        self._http = http
        self._history = history

    def append(
        self, url: str, parts: tuple[bytes, ...], in_flight: dict[AppendFuture, None]
    ) -> AppendFuture:
        self._history.counts["forwards at once"] += 1
        if IS_FORWARDED.get():
            self._history.violate(21, "an append is passed on a second time")
        return super().append(url, parts, in_flight)

    async def request(self, url: str, head: RequestHead, body: bytes) -> LinkAnswer:
        self._history.counts["forwards"] += 1
        if IS_FORWARDED.get():
            self._history.violate(21, f"{head.path!r} is passed on a second time")
        call = CALL.get()
        if call is None:
            return await super().request(url, head, body)
        partition = int(head.query.removeprefix(b"partition=")) if _pulls(head) else -1
        call.lost[partition] += 1  # until its answer is here
        self._http.calls[call.name] = call
        head = RequestHead(
            head.method, head.path, head.query, [*head.headers, (_CALL, call.name.encode())]
        )
        try:
            answer = await super().request(url, head, body)
        except Unanswered as error:
            if error.outcome is not Outcome.LOST:
                call.lost[partition] -= 1
            raise
        except FencelogError:
            call.lost[partition] -= 1
            raise
        noted: Any = _NotedAnswer(answer, call, partition)
        return noted  # type: ignore[no-any-return]  # has the methods of an answer


def _pulls(head: RequestHead) -> bool:
    return head.path.endswith(b":pull")


class _NotedAnswer:
    """An answer that is known once it is whole."""

    def __init__(self, answer: LinkAnswer, call: Call, partition: int) -> None:
        self._answer = answer
        self._call = call
        self._partition = partition

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)

    async def read(self) -> bytes:
        part = await self._answer.read()
        if not part:
            self._call.lost[self._partition] -= 1
        return part

    async def whole(self) -> bytes:
        content = await self._answer.whole()
        self._call.lost[self._partition] -= 1
        return content


def noted(app: Callable[[Scope, Receive, Send], Any], http: Http) -> Any:
    """The application for what comes over links: it knows what a request is a part of."""

    async def serve(scope: Scope, receive: Receive, send: Callable[[Event], Any]) -> None:
        IS_FORWARDED.set(True)
        name = next((value for key, value in scope["headers"] if key == _CALL), None)
        CALL.set(None if name is None else http.calls[name.decode()])
        await app(scope, receive, send)

    return serve


class _Ways:
    """The connections to the ports of ``ServedLinks``."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def connect(self, factory: Callable[[], asyncio.Protocol], url: str) -> None:
        target = str(urlsplit(url).hostname)
        http = self._http
        if http.is_due(http.unreachable, target):
            raise OSError(errno.EHOSTUNREACH, f"no route to {target}")
        if http.is_due(http.refusing, target):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{target} refuses")
        loop = asyncio.get_running_loop()
        breaks = partial(http.is_due, http.breaking, target)
        cuts = partial(http.is_due, http.cutting, target)
        await loop.create_connection(lambda: _End(factory(), http, breaks, cuts), target, PORT)


class _End(asyncio.Protocol):
    """The asking end's protocol, whose connection may break when it writes, and within an
    answer."""

    def __init__(
        self,
        protocol: asyncio.Protocol,
        http: Http,
        breaks: Callable[[], bool],
        cuts: Callable[[], bool],
    ) -> None:
        self._http = http
        self._breaks = breaks
        self._cuts = cuts
        self._protocol = protocol
        self._is_cut = False
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]  # the inner one's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        breaking: Any = _BreakingTransport(transport, self._http, self._breaks)
        self._transport: Any = transport
        self._protocol.connection_made(breaking)

    def data_received(self, data: bytes) -> None:
        if self._is_cut:
            return
        if self._cuts():
            self._is_cut = True
            data = data[: self._http.length_within(data)]
            self._http.break_within(self._transport, 0)
        self._protocol.data_received(data)


class _BreakingTransport:
    def __init__(self, transport: Any, http: Http, breaks: Callable[[], bool]) -> None:
        self._transport: SimTransport = transport
        self._http = http
        self._breaks = breaks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def writelines(self, parts: Iterable[bytes]) -> None:
        self._transport.writelines(parts)
        if self._breaks():
            self._http.break_within(self._transport, AMID_S)
