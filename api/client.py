"""The Python client: topics, appends and reads over HTTP, asynchronous.

    async with FencelogClient("http://127.0.0.1:8080") as client:
        await client.create_topic("default/orders")
        await client.append("default/orders", b"hello")
        async for batch in client.batches("default/orders", 0):
            print(batch.base_offset, decode_batch(batch.batch))

Every failure is a FencelogError, rebuilt from the service's problem document, so callers decide by
``error.code``. Of an append that was sent and not answered the outcome is unknown: APPEND_UNKNOWN,
never resent here. A request that reached nobody goes to the next of the servers; when none can be
reached the code is NO_OWNER, and nothing was done.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_READ_MESSAGES, MIB
from fencelog.ledgers.record_batch import FramedBatch, Message, encode_batch, read_frames

DEFAULT_SERVER = "http://127.0.0.1:8080"
DEFAULT_NAMESPACE = "default"

BATCH_TYPE = "application/vnd.fencelog.batch"
"""Media type of record batches, one in an append and framed many in a read."""

REQUEST_TIMEOUT_S = 60.0
"""Longer than any of the service's own timeouts: it knows more about an outcome than we do."""

CONNECT_TIMEOUT_S = 5.0

KEEP_ALIVE_S = 20.0
"""Shorter than the server's, so that no request meets a connection that is being closed."""

READ_BYTES = 4 * MIB
"""Record batches asked for in one read."""

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True, slots=True)
class Appended:
    """Messages that are durable: ``count`` of them from ``offset`` on."""

    partition: int
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Page:
    """Where a read stopped. ``at_tail``: it saw all that is readable now."""

    next_offset: int
    tail_offset: int
    at_tail: bool


@dataclass(frozen=True, slots=True)
class ReadPage(Page):
    """A read answer. The first batch may begin before the offset that was asked for."""

    batches: list[FramedBatch]


@dataclass(frozen=True, slots=True)
class RawPage(Page):
    """A read answer as it came."""

    body: bytes


class FencelogClient:
    """Use it as an async context manager, or ``close`` it. Safe for many tasks at once."""

    def __init__(
        self, servers: str | Sequence[str] = DEFAULT_SERVER, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        """``servers``: one URL, several, or several in one string separated by commas."""
        names = servers.split(",") if isinstance(servers, str) else servers
        self._servers = [name.strip().rstrip("/") for name in names]
        self._current = 0
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,  # the log is a neighbour; a proxy for the web must not see it
        )

    async def __aenter__(self) -> FencelogClient:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # -- topics ----------------------------------------------------------------------------------

    async def create_topic(self, topic: str, **config: Any) -> dict[str, Any]:
        """Create a topic, or find it with the same configuration (``partitions``,
        ``ensemble_size``, ``write_quorum``, ``ack_quorum``; None: the service's default).

        Raises FencelogError: ALREADY_EXISTS (with another configuration), INVALID_NAME, ….
        """
        body = {name: value for name, value in config.items() if value is not None}
        answer = await self._request("PUT", topic_path(topic), json=body)
        return _json_object(answer)

    async def topic(self, topic: str) -> dict[str, Any]:
        """Name, id and configuration. TOPIC_NOT_FOUND."""
        return _json_object(await self._request("GET", topic_path(topic)))

    async def topics(self, namespace: str | None = None, prefix: str = "") -> list[dict[str, Any]]:
        """All topics, of one namespace or of all, sorted by name."""
        found: list[dict[str, Any]] = []
        query = {"prefix": prefix} | ({"namespace": namespace} if namespace else {})
        while True:
            answer = _json_object(await self._request("GET", "/v1/topics", params=query))
            found += answer["topics"]
            start_after = answer.get("next_start_after")
            if start_after is None:
                return found
            query["start_after"] = start_after

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and everything in it. TOPIC_NOT_FOUND."""
        await self._request("DELETE", topic_path(topic))

    async def owners(self, topic: str) -> list[dict[str, Any]]:
        """``partition, broker_id, url, epoch`` of every partition that a broker owns now."""
        answer = await self._request("GET", f"{topic_path(topic)}/owners")
        found: list[dict[str, Any]] = _json_object(answer)["owners"]
        return found

    async def segments(self, topic: str, partition: int) -> dict[str, Any]:
        """The ledgers of a partition up to its confirmed end, and the bookies that hold them."""
        path = f"{topic_path(topic)}/partitions/{partition}/segments"
        return _json_object(await self._request("GET", path))

    # -- messages --------------------------------------------------------------------------------

    async def append(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        event_time_us: int | None = None,
        partition: int | None = None,
    ) -> Appended:
        """Append one message; it is durable on return. Errors as for ``append_batch``."""
        message = Message(value, key, event_time_us, tuple((headers or {}).items()))
        return await self.append_batch(topic, encode_batch([message]), partition=partition)

    async def append_batch(
        self, topic: str, batch: bytes, *, partition: int | None = None, key: str | None = None
    ) -> Appended:
        """Append a record batch, all of it to one partition or nothing; durable on return.

        Without ``partition`` the service chooses one: by ``key``, else in turn. Raises
        FencelogError: ``error.code.effects`` says whether it may have been written all the same.
        """
        query: dict[str, Any] = {}
        if partition is not None:
            query["partition"] = partition
        if key is not None:
            query["key"] = key
        answer = await self._request(
            "POST",
            f"{topic_path(topic)}/messages:batch",
            params=query,
            content=batch,
            headers={"content-type": BATCH_TYPE},
            lost=ErrorCode.APPEND_UNKNOWN,
        )
        (appended,) = _json_object(answer)["appended"]
        return Appended(appended["partition"], appended["offset"], appended["count"])

    async def read(
        self,
        topic: str,
        partition: int,
        start: int | str,
        *,
        max_messages: int = MAX_READ_MESSAGES,
        max_bytes: int = READ_BYTES,
        wait_s: float = 0,
    ) -> ReadPage:
        """Record batches from an offset (or "earliest", "latest") on.

        At the tail, waits up to ``wait_s`` for a message and may come back empty. Raises
        FencelogError: OFFSET_BEYOND_TAIL, OFFSET_TRIMMED, TOPIC_NOT_FOUND, ….
        """
        page = await self.read_as(
            BATCH_TYPE,
            topic,
            partition,
            start,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_s=wait_s,
        )
        return ReadPage(page.next_offset, page.tail_offset, page.at_tail, read_frames(page.body))

    async def read_as(
        self,
        media_type: str,
        topic: str,
        partition: int,
        start: int | str,
        *,
        max_messages: int = MAX_READ_MESSAGES,
        max_bytes: int = READ_BYTES,
        wait_s: float = 0,
    ) -> RawPage:
        """As ``read``, in any form that the service has: ``application/x-ndjson``, …."""
        query = {"from": start, "limit": max_messages, "max_bytes": max_bytes}
        answer = await self._request(
            "GET",
            f"{topic_path(topic)}/partitions/{partition}/messages",
            params=query | ({"wait": wait_s} if wait_s else {}),
            headers={"accept": media_type},
            timeout_s=self._timeout_s + wait_s,
        )
        return RawPage(
            next_offset=int(answer.headers["next-offset"]),
            tail_offset=int(answer.headers["tail-offset"]),
            at_tail=answer.headers["at-tail"] == "true",
            body=answer.content,
        )

    async def batches(
        self, topic: str, partition: int, start: int | str = "earliest"
    ) -> AsyncIterator[FramedBatch]:
        """All batches from ``start`` to what was the tail when it was reached."""
        while True:
            page = await self.read(topic, partition, start)
            for batch in page.batches:
                yield batch
            if page.at_tail:
                return
            start = page.next_offset

    # -- requests --------------------------------------------------------------------------------

    async def _request(
        self,
        method: str,
        path: str,
        *,
        lost: ErrorCode = ErrorCode.REQUEST_TIMEOUT,
        timeout_s: float | None = None,
        **options: Any,
    ) -> httpx.Response:
        """Send to the current server, or to the next one that can be reached at all.

        ``lost``: the code of a request that was sent and whose answer never came.
        """
        if timeout_s is not None:
            options["timeout"] = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        refusal = ""
        for _ in self._servers:
            server = self._servers[self._current]
            try:
                answer = await self._http.request(method, server + path, **options)
            except _NOT_SENT as error:
                refusal = f"cannot reach {server}: {error or type(error).__name__}"
                self._current = (self._current + 1) % len(self._servers)
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


def topic_path(topic: str) -> str:
    """``/v1/topics/NAMESPACE/TOPIC`` of ``namespace/topic``, or of ``topic`` in ``default``."""
    namespace, slash, name = topic.partition("/")
    if not slash:
        namespace, name = DEFAULT_NAMESPACE, topic
    return f"/v1/topics/{quote(namespace, safe='')}/{quote(name, safe='')}"


def error_from_answer(answer: httpx.Response) -> FencelogError:
    """The FencelogError that a problem document (RFC 9457) carries.

    An answer that is none (a proxy's, a newer service's code) becomes INTERNAL, whose outcome is
    unknown; below 500 BAD_REQUEST, for then nothing was done.
    """
    try:
        problem = _json_object(answer)
        code = ErrorCode[str(problem.pop("code")).upper()]
        detail = str(problem.pop("detail"))
    except (FencelogError, KeyError):
        code = ErrorCode.INTERNAL if answer.status_code >= 500 else ErrorCode.BAD_REQUEST
        return FencelogError(code, f"{answer.status_code} {answer.reason_phrase}: {answer.url}")
    known = ("type", "title", "status", "instance", "retryable", "side_effects")
    return FencelogError(code, detail, **{k: v for k, v in problem.items() if k not in known})


def _json_object(answer: httpx.Response) -> dict[str, Any]:
    try:
        value = json.loads(answer.content)
    except ValueError as error:
        raise FencelogError(ErrorCode.INTERNAL, f"{answer.url} sent no JSON") from error
    if not isinstance(value, dict):
        raise FencelogError(ErrorCode.INTERNAL, f"{answer.url} sent no JSON object")
    return value
