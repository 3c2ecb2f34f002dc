"""The Python client's HTTP: several servers, definite outcomes, problems as errors."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from fencelog.api.client.owners import OWNER, KnownOwners
from fencelog.ledgers.errors import ErrorCode, FencelogError

DEFAULT_NAMESPACE = "default"

REQUEST_TIMEOUT_S = 60.0
"""The time-out of a request, longer than any of the service's own: the service knows more about an
outcome than the client does."""

CONNECT_TIMEOUT_S = 5.0

OWNER_CONNECT_TIMEOUT_S = 1.0
"""The same for the owner of a partition, who may not be reachable from here at all: the service is
another way to it."""

KEEP_ALIVE_S = 20.0
"""The time that idle connections are kept, shorter than the server's, so that no request meets a
connection that is being closed."""

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
        self._http = httpx.AsyncClient(
            timeout=_timeouts(timeout_s),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,  # the log is a neighbour; a proxy for the web must not see it
            verify=_certificates(self._servers),
        )

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
        be reached at all.

        ``lost``: the code of a request that was sent and never answered. The service may wait
        ``extra_wait_s`` before it answers. Raises FencelogError for every other answer than a
        success.
        """
        timeout_s = self._timeout_s + extra_wait_s
        owner = self._owners.of(place)
        if owner is not None:
            direct = {**options, "timeout": _timeouts(timeout_s, OWNER_CONNECT_TIMEOUT_S)}
            try:
                return await self._send(method, owner, path, place, lost, direct)
            except _NOT_SENT:
                self._owners.avoid(owner)
        if extra_wait_s:
            options["timeout"] = _timeouts(timeout_s)
        refusal = ""
        first = self._current
        for step in range(len(self._servers)):
            self._current = (first + step) % len(self._servers)
            server = self._servers[self._current]
            try:
                return await self._send(method, server, path, place, lost, options)
            except _NOT_SENT as error:
                refusal = f"cannot reach {server}: {error or type(error).__name__}"
        raise FencelogError(ErrorCode.NO_OWNER, refusal)

    async def _send(
        self,
        method: str,
        server: str,
        path: str,
        place: str,
        lost: ErrorCode,
        options: Mapping[str, Any],
    ) -> httpx.Response:
        """Send to one server. Raises the errors of ``_NOT_SENT`` if nothing was sent."""
        is_served = False
        try:
            answer = await self._http.request(method, server + path, **options)
            is_served = answer.is_success
        except _NOT_SENT:
            raise
        except httpx.InvalidURL as error:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"{server}: {error}") from error
        except httpx.TransportError as error:
            what = f"{server} did not answer: {error or type(error).__name__}"
            raise FencelogError(lost, what) from error
        finally:
            if not is_served:  # also if the caller has waited for long enough
                self._owners.forget(place)
        if not is_served:
            raise error_from_answer(answer)
        self._owners.note(place, answer.headers.get(OWNER))
        return answer


def _certificates(servers: Sequence[str]) -> bool | ssl.SSLContext:
    """Return whether certificates are checked: always. To read all that are trusted takes 25 to 70
    ms, which a client without https does not need; it trusts none."""
    is_https = any(server.lower().startswith("https:") for server in servers)
    return is_https or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _timeouts(timeout_s: float, connect_s: float = CONNECT_TIMEOUT_S) -> httpx.Timeout:
    return httpx.Timeout(timeout_s, connect=connect_s)


def error_from_answer(answer: httpx.Response) -> FencelogError:
    """Return the FencelogError that a problem document (RFC 9457) carries.

    An answer that is none (a proxy's, a newer service's code) becomes INTERNAL, whose outcome is
    unknown; below 500 BAD_REQUEST, because then nothing was done.
    """
    try:
        problem = json_object(answer)
        code = ErrorCode[str(problem.pop("code")).upper()]
        detail = str(problem.pop("detail"))
    except (FencelogError, KeyError):
        code = ErrorCode.INTERNAL if answer.status_code >= 500 else ErrorCode.BAD_REQUEST
        return FencelogError(code, f"{answer.status_code} {answer.reason_phrase}: {answer.url}")
    known = ("type", "title", "status", "instance", "retryable", "side_effects")
    return FencelogError(code, detail, **{k: v for k, v in problem.items() if k not in known})


def json_object(answer: httpx.Response) -> dict[str, Any]:
    """Return an answer's body. Raises FencelogError(INTERNAL) if it is no JSON object."""
    try:
        value = json.loads(answer.content)
    except ValueError as error:
        raise FencelogError(ErrorCode.INTERNAL, f"{answer.url} sent no JSON") from error
    if not isinstance(value, dict):
        raise FencelogError(ErrorCode.INTERNAL, f"{answer.url} sent no JSON object")
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
    return f"/v1/topics/{quote(namespace, safe='')}/{quote(name, safe='')}"
