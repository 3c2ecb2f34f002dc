"""The requests to a subscription's partitions, each at the partition's owner.

Every request of a client becomes at most one request to each partition: answered here where this
broker is the owner, else by the same request with ``?partition=`` sent to the owner, once. The
cursor is opened where it is missing, as it is in partitions that the topic got later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fencelog.api.http.asgi import Exchange
from fencelog.api.http.problems import problem
from fencelog.api.http.targets import Endpoint
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.requests import Done
from fencelog.broker.registry.subscription_registry import RegisteredSubscription, encode_registered
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog
    from fencelog.broker.subscriptions.subscriptions import DeadLetters

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_VIEWS = frozenset((Endpoint.SUBSCRIPTION_STATS, Endpoint.SUBSCRIPTION_LAG))


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a request. ``exchange`` None: one that may go to other brokers at any time."""

    topic: TopicInfo
    subscription: RegisteredSubscription
    exchange: Exchange | None = None

    @property
    def path(self) -> str:
        name = self.topic.name
        subscription = self.subscription.info.name
        return f"/v1/topics/{name.namespace}/{name.topic}/subscriptions/{subscription}"


class SubscriptionOwners:
    """Sends requests to owners, this broker among them."""

    def __init__(
        self,
        broker: Broker,
        ownership: OwnerProxy,
        forwarder: Forwarder,
        dead_letters: Callable[[TopicInfo], DeadLetters],
    ) -> None:
        self._broker = broker
        self._ownership = ownership
        self._forwarder = forwarder
        self._dead_letters = dead_letters

    async def ask(
        self,
        asked: Asked,
        partition: int,
        endpoint: Endpoint,
        request: msgspec.Struct,
        local: Callable[[PartitionLog], Awaitable[S]],
        answer: type[S],
    ) -> S:
        """Return ``local(log)``, or the owner's answer to the same ``request``.

        Raises what they raise; STATE_UNKNOWN when the owner got the request and did not answer.
        """

        async def here(log: PartitionLog) -> S:
            await self.prepare(log, asked)
            return await local(log)

        body = msgspec.json.encode(request)
        return await self._at_owner(asked, partition, endpoint, body, here, answer)

    async def prepare(self, log: PartitionLog, asked: Asked) -> None:
        """Have the cursor in this log, if the subscription still exists."""
        if asked.subscription.info.subscription_id in log.subscriptions.all():
            self._have_dead_letters(log, asked.topic)
        else:
            await self._check_is_there(asked)
            await self.open_cursor(log, asked.topic, asked.subscription)

    async def open_everywhere(self, asked: Asked) -> None:
        """Open the cursor in every partition. Raises the first partition's error."""
        node = encode_registered(asked.subscription)

        async def here(log: PartitionLog) -> Done:
            await self.open_cursor(log, asked.topic, asked.subscription)
            return Done()

        def open_one(partition: int) -> Coroutine[Any, Any, Done]:
            return self._at_owner(asked, partition, Endpoint.OPEN_CURSOR, node, here, Done)

        _, errors = await together({p: open_one(p) for p in partitions_of(asked.topic)})
        if errors:
            raise next(iter(errors.values()))

    async def drop_everywhere(self, asked: Asked, request: msgspec.Struct) -> None:
        """Drop the cursor in every partition that can be reached; the others' owners find out that
        the subscription is gone (``CursorReconciler``)."""
        subscription_id = asked.subscription.info.subscription_id
        body = msgspec.json.encode(request)

        async def here(log: PartitionLog) -> Done:
            await log.subscriptions.drop(subscription_id)
            return Done()

        def drop_one(partition: int) -> Coroutine[Any, Any, Done]:
            return self._at_owner(asked, partition, Endpoint.DROP_CURSOR, body, here, Done)

        await together({p: drop_one(p) for p in partitions_of(asked.topic)})

    async def open_cursor(
        self, log: PartitionLog, topic: TopicInfo, subscription: RegisteredSubscription
    ) -> None:
        """Open the cursor in this log if it is not there yet. It is durable on return, also where
        another request has just opened it: the next owner has to find it."""
        self._have_dead_letters(log, topic)
        await log.subscriptions.begin(subscription)

    def _have_dead_letters(self, log: PartitionLog, topic: TopicInfo) -> None:
        subscriptions = log.subscriptions
        if subscriptions.dead_letters is None:
            subscriptions.dead_letters = self._dead_letters(topic)

    async def _check_is_there(self, asked: Asked) -> None:
        """Check that the subscription still exists: the cached one may outlive its cursor."""
        info = asked.subscription.info
        found = await self._broker.subscriptions.get(asked.topic.topic_id, info.name)
        if found.info.subscription_id != info.subscription_id:
            raise FencelogError(
                ErrorCode.SUBSCRIPTION_NOT_FOUND, f"subscription {info.name} was deleted"
            )

    async def _at_owner(
        self,
        asked: Asked,
        partition: int,
        endpoint: Endpoint,
        body: bytes,
        local: Callable[[PartitionLog], Awaitable[S]],
        answer: type[S],
    ) -> S:
        is_view = endpoint in _VIEWS
        lost = ErrorCode.READ_UNKNOWN if is_view else ErrorCode.STATE_UNKNOWN

        async def remote(url: str) -> S:
            query = b"partition=%d" % partition
            ask = partial(self._forwarder.ask, url=url, query=query, body=body, lost=lost)
            if is_view:
                content = await ask("GET", path=f"{asked.path}/{endpoint.value}")
            else:
                content = await ask("POST", path=f"{asked.path}:{endpoint.value}")
            return decode_answer(content, answer, url)

        try:
            return await self._ownership.at_owner(
                asked.exchange, asked.topic.name, partition, local, remote
            )
        except FencelogError as error:
            if error.code in (ErrorCode.APPEND_UNKNOWN, ErrorCode.REQUEST_TIMEOUT):
                raise FencelogError(lost, error.detail) from error  # the owner is gone
            raise


def partitions_of(topic: TopicInfo) -> range:
    return range(topic.config.partitions)


def decode_answer(content: bytes, type_: type[S], url: str) -> S:
    """Decode another broker's answer. Raises FencelogError(INTERNAL): the other broker answered in
    another form."""
    try:
        return msgspec.json.decode(content, type=type_)
    except msgspec.MsgspecError as error:
        raise FencelogError(
            ErrorCode.INTERNAL, f"the broker at {url} answered something else: {error}"
        ) from error


async def together(
    parts: Mapping[int, Coroutine[Any, Any, T]],
) -> tuple[dict[int, T], dict[int, FencelogError]]:
    """Return the result of each partition, and the errors of the others. Other exceptions are
    raised."""
    results = await asyncio.gather(*parts.values(), return_exceptions=True)
    done: dict[int, T] = {}
    errors: dict[int, FencelogError] = {}
    for partition, result in zip(parts, results, strict=True):
        if isinstance(result, FencelogError):
            errors[partition] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            done[partition] = result
    return done, errors


def all_or_problem(
    done: Mapping[int, object],
    errors: Mapping[int, FencelogError],
    instance: str,
    code: ErrorCode = ErrorCode.STATE_UNKNOWN,
    **outcome: Any,
) -> None:
    """Check that no partition failed. Raises its own error if nothing was done anywhere, else
    ``code`` with a problem for each in ``failed`` and what was done in ``outcome``."""
    if not errors:
        return
    first = next(iter(errors.values()))
    if not done and (len(errors) == 1 or all(_is_harmless(error) for error in errors.values())):
        raise first
    raise FencelogError(
        code,
        f"{len(done)} of {len(done) + len(errors)} partitions have done it: {first.detail}",
        failed=[{"partition": p, **problem(error, instance)} for p, error in errors.items()],
        **outcome,
    )


def _is_harmless(error: FencelogError) -> bool:
    return error.code.effects is Effects.NONE
