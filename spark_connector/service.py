"""The request to the service, once per query, for the segments of a topic. Runs on Spark's
driver."""

from __future__ import annotations

from fencelog.api.client import FencelogClient
from fencelog.api.client.tasks import map_concurrently
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.options import ReadOptions
from fencelog.spark_connector.segments import PartitionSegments, parse_segments

MAX_CONCURRENT_REQUESTS = 16
"""The partitions asked at the same time, without a connection for each of a thousand."""


async def fetch_segments(options: ReadOptions) -> list[PartitionSegments]:
    """Return the segments of every partition of the topic, in order of partition.

    Raises FencelogError: TOPIC_NOT_FOUND, NO_OWNER (also when no server can be reached), ….
    """
    async with FencelogClient(options.servers) as client:

        async def ask(partition: int) -> PartitionSegments:
            return parse_segments(await client.segments(options.topic, partition))

        try:
            topic = await client.topic(options.topic)
            partitions = range(int(topic["partitions"]))
            return await map_concurrently(ask, partitions, limit=MAX_CONCURRENT_REQUESTS)
        except FencelogError as error:
            raise _located(error, options) from error


def _located(error: FencelogError, options: ReadOptions) -> FencelogError:
    """Return the same error, naming the topic and the service: Spark shows nothing but its text."""
    code: ErrorCode = error.code
    where = f"reading topic {options.topic} from {','.join(options.servers)}"
    return FencelogError(code, f"{where}: {error.detail}", **error.extra)
