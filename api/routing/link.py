"""The link from this broker to another: one connection at a time, all requests on it, one timer.

A link is dialled at the first request and closed when it was not used for LINK_IDLE_MS. What is
asked in one turn of the event loop leaves in one write. While answers are awaited the other end is
asked every LINK_PING_MS whether it is there; one that is silent for LINK_MAX_MISSED_PINGS of them
is half-open, and everything in flight is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fencelog.api.routing.link_answer import AppendAnswer, LinkAnswer
from fencelog.api.routing.link_connection import Connect, LinkConnection, connect_tcp, dial
from fencelog.api.routing.link_core import Awaited, LinkCore, Outcome
from fencelog.api.routing.link_frames import (
    MAX_BODY_BYTES,
    LinkOp,
    RequestHead,
    encode_credit,
    encode_http_request,
)
from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.limits import LINK_IDLE_MS, LINK_MAX_MISSED_PINGS, LINK_PING_MS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.bookie_connection import BookieConnection
from fencelog.ledgers.rpc.wire import REPLY_BIT, Frame, encode_request

_PING = encode_request(LinkOp.PING, 0, b"")


class Link:
    """A link. ``on_over(link)`` is called when it takes no further requests: it was not used for
    long, or the other broker is ending."""

    def __init__(
        self,
        url: str,
        credentials: Credentials | None,
        connect: Connect,
        on_over: Callable[[Link], None],
        *,
        cluster: str = "",
    ) -> None:
        self.url = url
        self._cluster = cluster
        self._credentials = credentials
        self._connect = connect
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._core = LinkCore()
        self._connection: LinkConnection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._will_flush = False
        self._is_leaving = False
        self._missed_pings = 0
        self._idle_ms = 0

    def ask(self, asked: Awaited, op: LinkOp, parts: tuple[bytes, ...]) -> int:
        """Send a request, now or once connected; returns its id. Raises FencelogError: OVERLOADED,
        PAYLOAD_TOO_LARGE (nothing was sent)."""
        if (why := self._core.refusal()) is not None:
            raise FencelogError(ErrorCode.OVERLOADED, f"{why} to the broker at {self.url}")
        if sum(len(part) for part in parts) > MAX_BODY_BYTES:
            raise FencelogError(
                ErrorCode.PAYLOAD_TOO_LARGE,
                f"head and body of the request are more than {MAX_BODY_BYTES} bytes",
                limit=MAX_BODY_BYTES,
            )
        request_id = self._core.ask(asked, op, parts)
        self._idle_ms = 0
        self._flush_soon()
        return request_id

    async def request(self, head: RequestHead, body: bytes) -> LinkAnswer:
        """Return the answer to an HTTP request, its body still to be read. Raises FencelogError as
        ``ask`` does; Unanswered."""
        answer = LinkAnswer()
        request_id = self.ask(answer, LinkOp.REQUEST, encode_http_request(head, body))
        answer.attach(partial(self._give_credit, request_id), partial(self._give_up, request_id))
        try:
            await answer.begin()
        except BaseException:
            answer.close()
            raise
        return answer

    def append(self, parts: tuple[bytes, ...], in_flight: dict[AppendFuture, None]) -> AppendFuture:
        """Send an append; the future gets the errors of ``unanswered``, and is among those
        ``in_flight`` until then. Raises FencelogError as ``ask`` does."""
        future: AppendFuture = self._loop.create_future()
        self.ask(AppendAnswer(self.url, future, in_flight), LinkOp.APPEND, parts)
        in_flight[future] = None
        return future

    async def close(self) -> None:
        """Drop the connection. What is in flight is lost, what waits was not sent."""
        self._is_leaving = True
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.gather(self._dialling, return_exceptions=True)
        self._core.refuse(Outcome.UNSENT, "this broker is being closed")
        self._lost("this broker is being closed")

    def _give_credit(self, request_id: int, size: int) -> None:
        self._core.control(encode_credit(request_id, size))
        self._flush_soon()

    def _give_up(self, request_id: int) -> None:
        self._core.give_up(request_id)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._connection is None:
            self._dial_if_needed()
        elif not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send all that was asked. On a connection that is closing nothing is: it is dialled again
        when that is known to be lost."""
        self._will_flush = False
        connection = self._connection
        if connection is None or connection.transport is None or connection.transport.is_closing():
            return
        if out := self._core.flush():
            connection.transport.writelines(out)

    # -- frames ----------------------------------------------------------------------------------

    def _on_frame(self, frame: Frame) -> None:
        self._missed_pings = 0
        if frame.op == LinkOp.PING | REPLY_BIT:
            return
        if frame.op == LinkOp.LEAVE | REPLY_BIT:
            self._leave()
        else:
            self._core.take(frame)
        if self._is_leaving and self._core.is_idle:
            self._lost("it is not used any more")

    def _leave(self) -> None:
        """The other broker is ending: wait for the answers in flight, and ask nothing more."""
        self._is_leaving = True
        self._on_over(self)
        self._core.refuse(Outcome.LEAVING, "the broker is ending")

    def _tick(self) -> None:
        """Look after the connection, every LINK_PING_MS."""
        if self._core.is_idle:
            self._missed_pings = 0
            self._idle_ms += LINK_PING_MS
            if self._idle_ms > LINK_IDLE_MS:
                self._on_over(self)
                self._lost("it was not used")
                return
        elif self._missed_pings >= LINK_MAX_MISSED_PINGS:
            self._lost(f"no sign of life for {LINK_MAX_MISSED_PINGS * LINK_PING_MS} ms")
            return
        else:
            self._missed_pings += 1
            self._core.control(_PING)
            self._flush_soon()
        self._timer = self._loop.call_later(LINK_PING_MS / 1000, self._tick)

    # -- connection ------------------------------------------------------------------------------

    def _dial_if_needed(self) -> None:
        if self._dialling is None and self._core.has_waiting and not self._is_leaving:
            self._dialling = self._loop.create_task(self._dial(), name=f"dial {self.url}")

    async def _dial(self) -> None:
        try:
            self._connection = await dial(
                self.url,
                self._credentials,
                self._connect,
                on_frame=self._on_frame,
                on_lost=self._on_lost,
                cluster=self._cluster,
            )
        except ConnectionRefusedError as error:
            self._core.refuse(Outcome.REFUSED, str(error))
        except Exception as error:  # whatever an address may cause; nothing was sent
            self._core.refuse(Outcome.UNSENT, str(error) or type(error).__name__)
        finally:
            self._dialling = None
        if self._connection is None:
            self._on_over(self)
            return
        self._missed_pings = self._idle_ms = 0
        self._timer = self._loop.call_later(LINK_PING_MS / 1000, self._tick)
        self._flush()

    def _on_lost(self, connection: BookieConnection, reason: str) -> None:
        if connection is self._connection:
            self._lost(reason)

    def _lost(self, why: str) -> None:
        """End what is in flight. What waits was not sent, and goes over a new connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._core.lose(why)
        self._dial_if_needed()


class Links:
    """The links of this broker to the others, by URL. ``close`` them."""

    def __init__(
        self,
        credentials: Credentials | None = None,
        connect: Connect = connect_tcp,
        *,
        cluster: str = "",
    ) -> None:
        """Configure links. ``credentials``: to prove who this broker is; ``connect``: the way to
        the other brokers; ``cluster``: the one that they have to be of, if they say so: an address
        may belong to a broker of another one by now, which has topics of the same names."""
        self._cluster = cluster
        self._credentials = credentials
        self._connect = connect
        self._links: dict[str, Link] = {}

    def to(self, url: str) -> Link:
        """Return the link to the broker at this URL."""
        link = self._links.get(url)
        if link is None:
            link = Link(url, self._credentials, self._connect, self._forget, cluster=self._cluster)
            self._links[url] = link
        return link

    async def request(self, url: str, head: RequestHead, body: bytes) -> LinkAnswer:
        """Return the answer of the broker at this URL, see ``Link.request``."""
        return await self.to(url).request(head, body)

    def append(
        self, url: str, parts: tuple[bytes, ...], in_flight: dict[AppendFuture, None]
    ) -> AppendFuture:
        """Append through the broker at this URL, see ``Link.append``."""
        return self.to(url).append(parts, in_flight)

    async def close(self) -> None:
        """Close all links; later requests dial again."""
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link in links.values()))

    def _forget(self, link: Link) -> None:
        if self._links.get(link.url) is link:
            del self._links[link.url]
