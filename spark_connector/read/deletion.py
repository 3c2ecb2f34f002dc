"""The check of a planned partition that a broker denies: whether it is gone, or not known yet."""

from __future__ import annotations

from typing import Any, Protocol

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.segments import DELETED


class TopicSource(Protocol):
    """The part of ``FencelogClient`` that this needs."""

    async def topic(self, topic: str, /, *, confirmed: bool = False) -> dict[str, Any]: ...


async def check_deleted(
    client: TopicSource, topic: str, topic_id: str, error: FencelogError
) -> None:
    """Check that a topic is gone where ``error``, the answer for one of its partitions, says so, or
    that there is no such partition.

    A topic never gets fewer partitions. So while it is there, the broker that was asked reads from
    a server of the metadata store that lags behind: READ_UNKNOWN. Also raises the errors of the
    request, TOPIC_NOT_FOUND among them.
    """
    if error.code not in DELETED:
        return
    if (await client.topic(topic, confirmed=True))["topic_id"] == topic_id:
        raise FencelogError(
            ErrorCode.READ_UNKNOWN, f"{error.detail}: it is not known everywhere yet"
        ) from error
