"""The place where a request for a partition is served: here if this broker owns it, else at its
owner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, urlencode

from fencelog.api.http.asgi import READING, Exchange
from fencelog.api.http.waits import Waits
from fencelog.api.routing.forward import OWNER_HEADER, Forwarder
from fencelog.api.routing.link_answer import OwnerUnreachable, lost_answer
from fencelog.api.routing.link_frames import FORWARDED
from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.names import TopicName
from fencelog.broker.partition.forwards import OwnerLost
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

T = TypeVar("T")

PAUSES_S = (0.0, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
"""The pauses before each attempt: owners change while a request is in flight, to this broker, to
another one, after a takeover. A broker that transfers a partition lets requests wait for the next
owner, so the first or the second attempt mostly finds it; together they outlast a takeover."""

LET_GO = (ErrorCode.DRAINING, ErrorCode.NO_OWNER)
"""The errors of a log that was closed, or lost, and certainly did nothing."""

_START = "start_offset"
"""The field of a ``not_owner`` that says where a read at the tail began."""


class TailRead:
    """A read that waits at the tail. It goes on at the next owner from there: the tail of that one
    may be behind what has come since."""

    def __init__(self) -> None:
        self.offset: int | None = None
        """The tail at which it began, once an owner has found it and let it go."""

    def query(self, query: bytes) -> bytes:
        """Return the query with which it goes on."""
        if self.offset is None:
            return query
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        changed = [(name, self.offset if name == "from" else value) for name, value in pairs]
        return urlencode(changed).encode()

    def told(self, error: FencelogError) -> FencelogError:
        """Return the error with which the broker that forwarded the read here learns where it
        began. Other requests may have the same ``error``."""
        if self.offset is None or error.code is not ErrorCode.NOT_OWNER:
            return error
        told = copy_of(error)
        told.extra[_START] = self.offset
        return told

    def learn(self, error: FencelogError) -> None:
        """Take what the owner that was asked has told."""
        found = error.extra.get(_START)
        if self.offset is None and isinstance(found, int):
            self.offset = found


class OwnerProxy:
    """Finds the owner of a partition for a request and has it served there."""

    def __init__(self, broker: Broker, forwarder: Forwarder, waits: Waits) -> None:
        self._broker = broker
        self._forwarder = forwarder
        self._waits = waits

    async def serve(
        self,
        exchange: Exchange,
        topic: TopicName,
        partition: int,
        local: Callable[[PartitionLog], Awaitable[None]],
        *,
        query: bytes | None = None,
        body: bytes = b"",
        tail_read: TailRead | None = None,
    ) -> None:
        """Answer through ``local`` with this broker's log, or forward the request to the owner.

        ``query`` and ``body`` are forwarded (default: the request's own query). Only errors that
        exclude an effect lead to another attempt; ``tail_read``: one that goes on there from where
        it began. Raises FencelogError.
        """
        passed_query = exchange.scope["query_string"] if query is None else query

        async def remote(url: str) -> None:
            query = passed_query if tail_read is None else tail_read.query(passed_query)
            if _prefers_redirect(exchange):
                await _redirect(exchange, url, query)
            elif exchange.method not in READING:
                await self._forwarder.relay(exchange, url, query, body)
            else:
                relay = self._forwarder.relay(exchange, url, query, body)
                await self._waits.run(exchange, relay)

        await self.at_owner(exchange, topic, partition, local, remote, tail_read)

    def append_elsewhere(
        self, topic: TopicName, partition: int, message: Callable[[], tuple[bytes, ...]]
    ) -> AppendFuture | None:
        """Append a message at once where another broker is known to own the partition; None: it is
        not, or cannot be asked. An error that excludes an effect says nothing of the owner: the
        way of ``serve`` finds out. It ends as unknown when that broker does not own the partition
        any more and has not answered."""
        appends = self._broker.forwarded_appends(topic, partition)
        if appends is None:
            return None
        try:
            return self._forwarder.append(appends.url, message(), appends.futures)
        except (FencelogError, UnicodeEncodeError, OverflowError):
            return None

    async def at_owner(
        self,
        exchange: Exchange | None,
        topic: TopicName,
        partition: int,
        local: Callable[[PartitionLog], Awaitable[T]],
        remote: Callable[[str], Awaitable[T]],
        tail_read: TailRead | None = None,
    ) -> T:
        """Return the result of ``local(log)`` or of ``remote(url)``, whichever is the owner's.

        Raises what they raise; NO_OWNER when no owner could be found; NOT_OWNER for an exchange
        that was forwarded here already, or whose answer has begun (None: for no exchange).
        """
        for pause_s in PAUSES_S:
            if pause_s:
                await asyncio.sleep(pause_s)
            try:
                log = await self._broker.partition(topic, partition)
            except FencelogError as error:
                if error.code is not ErrorCode.NOT_OWNER or not _is_movable(exchange):
                    if tail_read is not None:
                        raise tail_read.told(error) from error
                    raise
                url = owner_url(error)
            else:
                try:
                    return await local(log)
                except FencelogError as error:
                    if error.code not in LET_GO or log.is_serving or _has_started(exchange):
                        raise
                    continue
            try:
                if url is not None:
                    ask = partial(remote, url)
                    return await self._ask(exchange, topic, partition, url, ask, tail_read)
            except _Elsewhere:
                continue
        raise FencelogError(
            ErrorCode.NO_OWNER, f"partition {partition} of {topic} is changing its owner"
        )

    async def _ask(
        self,
        exchange: Exchange | None,
        topic: TopicName,
        partition: int,
        url: str,
        ask: Callable[[], Awaitable[T]],
        tail_read: TailRead | None,
    ) -> T:
        """Return the result of ``ask()``. Raises _Elsewhere if that broker is not the owner,
        or not any more, and nothing was done; else what ``ask`` raises, APPEND_UNKNOWN,
        READ_UNKNOWN, OwnerLost for no exchange."""
        broker = self._broker
        try:
            return await broker.while_owner(topic, partition, url, ask)
        except OwnerUnreachable as error:
            await broker.report_dead_owner(topic, partition, url)
            raise _Elsewhere from error
        except OwnerLost as error:
            if exchange is None:
                raise
            began = tail_read is None or tail_read.offset is not None
            if exchange.method not in READING or exchange.started or not began:
                raise lost_answer(exchange.method, url, error) from error
            raise _Elsewhere from error
        except FencelogError as error:
            if error.code is not ErrorCode.NOT_OWNER:
                raise
            broker.forget_owner(topic, partition, url)
            if tail_read is not None:
                tail_read.learn(error)
            raise _Elsewhere from error


class _Elsewhere(Exception):
    """The broker asked is not the owner and did nothing; the owner has to be looked up again."""


def _prefers_redirect(exchange: Exchange) -> bool:
    preferences = exchange.header(b"prefer") or b""
    return b"redirect" in (each.strip().lower() for each in preferences.split(b","))


async def _redirect(exchange: Exchange, url: str, query: bytes) -> None:
    """Send the client to the owner, which gets the same path, query and body. Nothing is done."""
    path = exchange.scope.get("raw_path") or exchange.path.encode()
    location = url.encode() + path + (b"?" + query if query else b"")
    owner = [(b"location", location), (OWNER_HEADER, url.encode())]
    await exchange.start(
        307, [*owner, (b"preference-applied", b"redirect"), (b"content-length", b"0")]
    )
    await exchange.send_body(b"")


def _has_started(exchange: Exchange | None) -> bool:
    return exchange is not None and exchange.started


def _is_movable(exchange: Exchange | None) -> bool:
    return exchange is None or (not exchange.started and exchange.header(FORWARDED) is None)


def owner_url(error: FencelogError) -> str | None:
    """Return the URL that a NOT_OWNER names, if it knows one."""
    url = getattr(error, "url", None) or error.extra.get("url")
    return None if url is None else str(url)
