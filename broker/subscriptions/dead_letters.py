"""Messages that failed too often: forwarded to the dead letter topic, and only then
acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fencelog.broker.dispatch.base import Dispatch
from fencelog.broker.metrics import BrokerCounts
from fencelog.broker.read.stored import ONE_MESSAGE
from fencelog.broker.subscriptions.ack_id import ack_id_maker
from fencelog.broker.subscriptions.answers import DeadLetters, PulledMessage
from fencelog.broker.subscriptions.batch import OpenedBatch
from fencelog.broker.subscriptions.state import SubscriptionState
from fencelog.ledgers.errors import ErrorCode, FencelogError

AT_ONCE = 16
"""The messages of a subscription in flight to the dead letter topic: hides a round trip, and leaves
capacity for others."""

RETRY_S = 5.0
"""The pause after a message that could not be forwarded."""

log = logging.getLogger(__name__)


class DeadLetterForwarder:
    """The forwarder of one subscription's dead letters, which runs until none is left."""

    def __init__(
        self,
        subscription: SubscriptionState,
        letters: Callable[[], DeadLetters | None],
        *,
        partition: int,
        epoch: int,
        metrics: BrokerCounts,
    ) -> None:
        self._metrics = metrics
        self._subscription = subscription
        self._letters = letters
        self._partition = partition
        self._make_ack_id = ack_id_maker(
            subscription.id,
            partition=partition,
            epoch=epoch,
            generation=subscription.cursor.generation,
            delivery=0,
        )

    async def run(self) -> None:
        """Forward until all are forwarded, until a seek, or until the log is closed. Messages that
        fail are retried in turn with the others."""
        subscription, dispatch = self._subscription, self._subscription.dispatch
        last = -1
        while dispatch.dead_letters and self._is_current(dispatch):
            waiting = sorted(dispatch.dead_letters)
            some = [offset for offset in waiting if offset > last][:AT_ONCE] or waiting[:AT_ONCE]
            last = some[-1]
            errors = await asyncio.gather(*(self._forward(offset) for offset in some))
            done = [(o, o + 1) for o, error in zip(some, errors, strict=True) if error is None]
            if done and self._is_current(dispatch):
                subscription.skip(done)
                subscription.acked(done)
            failed = [error for error in errors if error is not None]
            subscription.forward_error = failed[0] if failed else None
            if failed:
                log.warning(
                    "%s: %d messages of partition %d cannot be forwarded yet: %s",
                    subscription.info.name,
                    len(dispatch.dead_letters),
                    self._partition,
                    failed[0],
                )
                await asyncio.sleep(RETRY_S)

    def _is_current(self, dispatch: Dispatch) -> bool:
        subscription = self._subscription
        return subscription.dispatch is dispatch and subscription.reader.closed is None

    async def _forward(self, offset: int) -> FencelogError | None:
        """Forward a message; return the reason why it is not in the dead letter topic yet, None if
        it is there, or is trimmed."""
        subscription = self._subscription
        try:
            letters = self._letters()
            if letters is None:
                raise FencelogError(ErrorCode.NO_OWNER, "no forwarder takes dead letters here")
            read = await subscription.reader.read(offset, ONE_MESSAGE)
            (stored,) = read.entries
            (message,) = OpenedBatch(stored).messages(offset, offset + 1)
            attempts = subscription.cursor.failures.get(offset, 0)
            dead = PulledMessage(
                offset, stored.publish_time_us, message, self._make_ack_id(offset), attempts
            )
            await letters.forward(subscription.info, self._partition, dead)
            self._metrics.dead_lettered_messages += 1
        except FencelogError as error:
            return None if error.code is ErrorCode.OFFSET_TRIMMED else error
        except Exception as error:  # a bug; the others are forwarded, and this one is tried again
            log.exception("message %d of partition %d", offset, self._partition)
            return FencelogError(ErrorCode.INTERNAL, repr(error))
        return None
