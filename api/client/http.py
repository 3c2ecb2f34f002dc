"""The Python client's HTTP: several servers, definite outcomes, problems as errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx

from fencelog.ledgers.errors import ErrorCode, FencelogError

DEFAULT_NAMESPACE = "default"

REQUEST_TIMEOUT_S = 60.0
"""The time-out of a request, longer than any of the service's own: the service knows more about an
outcome than the client does."""

CONNECT_TIMEOUT_S = 5.0

KEEP_ALIVE_S = 20.0
"""The time that idle connections are kept, shorter than the server's, so that no request meets a
connection that is being closed."""

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class ServiceHttp:
    """Sends requests to a service that several servers offer. Safe for many tasks at once."""

    def __init__(self, servers: Sequence[str], *, timeout_s: float) -> None:
        self._servers = [server.rstrip("/") for server in servers]
        self._current = 0
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            timeout=_timeouts(timeout_s),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,  # the log is a neighbour; a proxy for the web must not see it
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
        **options: Any,
    ) -> httpx.Response:
        """Send to the current server, or to the next one that can be reached at all.

        ``lost``: the code of a request that was sent and never answered. The service may wait
        ``extra_wait_s`` before it answers. Raises FencelogError for every other answer than a
        success.
        """
        if extra_wait_s:
            options["timeout"] = _timeouts(self._timeout_s + extra_wait_s)
        refusal = ""
        first = self._current
        for step in range(len(self._servers)):
            self._current = (first + step) % len(self._servers)
            server = self._servers[self._current]
            try:
                answer = await self._http.request(method, server + path, **options)
            except _NOT_SENT as error:
                refusal = f"cannot reach {server}: {error or type(error).__name__}"
            except httpx.InvalidURL as error:
                raise FencelogError(ErrorCode.BAD_REQUEST, f"{server}: {error}") from error
            except httpx.TransportError as error:
                what = f"{server} did not answer: {error or type(error).__name__}"
                raise FencelogError(lost, what) from error
            else:
                if answer.is_success:
                    return answer
                raise error_from_answer(answer)
        raise FencelogError(ErrorCode.NO_OWNER, refusal)


def _timeouts(timeout_s: float) -> httpx.Timeout:
    return httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)


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


def topic_path(topic: str) -> str:
    """Return ``/v1/topics/NAMESPACE/TOPIC`` of ``namespace/topic``, or of ``topic`` in
    ``default``."""
    namespace, slash, name = topic.partition("/")
    if not slash:
        namespace, name = DEFAULT_NAMESPACE, topic
    return f"/v1/topics/{quote(namespace, safe='')}/{quote(name, safe='')}"
