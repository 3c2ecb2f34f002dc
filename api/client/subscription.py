"""Subscriptions in the Python client: create, pull, acknowledge, move. ``consumer`` has a loop over
messages that keeps their leases and gathers their acknowledgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from fencelog.api.client.http import ServiceHttp, json_object, path_part, topic_path
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB

MAX_MESSAGES = 100
"""The default limit of the messages of one pull."""


@dataclass(frozen=True, slots=True)
class LeasedMessage:
    """A message that no other consumer gets until its lease ends. Times in µs since 1970 UTC.

    ``attempt``: 1, and one more for each time that it was given back or that its lease ran out.
    """

    partition: int
    offset: int
    publish_time_us: int
    value: bytes
    key: bytes | None
    event_time_us: int | None
    headers: tuple[tuple[str, bytes], ...]
    ack_id: str
    attempt: int


class SubscriptionCalls:
    """The part of ``FencelogClient`` that is about subscriptions. Its errors are the client's."""

    _service: ServiceHttp

    async def create_subscription(
        self, topic: str, subscription: str, **settings: Any
    ) -> dict[str, Any]:
        """Create a subscription, or find it with the same settings (``type``, ``start``,
        ``lease_ms``, ``max_deliveries``, …; None: the service's default). It begins after the
        current tail, unless ``start`` says otherwise. Return it, with ``created``: whether this
        call created it.

        Raises FencelogError: ALREADY_EXISTS (with others), TOPIC_NOT_FOUND, LIMIT_REACHED, ….
        """
        body = {name: value for name, value in settings.items() if value is not None}
        path = subscription_path(topic, subscription)
        answer = await self._service.request("PUT", path, json=body)
        return json_object(answer) | {"created": answer.status_code == HTTPStatus.CREATED}

    async def subscription(self, topic: str, subscription: str) -> dict[str, Any]:
        """Return a subscription's id and settings. Raises SUBSCRIPTION_NOT_FOUND."""
        path = subscription_path(topic, subscription)
        return json_object(await self._service.request("GET", path))

    async def subscriptions(self, topic: str) -> list[dict[str, Any]]:
        """Return all subscriptions of a topic, by name."""
        path = f"{topic_path(topic)}/subscriptions"
        answer = json_object(await self._service.request("GET", path))
        found: list[dict[str, Any]] = answer["subscriptions"]
        return found

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """Delete a subscription with its cursor in every partition. Raises
        SUBSCRIPTION_NOT_FOUND."""
        await self._service.request("DELETE", subscription_path(topic, subscription))

    async def subscription_stats(self, topic: str, subscription: str) -> list[dict[str, Any]]:
        """Return the metrics of each partition, as its owner knows them."""
        path = f"{subscription_path(topic, subscription)}/stats"
        answer = json_object(await self._service.request("GET", path))
        found: list[dict[str, Any]] = answer["partitions"]
        return found

    async def pull(
        self,
        topic: str,
        subscription: str,
        *,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MIB,
        wait_s: float = 0,
        lease_ms: int | None = None,
        consumer: str = "",
    ) -> list[LeasedMessage]:
        """Lease messages; if there is none, wait up to ``wait_s`` (60) and perhaps return none.

        Raises FencelogError: SUBSCRIPTION_NOT_FOUND, SUBSCRIPTION_BUSY, …. The messages that a lost
        answer has leased are delivered again when their leases end.
        """
        request = {
            "max": max_messages,
            "max_bytes": max_bytes,
            "wait": wait_s,
            "lease_ms": lease_ms,
            "consumer": consumer,
            "as": "base64",
        }
        answer = await self._ask(topic, subscription, "pull", request, extra_wait_s=wait_s)
        try:
            return [_leased(message) for message in _PULLED.decode(answer).messages]
        except msgspec.MsgspecError as error:
            raise FencelogError(
                ErrorCode.INTERNAL, f"the service sent no messages: {error}"
            ) from error

    async def ack(self, topic: str, subscription: str, ack_ids: Sequence[str]) -> list[str]:
        """Acknowledge messages, durably on return; return the ids that are stale, after a seek.

        May be repeated; STATE_UNKNOWN says that some may have been acknowledged.
        """
        return await self._stale(topic, subscription, "ack", {"ack_ids": list(ack_ids)})

    async def ack_through(
        self, topic: str, subscription: str, ack_ids: Sequence[str], *, consumer: str = ""
    ) -> list[str]:
        """Acknowledge everything up to these messages, included, one of each partition; durable on
        return. Return the ids that are stale, after a seek. For ordered subscriptions only."""
        request = {"through": list(ack_ids), "consumer": consumer}
        return await self._stale(topic, subscription, "ack", request)

    async def nack(
        self,
        topic: str,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        delay_ms: int | None = None,
        failed: bool = True,
    ) -> list[str]:
        """Give messages back, to be delivered again after ``delay_ms`` (None: by the subscription's
        backoff); those that have not ``failed`` at once, and that counts as no delivery. Return the
        ids that are stale."""
        request: dict[str, Any] = {"ack_ids": list(ack_ids), "delay_ms": delay_ms}
        if not failed:
            request["failed"] = False
        return await self._stale(topic, subscription, "nack", request)

    async def give_back(self, topic: str, subscription: str, consumer: str) -> None:
        """Give back all messages that a consumer has, as unused: those of a pull whose answer was
        lost have no ids here. An exclusive or failover subscription goes on with the first message
        that is not acknowledged. May be repeated."""
        await self._stale(topic, subscription, "nack", {"consumer": consumer, "failed": False})

    async def extend(
        self,
        topic: str,
        subscription: str,
        ack_ids: Sequence[str],
        lease_ms: int,
        *,
        consumer: str = "",
    ) -> list[str]:
        """Have leases end ``lease_ms`` from now. Return the ids that are stale: leased no more. The
        ``consumer`` of an exclusive subscription stays the only one for as long."""
        request = {"ack_ids": list(ack_ids), "lease_ms": lease_ms, "consumer": consumer}
        return await self._stale(topic, subscription, "extend", request)

    async def seek(
        self,
        topic: str,
        subscription: str,
        *,
        to: str | None = None,
        time_us: int | None = None,
        offsets: Mapping[int, int] | None = None,
    ) -> dict[int, int]:
        """Move to "earliest" or "latest", to the first message published at ``time_us`` or later,
        or to an offset of each partition. Return the position in each partition."""
        request: dict[str, Any] = {"to": to, "time": time_us}
        if offsets is not None:
            request["offsets"] = [
                {"partition": partition, "offset": offset} for partition, offset in offsets.items()
            ]
        answer = await self._ask(topic, subscription, "seek", request)
        moved = msgspec.json.decode(answer, type=dict[str, list[dict[str, int]]])
        return {at["partition"]: at["offset"] for at in moved["offsets"]}

    async def replay_dead_letters(
        self, topic: str, subscription: str, *, limit: int | None = None
    ) -> int:
        """Send dead letters back to their partitions, and return their number."""
        request = {} if limit is None else {"limit": limit}
        answer = await self._ask(topic, subscription, "replay-dead-letters", request)
        return msgspec.json.decode(answer, type=dict[str, int])["replayed"]

    async def _stale(
        self, topic: str, subscription: str, verb: str, request: dict[str, Any]
    ) -> list[str]:
        answer = await self._ask(topic, subscription, verb, request)
        return _STALE.decode(answer).stale

    async def _ask(
        self,
        topic: str,
        subscription: str,
        verb: str,
        request: dict[str, Any],
        *,
        extra_wait_s: float = 0,
    ) -> bytes:
        answer = await self._service.request(
            "POST",
            f"{subscription_path(topic, subscription)}:{verb}",
            json=request,
            lost=ErrorCode.STATE_UNKNOWN,
            extra_wait_s=extra_wait_s,
        )
        return answer.content


def subscription_path(topic: str, subscription: str) -> str:
    """Return ``/v1/topics/NAMESPACE/TOPIC/subscriptions/NAME``."""
    return f"{topic_path(topic)}/subscriptions/{path_part(subscription)}"


class _Shown(msgspec.Struct):
    """A message as an answer shows it, its value in base64."""

    partition: int
    offset: int
    publish_time: int
    base64: bytes
    ack_id: str
    attempt: int
    key: str | None = None
    key_base64: bytes | None = None
    event_time: int | None = None
    headers: dict[str, str] | None = None
    headers_base64: list[tuple[str, bytes]] | None = None


class _Pulled(msgspec.Struct):
    messages: list[_Shown]


class _Stale(msgspec.Struct):
    stale: list[str]


_PULLED = msgspec.json.Decoder(_Pulled)
_STALE = msgspec.json.Decoder(_Stale)


def _leased(shown: _Shown) -> LeasedMessage:
    headers = shown.headers_base64
    if headers is None:
        headers = [(name, value.encode()) for name, value in (shown.headers or {}).items()]
    return LeasedMessage(
        shown.partition,
        shown.offset,
        shown.publish_time,
        shown.base64,
        shown.key_base64 if shown.key is None else shown.key.encode(),
        shown.event_time,
        tuple(headers),
        shown.ack_id,
        shown.attempt,
    )
