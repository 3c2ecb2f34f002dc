"""The compaction on request, from a client's side: the request, and the wait until it is done."""

from __future__ import annotations

from typing import Any

import anyio

from fencelog.api.client import FencelogClient
from fencelog.ledgers.errors import ErrorCode, FencelogError

LOOK_S = 0.2
"""The pause between two queries of the state."""


async def compact_now(
    client: FencelogClient, topic: str, partition: int | None
) -> list[dict[str, Any]]:
    """Compact one partition or all, and return their states when all have ended.

    Raises FencelogError: INTERNAL with the reason if one has failed; it is tried again later where
    the policy says that the topic is compacted.
    """
    partitions = range((await client.topic(topic))["partitions"])
    if partition is not None:
        partitions = range(partition, partition + 1)
    for number in partitions:
        await client.compact(topic, number)
    states = []
    for number in partitions:
        state = await client.compaction(topic, number)
        while state["state"] in ("waiting", "running"):
            await anyio.sleep(LOOK_S)
            state = await client.compaction(topic, number)
        if state["state"] == "failed":
            raise FencelogError(
                ErrorCode.INTERNAL, f"partition {number} of {topic}: {state['error']}"
            )
        states.append(state)
    return states
