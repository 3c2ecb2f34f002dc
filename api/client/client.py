"""The Python client: topics, appends and reads over HTTP, asynchronous.

    async with FencelogClient("http://127.0.0.1:8080") as client:
        await client.create_topic("default/orders")
        await client.append("default/orders", b"hello")
        async for batch in client.batches("default/orders", 0):
            print(batch.base_offset, decode_batch(batch.batch))

Every failure is a FencelogError, rebuilt from the service's problem document, so callers decide by
``error.code``. The outcome of an append that was sent and not answered is unknown: APPEND_UNKNOWN,
never resent here. A request that reached no server goes to the next one; when none can be reached
the code is NO_OWNER, and nothing was done. What belongs to one partition goes straight to its
owner, as soon as an answer has named it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Unpack
from urllib.parse import quote, urlencode

from fencelog.api.client.admin import AdminCalls
from fencelog.api.client.conditions import DUPLICATE, AppendPreconditions, condition_headers
from fencelog.api.client.consumer import Consumer
from fencelog.api.client.http import (
    REQUEST_TIMEOUT_S,
    ServiceHttp,
    json_object,
    partition_place,
    topic_path,
)
from fencelog.api.client.reads import BATCH_TYPE, Page, RawPage, ReadCalls, ReadPage
from fencelog.api.client.subscription import MAX_MESSAGES, SubscriptionCalls
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message, encode_batch, has_keys

__all__ = [
    "BATCH_TYPE",
    "DEFAULT_SERVER",
    "Appended",
    "FencelogClient",
    "Page",
    "RawPage",
    "ReadPage",
    "topic_path",
]

DEFAULT_SERVER = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Appended:
    """Messages that are durable: ``count`` of them from ``offset`` on. ``duplicate``: an earlier
    request had already written them; the offset is -1 if that was so long ago that it is not
    remembered."""

    partition: int
    offset: int
    count: int
    duplicate: bool = False


class FencelogClient(ReadCalls, SubscriptionCalls, AdminCalls):
    """The client of a service. Use it as an async context manager, or ``close`` it. Safe for many
    tasks at once."""

    def __init__(
        self, servers: str | Sequence[str] = DEFAULT_SERVER, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        """Configure the client. ``servers``: one URL, several, or several in one string separated
        by commas."""
        names = servers.split(",") if isinstance(servers, str) else servers
        self._service = ServiceHttp([name.strip() for name in names], timeout_s=timeout_s)

    async def __aenter__(self) -> FencelogClient:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._service.close()

    # -- topics ----------------------------------------------------------------------------------

    async def create_topic(
        self, topic: str, *, allow_missing_bookies: bool = False, **config: Any
    ) -> dict[str, Any]:
        """Create a topic, or find it with the same settings (``partitions``, and those of HTTP.md);
        return it, with ``created``: whether this call created it.

        Raises FencelogError: ALREADY_EXISTS (with other settings), INVALID_NAME,
        NOT_ENOUGH_BOOKIES (for its ensembles, unless they may be missing), ….
        """
        body = {name: value for name, value in config.items() if value is not None}
        query = {"allow_missing_bookies": "true"} if allow_missing_bookies else {}
        answer = await self._service.request("PUT", topic_path(topic), json=body, params=query)
        return json_object(answer) | {"created": answer.status_code == HTTPStatus.CREATED}

    async def topic(self, topic: str, *, confirmed: bool = False) -> dict[str, Any]:
        """Return a topic's name, id and configuration. ``confirmed``: none older than the request,
        also where the broker that is asked reads from a metadata server that lags behind. Raises
        TOPIC_NOT_FOUND."""
        query = {"confirmed": "true"} if confirmed else {}
        return json_object(await self._service.request("GET", topic_path(topic), params=query))

    async def topics(
        self, namespace: str | None = None, prefix: str = "", *, confirmed: bool = False
    ) -> list[dict[str, Any]]:
        """Return all topics, of one namespace or of all, sorted by name; ``confirmed`` as for
        ``topic``."""
        found: list[dict[str, Any]] = []
        query = {"prefix": prefix} | ({"namespace": namespace} if namespace else {})
        query |= {"confirmed": "true"} if confirmed else {}
        while True:
            answer = json_object(await self._service.request("GET", "/v1/topics", params=query))
            found += answer["topics"]
            start_after = answer.get("next_start_after")
            if start_after is None:
                return found
            query["start_after"] = start_after

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and everything in it. Raises TOPIC_NOT_FOUND."""
        await self._service.request("DELETE", topic_path(topic))

    async def owners(self, topic: str) -> list[dict[str, Any]]:
        """Return ``partition, broker_id, url, epoch`` of every partition that currently has an
        owner."""
        answer = await self._service.request("GET", f"{topic_path(topic)}/owners")
        found: list[dict[str, Any]] = json_object(answer)["owners"]
        return found

    async def segments(
        self,
        topic: str,
        partition: int,
        *,
        from_offset: int = 0,
        confirmed: bool = False,
        refresh: int | None = None,
    ) -> dict[str, Any]:
        """Return the ledgers of a partition up to its confirmed end, those with ``from_offset`` and
        what follows, and the bookies that hold them. ``confirmed``: everything that was
        acknowledged before, also if the broker that is asked was replaced and does not know it.
        ``refresh``: the metadata of this ledger is read anew; with ``confirmed`` it is not older
        than the request. Raises TOPIC_NOT_FOUND, NO_OWNER, …."""
        path = f"{topic_path(topic)}/partitions/{partition}/segments"
        query: dict[str, Any] = {"from_offset": from_offset}
        if confirmed:
            query["confirmed"] = "true"
        if refresh is not None:
            query["refresh"] = refresh
        place = partition_place(topic, partition)
        answer = await self._service.request("GET", path, params=query, place=place)
        return json_object(answer)

    # -- messages of a subscription --------------------------------------------------------------

    def consume(
        self,
        topic: str,
        subscription: str,
        *,
        consumer: str = "",
        max_messages: int = MAX_MESSAGES,
        lease_ms: int | None = None,
    ) -> Consumer:
        """Return a loop over messages that keeps their leases and gathers acknowledgements, for
        ``async with client.consume(…) as messages``. At most ``max_messages`` wait in it. Without
        a name, ``consumer``, the loop has one of its own."""
        return Consumer(
            self,
            topic,
            subscription,
            consumer=consumer,
            max_messages=max_messages,
            lease_ms=lease_ms,
        )

    # -- anything else ---------------------------------------------------------------------------

    async def get_object(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object at a path."""
        return json_object(await self._service.request("GET", path, **options))

    async def change_object(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object that a request is answered with; an empty one for no content."""
        answer = await self._service.request(method, path, **options)
        return json_object(answer) if answer.content else {}

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
        **conditions: Unpack[AppendPreconditions],
    ) -> Appended:
        """Append one message; it is durable on return. Without ``partition`` its key chooses one.
        ``conditions`` and errors as for ``append_batch``."""
        message = Message(value, key, event_time_us, tuple((headers or {}).items()))
        batch = encode_batch([message])
        chosen_by = key if partition is None else None
        return await self.append_batch(
            topic, batch, partition=partition, key=chosen_by, **conditions
        )

    async def append_batch(
        self,
        topic: str,
        batch: bytes,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        **conditions: Unpack[AppendPreconditions],
    ) -> Appended:
        """Append a record batch, all of it to one partition or nothing; durable on return.

        Without ``partition`` the service chooses one: by ``key``, else in turn. Messages with keys
        of their own need one of both; ``append_keyed`` takes each to its key's partition.
        ``conditions``: the append's conditions, see ``AppendPreconditions``. Raises FencelogError:
        ``error.code.effects`` says whether the batch may have been written all the same;
        SEQUENCE_MISMATCH, PRODUCER_FENCED, PRODUCER_BUSY, PRECONDITION_FAILED where the conditions
        do not hold.
        """
        query: dict[str, int | str | bytes] = {}
        if partition is not None:
            query["partition"] = partition
        if key is not None:
            query["key"] = key
        if not query and has_keys(batch):
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                "the messages have keys, so a partition or a key has to be named for all of them; "
                "append_keyed takes each to the partition of its own",
            )
        place = topic_path(topic) if partition is None else partition_place(topic, partition)
        (appended,) = await self._append(topic, batch, query, condition_headers(conditions), place)
        return appended

    async def append_keyed(self, topic: str, batch: bytes) -> list[Appended]:
        """Append a record batch, each message to the partition of its key, those without a key
        together; durable on return. The part of each partition is all there or not at all.

        Raises FencelogError as ``append_batch``; APPEND_UNKNOWN with ``appended`` and ``failed`` if
        only some partitions have certainly taken their part.
        """
        return await self._append(topic, batch, {}, {}, "")

    async def _append(
        self,
        topic: str,
        batch: bytes,
        query: Mapping[str, int | str | bytes],
        headers: Mapping[str, bytes],
        place: str,
    ) -> list[Appended]:
        where = f"?{urlencode(query, quote_via=quote)}" if query else ""
        answer = await self._service.request(
            "POST",
            f"{topic_path(topic)}/messages:batch{where}",
            content=batch,
            headers={"content-type": BATCH_TYPE, **headers},
            lost=ErrorCode.APPEND_UNKNOWN,
            place=place,
        )
        duplicate = DUPLICATE in answer.headers
        found = json_object(answer)
        try:
            appended = [
                Appended(
                    part["partition"],
                    -1 if part["offset"] is None else part["offset"],
                    part["count"],
                    duplicate,
                )
                for part in found["appended"]
            ]
        except (KeyError, TypeError):
            appended = []
        if not appended:
            raise FencelogError(ErrorCode.INTERNAL, f"{answer.url} does not say what was appended")
        return appended
