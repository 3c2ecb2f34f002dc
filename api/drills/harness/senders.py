"""The senders of a drill's clients: through any broker, or to one alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import anyio
import httpx

from fencelog.api.client import BATCH_TYPE, FencelogClient, topic_path
from fencelog.api.client.conditions import Producer, condition_headers
from fencelog.api.client.http import (
    REQUEST_TIMEOUT_S,
    ServiceHttp,
    error_from_answer,
    json_object,
)
from fencelog.api.routing.link_frames import FORWARDED
from fencelog.ledgers.errors import ErrorCode, FencelogError


class Sender(Protocol):
    """A sender of appends to one partition."""

    async def append(self, batch: bytes, producer: Producer | None = None) -> int:
        """Append, and return the offset of the first message, which is durable on return; below 0:
        it was durable before, and the offset is not remembered. Raises FencelogError;
        ``error.code.effects`` says whether it may have been written all the same."""


class AnyBroker:
    """A sender through one broker, and through the next one when it gave no acknowledgement, like a
    client with a list of servers."""

    def __init__(
        self,
        clients: Sequence[FencelogClient],
        topic: str,
        partition: int,
        *,
        first: int = 0,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Configure the sender. ``first``: the place of the client that is asked first.
        ``timeout_s``: for an answer, the connection included."""
        self._timeout_s = timeout_s
        self._clients = clients
        self._topic = topic
        self._partition = partition
        self._current = first

    async def append(self, batch: bytes, producer: Producer | None = None) -> int:
        client = self._clients[self._current % len(self._clients)]
        try:
            with anyio.fail_after(self._timeout_s):
                appended = await client.append_batch(
                    self._topic, batch, partition=self._partition, producer=producer
                )
        except TimeoutError:
            self._current += 1
            raise FencelogError(ErrorCode.APPEND_UNKNOWN, "no answer in time") from None
        except FencelogError:
            self._current += 1
            raise
        return appended.offset


class OneBroker:
    """A sender over one connection to one broker that may not forward the appends: it acknowledges
    as the owner, or refuses. ``close`` it."""

    def __init__(self, url: str, topic: str, partition: int, *, timeout_s: float) -> None:
        """Configure the sender. ``timeout_s``: for an answer."""
        self._url = f"{url}{topic_path(topic)}/messages:batch"
        self._query = {"partition": str(partition)}
        self._http = httpx.AsyncClient(timeout=timeout_s, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def append(self, batch: bytes, producer: Producer | None = None) -> int:
        headers = [(b"content-type", BATCH_TYPE.encode()), (FORWARDED, b"1")]
        conditions = condition_headers({"producer": producer})
        headers += [(name.encode(), value) for name, value in conditions.items()]
        try:
            answer = await self._http.post(
                self._url, params=self._query, content=batch, headers=headers
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise FencelogError(ErrorCode.NO_OWNER, f"{self._url}: {error!r}") from error
        except httpx.TransportError as error:
            raise FencelogError(ErrorCode.APPEND_UNKNOWN, f"{self._url}: {error!r}") from error
        if not answer.is_success:
            raise error_from_answer(answer)
        (appended,) = json_object(answer)["appended"]
        return -1 if appended["offset"] is None else int(appended["offset"])


async def ask(url: str, method: str, path: str) -> dict[str, Any]:
    """Send a request for which the client has no method. Raises FencelogError."""
    service = ServiceHttp([url], timeout_s=REQUEST_TIMEOUT_S)
    try:
        answer = await service.request(method, path)
    finally:
        await service.close()
    return json_object(answer) if answer.content else {}
