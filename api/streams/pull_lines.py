"""The output of a subscription's messages to a byte stream: each is acknowledged after it was
written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from fencelog.api.client import FencelogClient
from fencelog.api.client.pulls import Pulls
from fencelog.api.client.retry import RETRY_S, retry_idempotent
from fencelog.api.client.subscription import LeasedMessage
from fencelog.api.http.json_render import ValueForm, encode_objects, message_object
from fencelog.broker.registry.subscription_config import ORDERED
from fencelog.ledgers.record_batch import Message

FOLLOW_WAIT_S = 30
"""The time of one long poll; proxies cut idle requests after about a minute."""

AT_ONCE = 1000
"""The messages of one pull."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """The options of ``fencelog subscription pull``: see its help."""

    topic: str
    subscription: str
    server: str
    acknowledge: bool = False
    follow: bool = False
    limit: int | None = None
    consumer: str = ""
    lease_ms: int | None = None
    as_json: bool = False


async def pull_lines(options: PullOptions, out: BinaryIO) -> None:
    """Write messages, each as one line, until there is none (or for ever, to follow) or the limit.

    Raises FencelogError, and BrokenPipeError when ``out`` is closed by its reader: messages that
    were not written are not acknowledged.
    """
    left = options.limit
    async with FencelogClient(options.server) as client:
        # Pulls are repeated through outages; that there is a service has to be said at once.
        settings = await client.subscription(options.topic, options.subscription)
        pulls = Pulls(client, options.topic, options.subscription, options.consumer)
        # Without acknowledgements all that was written would come again.
        pulls.is_in_order = options.acknowledge and settings["type"] in ORDERED
        pulls.lease_ms = options.lease_ms or int(settings["lease_ms"])
        while left is None or left > 0:
            messages = await retry_idempotent(
                partial(
                    pulls.pull,
                    _all_is_acknowledged,
                    max_messages=AT_ONCE if left is None else min(left, AT_ONCE),
                    wait_s=FOLLOW_WAIT_S if options.follow else 0,
                    lease_ms=options.lease_ms,
                ),
                timeout_s=None if options.follow else RETRY_S,
                passes=True,
            )
            if not messages:
                if options.follow:
                    continue
                return
            lines = _json(messages) if options.as_json else [m.value for m in messages]
            out.write(b"\n".join(lines) + b"\n")
            out.flush()
            if options.acknowledge:
                ids = [message.ack_id for message in messages]
                await retry_idempotent(
                    partial(client.ack, options.topic, options.subscription, ids)
                )
            if left is not None:
                left -= len(messages)


async def _all_is_acknowledged() -> None:
    """Do nothing: messages are acknowledged before the next pull."""


def _json(messages: Sequence[LeasedMessage]) -> list[bytes]:
    """Return one message object for each line, as the service shows them."""
    objects = []
    for leased in messages:
        message = Message(leased.value, leased.key, leased.event_time_us, leased.headers)
        shown = message_object(
            leased.partition, leased.offset, leased.publish_time_us, message, ValueForm.TEXT
        )
        objects.append(shown | {"ack_id": leased.ack_id, "attempt": leased.attempt})
    return encode_objects(objects)
