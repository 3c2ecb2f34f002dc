"""Connections between metadata sessions and the simulated ZooKeeper.

They are connections of the simulated network, so everything that happens to those happens to these.
A message is an object; eight bytes that name it travel in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

_NAME_BYTES = 8

Operation = Callable[[Any], Any]
"""Run by the server, with its side of the connection."""


@dataclass(slots=True)
class Request:
    number: int
    operation: Operation
    loses_reply: bool
    """The server's connection breaks instead of the reply."""


@dataclass(slots=True)
class Reply:
    number: int
    result: Any
    error: Exception | None
    zxid: int
    """The newest state that the client has seen with it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A watch was set off."""

    path: str


Message = Request | Reply | Changed


class Wire:
    """The messages under way, by name."""

    def __init__(self) -> None:
        self._messages: dict[bytes, Message] = {}
        self._count = 0

    def put(self, message: Message) -> bytes:
        self._count += 1
        name = self._count.to_bytes(_NAME_BYTES, "little")
        self._messages[name] = message
        return name

    def take(self, name: bytes) -> Message:
        return self._messages.pop(name)


class Connection(asyncio.Protocol):
    """Either end: sends and receives whole messages."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self.is_lost = False

    def send(self, message: Message) -> None:
        if self._transport is not None and not self.is_lost:
            self._transport.write(self._wire.put(message))

    def abort(self) -> None:
        """End it now; ``lost`` is called at once."""
        if self._transport is not None:
            self._transport.abort()
        self._lose()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_lost:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if len(data) == _NAME_BYTES and not self._received:  # mostly
            if not self.is_lost:
                self.received(self._wire.take(data))
            return
        if self._received:
            data = self._received + data
        whole = len(data) // _NAME_BYTES * _NAME_BYTES
        self._received = data[whole:]
        for start in range(0, whole, _NAME_BYTES):
            if not self.is_lost:
                self.received(self._wire.take(data[start : start + _NAME_BYTES]))

    def connection_lost(self, error: Exception | None) -> None:
        self._lose()

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.lost()

    def received(self, message: Message) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        raise NotImplementedError


class ClientConnection(Connection):
    """The session's end: every request has one reply, or is lost with the connection."""

    def __init__(
        self, wire: Wire, on_reply: Callable[[int], None], on_change: Callable[[str], None]
    ) -> None:
        super().__init__(wire)
        self._on_reply = on_reply
        self._on_change = on_change
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._create_future = asyncio.get_running_loop().create_future
        self.was_lost = asyncio.Event()

    async def call(self, operation: Operation, *, loses_reply: bool = False) -> Any:
        """Send a request; its result, or its error. Raises ConnectionError if there will be none:
        it may have taken effect."""
        if self.is_lost:
            raise ConnectionError("the connection was lost")
        self._count = number = self._count + 1
        future = self._waiting[number] = self._create_future()
        self.send(Request(number, operation, loses_reply))
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def received(self, message: Message) -> None:
        if isinstance(message, Changed):
            self._on_change(message.path)
        elif isinstance(message, Reply):
            self._on_reply(message.zxid)
            future = self._waiting.get(message.number)
            if future is None or future.done():
                return
            if message.error is None:
                future.set_result(message.result)
            else:
                future.set_exception(message.error)

    def lost(self) -> None:
        self.was_lost.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the connection was lost"))
