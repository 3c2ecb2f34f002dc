"""The Python client's HTTP: several servers, definite outcomes, problems as errors."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import anyio
import httpx

from fencelog.api.client.owners import OWNER, KnownOwners
from fencelog.ledgers.errors import ErrorCode, FencelogError

DEFAULT_NAMESPACE = "default"

REQUEST_TIMEOUT_S = 60.0
"""The time-out of a request, longer than any of the service's own: the service knows more about an
outcome than the client does."""

CONNECT_TIMEOUTS_S = (1.0, 1.0, 3.0)
"""The time for a connection to a server, at each attempt; together five seconds. A name of many
servers, such as a Service of Kubernetes, still names one whose machine is lost, for most of a
minute, and the next attempt may find another one. The last attempt has time for lost packets."""

OWNER_CONNECT_TIMEOUT_S = 1.0
"""The same for the owner of a partition, who may not be reachable from here at all: the service is
another way to it."""

KEEP_ALIVE_S = 20.0
"""The time that idle connections are kept, shorter than the server's, so that no request meets a
connection that is being closed."""

LOST_HOST_S = 20
"""The time without a sign of life from the machine of a server, not of its process, after which a
request ends whose answer cannot come any more: a third of what a slow answer may take. It is longer
than a broker can be silent and remain the owner of anything."""

MAX_AT_ONCE = 64
"""The requests of one client that are under way to one server at the same time, without those that
the service may let wait: others wait here for their turn. The pool of connections looks at each
connection for each request, so that the time of hundreds of them would grow faster than their
number. A server that is silent holds up no request to another one."""

MAX_SERVERS = 64
"""The servers whose turns are remembered: the brokers that have answered."""

_KEEP_ALIVE_PROBES = 2

_READS = ("GET", "HEAD")

_GATEWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
"""The statuses by which a proxy says that the service did not answer it."""

_DOT_SEGMENT = re.compile(r"(?:^|/)\.{1,2}(?:[/?#]|$)")
"""A name that is ``.`` or ``..``. URLs are normalised on their way: what is left then would be the
path of something else, with a subscription's name that of its topic."""

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class ServiceHttp:
    """Sends requests to a service that several servers offer. Safe for many tasks at once.

    A request for a ``place``, a partition or a topic, goes straight to the broker that the service
    has named as its owner, if it can be reached. That spares forwarding, and changes nothing else:
    any broker answers any request, also one that has ceased to be the owner.
    """

    def __init__(self, servers: Sequence[str], *, timeout_s: float) -> None:
        self._servers = [server.rstrip("/") for server in servers]
        self._current = 0
        self._timeout_s = timeout_s
        self._owners = KnownOwners()
        self._turns: dict[str, anyio.Semaphore] = {}
        """The turns at each server."""
        transport = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,  # the log is a neighbour; a proxy for the web must not see it
            verify=_certificates(self._servers),
            socket_options=_notices_lost_hosts(),
        )
        self._http = httpx.AsyncClient(transport=transport, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        lost: ErrorCode = ErrorCode.REQUEST_TIMEOUT,
        extra_wait_s: float = 0,
        place: str = "",
        **options: Any,
    ) -> httpx.Response:
        """Send to the owner of the place, else to the current server, else to the next one that can
        be reached at all; again while one is silent, and time is left.

        ``lost``: the code of a request that was sent and never answered. The service may wait
        ``extra_wait_s`` before it answers. Raises FencelogError for every other answer than a
        success.
        """
        if _DOT_SEGMENT.search(path):
            raise _of_request(
                method, FencelogError(ErrorCode.INVALID_NAME, f"{path!r}: no name is . or ..")
            )
        timeout_s = self._timeout_s + extra_wait_s
        owner = self._owners.of(place)
        if owner is not None:
            direct = {**options, "timeout": _timeouts(timeout_s, OWNER_CONNECT_TIMEOUT_S)}
            try:
                async with self._turn(owner, extra_wait_s):
                    return await self._send(method, owner, path, place, lost, direct)
            except _NOT_SENT:
                self._owners.avoid(owner)
        refusal, first = "", self._current
        for connect_s in CONNECT_TIMEOUTS_S:
            options["timeout"] = _timeouts(timeout_s, connect_s)
            is_silent = False
            for step in range(len(self._servers)):
                self._current = (first + step) % len(self._servers)
                server = self._servers[self._current]
                try:
                    async with self._turn(server, extra_wait_s):
                        return await self._send(method, server, path, place, lost, options)
                except _NOT_SENT as error:
                    is_silent |= isinstance(error, httpx.ConnectTimeout)
                    refusal = f"cannot reach {server}: {str(error) or type(error).__name__}"
            if not is_silent:
                break
        raise FencelogError(ErrorCode.NO_OWNER, refusal)

    def _turn(self, server: str, extra_wait_s: float) -> AbstractAsyncContextManager[object]:
        """Return the turn of a request: when fewer than MAX_AT_ONCE are under way to this server;
        at once where the service lets it wait."""
        if extra_wait_s:
            return nullcontext()
        turns = self._turns.get(server)
        if turns is None:
            if len(self._turns) >= MAX_SERVERS:
                self._turns.clear()  # those who hold one give that one back
            turns = self._turns[server] = anyio.Semaphore(MAX_AT_ONCE, fast_acquire=True)
        return turns

    async def _send(
        self,
        method: str,
        server: str,
        path: str,
        place: str,
        lost: ErrorCode,
        options: Mapping[str, Any],
    ) -> httpx.Response:
        """Send to one server. Raises the errors of ``_NOT_SENT`` if it could not be reached, and
        FencelogError: BAD_REQUEST if the request is none, else ``lost`` or what was answered."""
        if self._http.is_closed:
            raise FencelogError(ErrorCode.BAD_REQUEST, "the client is closed")
        is_served = False
        try:
            try:
                request = self._http.build_request(method, server + path, **options)
            except (TypeError, ValueError) as error:  # such as NaN, which JSON does not have
                raise _unsent(error) from error
            answer = await self._http.send(request)
            is_served = answer.is_success
        except _NOT_SENT:
            raise
        except httpx.InvalidURL as error:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"{server}: {error}") from error
        except httpx.LocalProtocolError as error:  # one of TransportError, but nothing was sent
            raise _unsent(error) from error
        except httpx.RequestError as error:
            what = f"{server} did not answer: {str(error) or type(error).__name__}"
            raise _of_request(method, FencelogError(lost, what)) from error
        finally:
            if not is_served:  # also if the caller has waited for long enough
                self._owners.forget(place)
        if not is_served:
            raise _of_request(method, error_from_answer(answer, lost))
        self._owners.note(place, answer.headers.get(OWNER))
        return answer


def _certificates(servers: Sequence[str]) -> bool | ssl.SSLContext:
    """Return whether certificates are checked: always. To read all that are trusted takes 25 to 70
    ms, which a client without https does not need; it trusts none."""
    is_https = any(server.lower().startswith("https:") for server in servers)
    return is_https or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _notices_lost_hosts() -> list[tuple[int, int, int]]:
    """Return the options of a socket that ends when the other machine is silent: while it has not
    acknowledged what was sent, and while it has and owes an answer. As far as the system has
    them."""
    found = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_USER_TIMEOUT", LOST_HOST_S * 1000),
        ("TCP_KEEPIDLE", LOST_HOST_S // 2),
        ("TCP_KEEPINTVL", LOST_HOST_S // 2 // _KEEP_ALIVE_PROBES),
        ("TCP_KEEPCNT", _KEEP_ALIVE_PROBES),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            found.append((socket.IPPROTO_TCP, option, value))
    return found


def _timeouts(timeout_s: float, connect_s: float) -> httpx.Timeout:
    return httpx.Timeout(timeout_s, connect=connect_s)


def _unsent(error: Exception) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"the request cannot be sent: {error}")


def _of_request(method: str, error: FencelogError) -> FencelogError:
    """Return the error of a request, which says whether that only reads."""
    error.is_read = method in _READS
    return error


def error_from_answer(
    answer: httpx.Response, lost: ErrorCode = ErrorCode.INTERNAL
) -> FencelogError:
    """Return the FencelogError that a problem document (RFC 9457) carries.

    An answer that is none is a proxy's, or has a newer service's code. It becomes ``lost`` where a
    proxy had no answer, else INTERNAL, whose outcome is unknown; below 500 BAD_REQUEST, or
    RATE_LIMITED, because then nothing was done.
    """
    try:
        problem = json_object(answer)
        code = ErrorCode[str(problem.pop("code")).upper()]
        detail = str(problem.pop("detail"))
    except (FencelogError, KeyError):
        if answer.status_code in _GATEWAY:
            code = lost
        elif answer.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            code = ErrorCode.RATE_LIMITED
        else:
            code = ErrorCode.INTERNAL if answer.status_code >= 500 else ErrorCode.BAD_REQUEST
        return FencelogError(code, f"{answer.status_code} {answer.reason_phrase}: {answer.url}")
    known = ("type", "title", "status", "instance", "retryable", "side_effects")
    return FencelogError(code, detail, **{k: v for k, v in problem.items() if k not in known})


def json_object(answer: httpx.Response) -> dict[str, Any]:
    """Return an answer's body. Raises FencelogError(INTERNAL) if it is no JSON object."""
    method = answer.request.method
    try:
        value = json.loads(answer.content)
    except ValueError as error:
        none = FencelogError(ErrorCode.INTERNAL, f"{answer.url} sent no JSON")
        raise _of_request(method, none) from error
    if not isinstance(value, dict):
        none = FencelogError(ErrorCode.INTERNAL, f"{answer.url} sent no JSON object")
        raise _of_request(method, none)
    return value


def partition_place(topic: str, partition: int) -> str:
    """Return the place of a request for one partition."""
    return f"{topic_path(topic)}/{partition}"


def topic_path(topic: str) -> str:
    """Return ``/v1/topics/NAMESPACE/TOPIC`` of ``namespace/topic``, or of ``topic`` in
    ``default``."""
    namespace, slash, name = topic.partition("/")
    if not slash:
        namespace, name = DEFAULT_NAMESPACE, topic
    return f"/v1/topics/{path_part(namespace)}/{path_part(name)}"


def path_part(name: str) -> str:
    """Return a name as one part of a path. Raises FencelogError(INVALID_NAME) if it is no text, as
    what a shell passes on need not be."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise FencelogError(ErrorCode.INVALID_NAME, f"{name[:200]!r} is not UTF-8") from None
