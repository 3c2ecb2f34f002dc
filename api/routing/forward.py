"""Requests for a partition that another broker owns: forwarded once, answered as it answers.

The owner is known to be the owner only as far as metadata tells (leadership is a hint), so there
are three ways for a forward to fail, and they must not be mixed up:

* the address refuses connections (``OwnerUnreachable``): nothing was sent, the next step is to
  take over; a connection that fails for another reason (no route, no name, no file descriptor left
  here) says nothing about the owner;
* the owner answers 421: it does not own the partition (any more), nothing was done; so does one
  that is ending, for what was not sent to it;
* the link was lost after the request was sent: an append may have been written (APPEND_UNKNOWN), a
  read can be repeated (READ_UNKNOWN).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fencelog.api.http.asgi import BATCH, JSON, Exchange
from fencelog.api.http.problems import error_from_problem
from fencelog.api.http.request_ids import REQUEST_ID, live_request
from fencelog.api.http.request_spans import TRACEPARENT_HEADER
from fencelog.api.routing.link import Links
from fencelog.api.routing.link_answer import LinkAnswer, Unanswered, lost_answer, unanswered
from fencelog.api.routing.link_frames import FORWARDED, RequestHead
from fencelog.broker.append.conditions import AppendFuture
from fencelog.ledgers.errors import ErrorCode, FencelogError

OWNER_HEADER = b"fencelog-owner"
"""The header of a forwarded answer that names the broker that gave it."""

_PROBLEM = 400
"""The status from which on an answer is a problem, and names its request."""

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
_REQUEST_DROPPED = _HOP_BY_HOP | {b"host", b"content-length", b"expect", FORWARDED, REQUEST_ID}
_ANSWER_DROPPED = _HOP_BY_HOP | {b"date", b"server"}


class RemoteAppended(msgspec.Struct):
    """One element of ``appended`` in another broker's answer."""

    partition: int
    offset: int
    count: int


class _BatchAnswer(msgspec.Struct):
    appended: list[RemoteAppended]


class Forwarder:
    """Requests to the other brokers, over the links to them."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def relay(self, exchange: Exchange, url: str, query: bytes, body: bytes) -> None:
        """Let the broker at ``url`` answer this exchange; the answer streams through, and may have
        begun when an error is raised.

        Raises OwnerUnreachable; FencelogError: NOT_OWNER (from there), NO_OWNER, OVERLOADED (all:
        nothing was done), APPEND_UNKNOWN, READ_UNKNOWN.
        """
        headers = [item for item in exchange.headers if item[0] not in _REQUEST_DROPPED]
        path = exchange.scope.get("raw_path") or exchange.path.encode()
        head = RequestHead(exchange.method, path, query, headers)
        answer = await self._send(url, head, body)
        try:
            if answer.status == ErrorCode.NOT_OWNER.status:
                raise error_from_problem(await answer.whole(), answer.status)
            await _pass_on(exchange, answer, url)
        except Unanswered as error:
            raise lost_answer(exchange.method, url, error) from error
        finally:
            answer.close()

    def append(
        self, url: str, parts: tuple[bytes, ...], in_flight: dict[AppendFuture, None]
    ) -> AppendFuture:
        """Append a message (``produce/post.py``) through its owner, at once: the future
        gets FencelogErrors, and is among those ``in_flight`` until then. Raises FencelogError:
        OVERLOADED, PAYLOAD_TOO_LARGE (nothing was sent)."""
        return self._links.append(url, parts, in_flight)

    async def append_batch(
        self, url: str, path: str, partition: int, batch: bytes
    ) -> RemoteAppended:
        """Append a record batch to one partition through its owner. Raises as ``relay`` does, and
        what the owner reports."""
        query = b"partition=%d" % partition
        head = RequestHead("POST", path.encode(), query, [(b"content-type", BATCH)])
        status, content = await self._whole(url, head, batch)
        if status != 201:
            raise error_from_problem(content, status)
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
            head = RequestHead(method, path.encode(), query, list(headers))
            status, content = await self._whole(url, head, body)
        except FencelogError as error:
            if error.code in (ErrorCode.APPEND_UNKNOWN, ErrorCode.READ_UNKNOWN):
                raise FencelogError(lost, error.detail) from error
            raise
        if not 200 <= status < 300:
            raise error_from_problem(content, status)
        return content

    async def _whole(self, url: str, head: RequestHead, body: bytes) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        answer = await self._send(url, head, body)
        try:
            return answer.status, await answer.whole()
        except Unanswered as error:
            raise lost_answer(head.method, url, error) from error
        finally:
            answer.close()

    async def _send(self, url: str, head: RequestHead, body: bytes) -> LinkAnswer:
        """Return an answer that has begun; its body is still to be read, and ``close`` to be
        called."""
        if (request := live_request()) is not None:
            head.headers.append((REQUEST_ID, request.request_id.encode()))
            if request.traceparent:
                name = TRACEPARENT_HEADER
                head.headers[:] = [header for header in head.headers if header[0] != name]
                head.headers.append((name, request.traceparent.encode()))
        try:
            return await self._links.request(url, head, body if head.method == "POST" else b"")
        except Unanswered as error:
            raise unanswered(head.method, url, error) from error


async def _pass_on(exchange: Exchange, answer: LinkAnswer, url: str) -> None:
    headers = [item for item in answer.headers if item[0] not in _ANSWER_DROPPED]
    headers.append((OWNER_HEADER, url.encode()))
    if answer.status >= _PROBLEM and (request := live_request()) is not None:
        headers += request.made_header
    first = await answer.read()
    await exchange.start(answer.status, headers)
    part = first
    while part:
        await exchange.send_body(part, more=True)
        part = await answer.read()
    await exchange.send_body(b"")
