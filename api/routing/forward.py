"""Requests for a partition that another broker owns: forwarded once, answered as it answers.

The owner is known to be the owner only as far as metadata tells (leadership is a hint), so there
are three ways for a forward to fail, and they must not be mixed up:

* the address refuses connections (``OwnerUnreachable``): nothing was sent, the next step is to
  take over; a connection that fails for another reason (no route, no name, no file descriptor left
  here) says nothing about the owner;
* the owner answers 421: it does not own the partition (any more), nothing was done;
* the connection was lost after the request was sent: an append may have been written
  (APPEND_UNKNOWN), a read can be repeated (READ_UNKNOWN).
"""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import msgspec

from fencelog.api.http.asgi import BATCH, JSON, Exchange
from fencelog.api.http.problems import error_from_problem
from fencelog.broker.limits import MAX_WAIT_MS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import CONNECT_TIMEOUT_MS

FORWARDED = b"fencelog-forwarded"
"""The mark of a forwarded request. A broker that gets one and is not the owner answers 421."""

KEEP_ALIVE_S = 20.0
"""The time that idle connections are kept. It ends long before the other side closes them, so that
an append does not meet a connection that is being closed (its outcome would be unknown)."""

ANSWER_TIMEOUT_S = MAX_WAIT_MS / 1000 + 15
"""The silence after which an owner counts as lost: the longest long poll, and time to answer it."""

MAX_CONNECTIONS = 1024
"""The limit of forwards in flight; followed streams hold one each."""

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_REQUEST_DROPPED = _HOP_BY_HOP | {b"host", b"content-length", b"expect", FORWARDED}
_ANSWER_DROPPED = _HOP_BY_HOP | {b"date", b"server"}


class OwnerUnreachable(Exception):
    """The owner's address refuses connections; nothing was sent."""


class RemoteAppended(msgspec.Struct):
    """One element of ``appended`` in another broker's answer."""

    partition: int
    offset: int
    count: int


class _BatchAnswer(msgspec.Struct):
    appended: list[RemoteAppended]


class Forwarder:
    """The keep-alive connections to the other brokers. ``close`` it."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Configure the forwarder. ``transport``: the way to the other brokers (None: TCP)."""
        self._http = httpx.AsyncClient(
            transport=transport,
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_MS / 1000, pool=1.0),
            limits=httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_S,
            ),
            trust_env=False,  # brokers are neighbours; a proxy for the web must not see them
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def relay(self, exchange: Exchange, url: str, query: bytes, body: bytes) -> None:
        """Let the broker at ``url`` answer this exchange; the answer streams through, and may have
        begun when an error is raised.

        Raises OwnerUnreachable; FencelogError: NOT_OWNER (from there), NO_OWNER, OVERLOADED (all:
        nothing was done), APPEND_UNKNOWN, READ_UNKNOWN.
        """
        scope = exchange.scope
        headers = [item for item in exchange.headers if item[0] not in _REQUEST_DROPPED]
        path = scope.get("raw_path") or exchange.path.encode()
        answer = await self._send(exchange.method, url, path, query, headers, body)
        try:
            if answer.status_code == ErrorCode.NOT_OWNER.status:
                raise error_from_problem(await answer.aread(), answer.status_code)
            await self._pass_on(exchange, answer)
        except httpx.TransportError as error:
            raise lost_answer(exchange.method, url, error) from error
        finally:
            await answer.aclose()

    async def append_batch(
        self, url: str, path: str, partition: int, batch: bytes
    ) -> RemoteAppended:
        """Append a record batch to one partition through its owner. Raises as ``relay`` does, and
        what the owner reports."""
        headers = [(b"content-type", BATCH)]
        query = b"partition=%d" % partition
        answer = await self._send("POST", url, path.encode(), query, headers, batch)
        try:
            content = await answer.aread()
        except httpx.TransportError as error:
            raise lost_answer("POST", url, error) from error
        finally:
            await answer.aclose()
        if answer.status_code != 201:
            raise error_from_problem(content, answer.status_code)
        try:
            (appended,) = msgspec.json.decode(content, type=_BatchAnswer).appended
        except (msgspec.MsgspecError, ValueError) as error:
            raise lost_answer("POST", url, error) from error
        return appended

    async def ask(
        self,
        method: str,
        url: str,
        path: str,
        query: bytes,
        body: bytes,
        *,
        lost: ErrorCode,
        headers: Sequence[tuple[bytes, bytes]] = ((b"content-type", JSON),),
    ) -> bytes:
        """Return the answer of the broker at ``url``. Raises as ``relay`` does, with ``lost`` as
        the code of a request whose answer did not come, and what it reports."""
        try:
            answer = await self._send(method, url, path.encode(), query, list(headers), body)
            try:
                content = await answer.aread()
            except httpx.TransportError as error:
                raise lost_answer(method, url, error) from error
            finally:
                await answer.aclose()
        except FencelogError as error:
            if error.code in (ErrorCode.APPEND_UNKNOWN, ErrorCode.READ_UNKNOWN):
                raise FencelogError(lost, error.detail) from error
            raise
        if not answer.is_success:
            raise error_from_problem(content, answer.status_code)
        return content

    async def _send(
        self,
        method: str,
        url: str,
        path: bytes,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> httpx.Response:
        """Return the answer's head; its body is still to be read, and ``aclose`` to be called."""
        target = f"{url.rstrip('/')}{path.decode('ascii', 'replace')}"
        if query:
            target += f"?{query.decode('ascii', 'replace')}"
        content = body if method == "POST" else None
        request = self._http.build_request(
            method, target, headers=[*headers, (FORWARDED, b"1")], content=content
        )
        try:
            return await self._http.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if _is_refused(error):
                raise OwnerUnreachable(f"{url}: {error}") from error
            raise FencelogError(
                ErrorCode.NO_OWNER, f"there is no connection to the owner at {url}: {error}"
            ) from error
        except httpx.PoolTimeout as error:
            raise FencelogError(
                ErrorCode.OVERLOADED, f"{MAX_CONNECTIONS} forwards are under way"
            ) from error
        except httpx.TransportError as error:
            raise lost_answer(method, url, error) from error

    async def _pass_on(self, exchange: Exchange, answer: httpx.Response) -> None:
        headers = [
            (name.lower(), value)
            for name, value in answer.headers.raw
            if name.lower() not in _ANSWER_DROPPED
        ]
        chunks = answer.aiter_raw()
        first = await anext(chunks, b"")
        await exchange.start(answer.status_code, headers)
        await exchange.send_body(first, more=True)
        async for chunk in chunks:
            await exchange.send_body(chunk, more=True)
        await exchange.send_body(b"")


def _is_refused(error: BaseException | None) -> bool:
    """Tell whether every address that was tried has refused the connection."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_refused(each) for each in error.exceptions)
    return error is not None and (
        isinstance(error, ConnectionRefusedError)
        or _is_refused(error.__cause__ or error.__context__)
    )


def lost_answer(method: str, url: str, error: Exception) -> FencelogError:
    """Return the error of a request that was sent and not answered."""
    why = f"the owner at {url} did not answer: {error or type(error).__name__}"
    if method == "POST":
        return FencelogError(ErrorCode.APPEND_UNKNOWN, why)
    return FencelogError(ErrorCode.READ_UNKNOWN, why)
