"""The replay: dead letters go back to the partition they came from, for their subscription alone.

The progress of a replay is a subscription of the dead letter topic, ``replay-ID``, created at the
first replay: so a replay may be broken off and repeated, from any broker, and a dead letter is
replayed once (twice, if a broker fails between the append and its acknowledgement, later than the
topic's idempotency window).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from fencelog.api.http.asgi import Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.json_messages import AnyMessage, columns_of
from fencelog.api.http.json_render import ValueForm
from fencelog.api.http.targets import Target
from fencelog.api.subscriptions.dead_letters import (
    ORIGIN_PARTITION,
    ORIGIN_SUBSCRIPTION,
    ORIGIN_TOPIC,
    Appending,
    dead_letter_topic,
    replay_name,
    replayed,
)
from fencelog.api.subscriptions.lifecycle import SubscriptionLifecycle
from fencelog.api.subscriptions.owners import Asked, partitions_of
from fencelog.api.subscriptions.parts import find
from fencelog.api.subscriptions.pull import PullService
from fencelog.api.subscriptions.requests import (
    NackRequest,
    PullRequest,
    Replayed,
    ReplayRequest,
    read_body,
)
from fencelog.api.subscriptions.verbs import SubscriptionVerbs, respond
from fencelog.broker.limits import MAX_PARTITIONS
from fencelog.broker.registry.subscription_config import SubscriptionConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_ADMIN_BYTES
from fencelog.ledgers.record_batch import Message

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

AT_ONCE = 100
"""The dead letters in flight at a time."""

_MAX_DIGITS = len(str(MAX_PARTITIONS))
"""The length of a partition's number in a letter, which may be anybody's: Python refuses to read
numbers of thousands of digits."""


class _Letter(AnyMessage, forbid_unknown_fields=False, gc=False, kw_only=True):
    """A pulled message, in its JSON form."""

    partition: int
    offset: int
    ack_id: str


class DeadLetterReplay:
    """Sends dead letters back to their partitions."""

    def __init__(
        self,
        broker: Broker,
        lifecycle: SubscriptionLifecycle,
        pull: PullService,
        verbs: SubscriptionVerbs,
        appending: Appending,
        bodies: BodyReader,
    ) -> None:
        self._broker = broker
        self._lifecycle = lifecycle
        self._pull = pull
        self._verbs = verbs
        self._appending = appending
        self._bodies = bodies

    async def post(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"replayed"}``: so many dead letters are back, durably."""
        body = await self._bodies.read(exchange, MAX_ADMIN_BYTES)
        request = read_body(exchange, body, ReplayRequest)
        asked = await find(self._broker, exchange, target)
        await respond(exchange, Replayed(await self.run(asked, request.limit)))

    async def run(self, asked: Asked, limit: int) -> int:
        """Replay at most ``limit`` of the waiting dead letters, and return their number.

        Raises FencelogError, with ``replayed``: so many are back all the same. Dead letters that
        could not be replayed, because another producer holds the partition for example, are
        available again at once.
        """
        name = dead_letter_topic(asked.topic.name, asked.subscription.info)
        try:
            topic = await self._broker.topic(name)
        except FencelogError as error:
            if error.code is ErrorCode.TOPIC_NOT_FOUND:
                return 0  # nothing has ever failed
            raise
        registered, _ = await self._lifecycle.create(
            topic, replay_name(asked.subscription.info.subscription_id), _CONFIG, "earliest"
        )
        letters = Asked(topic, registered)
        count = 0
        try:
            while count < limit:
                request = PullRequest(max=min(AT_ONCE, limit - count), value_form=ValueForm.BASE64)
                raws = await self._pull.pull(letters, partitions_of(topic), request)
                if not raws:
                    break
                sent, why = await self._send_back(asked, letters, raws)
                count += sent
                if why is not None:
                    raise why
        except FencelogError as error:
            raise FencelogError(
                error.code, error.detail, **error.extra | {"replayed": count}
            ) from error
        return count

    async def _send_back(
        self, asked: Asked, letters: Asked, raws: list[Raw]
    ) -> tuple[int, FencelogError | None]:
        """Append the messages of this subscription, acknowledge all that need no more work, and
        give the rest back. Return how many were appended, and the error that kept the others back
        or left their progress unrecorded."""
        done: list[str] = []
        sent: dict[str, asyncio.Task[FencelogError | None]] = {}
        async with asyncio.TaskGroup() as group:
            for letter in (msgspec.json.decode(raw, type=_Letter) for raw in raws):
                message = _message_of(letter)
                partition = _origin(message, asked)
                if partition is None:
                    done.append(letter.ack_id)
                else:
                    sent[letter.ack_id] = group.create_task(
                        self._append(asked, letters, letter, message, partition)
                    )
        outcomes = {ack_id: task.result() for ack_id, task in sent.items()}
        done += [ack_id for ack_id, error in outcomes.items() if error is None]
        left = [ack_id for ack_id, error in outcomes.items() if error is not None]
        why = next((error for error in outcomes.values() if error is not None), None)
        try:
            if done:
                await self._verbs.ack_ids(letters, done)
            if left:
                await self._verbs.nack_ids(letters, NackRequest(left, 0))
        except FencelogError as error:
            why = why or error
        return len(sent) - len(left), why

    async def _append(
        self, asked: Asked, letters: Asked, letter: _Letter, message: Message, partition: int
    ) -> FencelogError | None:
        key = f"replay/{letters.topic.topic_id}/{letter.partition}/{letter.offset}"
        back = replayed(message, asked.subscription.info.name)
        try:
            await self._appending.append(asked.topic.name, partition, back, key)
        except FencelogError as error:
            return error
        return None


_CONFIG = SubscriptionConfig(lease_ms=60_000)


def _message_of(letter: _Letter) -> Message:
    columns = columns_of([letter])
    return Message(
        columns.values[0],
        columns.keys[0] if columns.keys else None,
        columns.event_times[0] if columns.event_times else None,
        columns.headers[0] if columns.headers else (),
    )


def _origin(message: Message, asked: Asked) -> int | None:
    """Return the partition that the dead letter came from, or None if it is none of this
    subscription's."""
    headers = dict(message.headers)
    wanted = (str(asked.topic.name).encode(), asked.subscription.info.name.encode())
    if (headers.get(ORIGIN_TOPIC), headers.get(ORIGIN_SUBSCRIPTION)) != wanted:
        return None
    partition = headers.get(ORIGIN_PARTITION, b"")
    if len(partition) > _MAX_DIGITS or not partition.isdigit():
        return None
    if int(partition) not in partitions_of(asked.topic):
        return None
    return int(partition)
