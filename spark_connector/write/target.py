"""The place that a task writes to: its topic's partitions, and the batch of its query."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from fencelog.api.client import FencelogClient
from fencelog.api.client.commits import PartitionCommits
from fencelog.api.client.retry import retry_idempotent, retry_not_applied
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.spark_connector.planning.first_contact import servers_that_answer
from fencelog.spark_connector.write.options import ExactlyOnce, WriteOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """The write that a task is a part of. ``name`` stays the same when the batch is written again;
    ``batch`` is its number, 0 for a write that is no stream."""

    name: str
    batch: int = 0


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The topic as the driver found it. Tasks spread their rows over so many ``partitions``, also
    while the topic gets more of them."""

    options: WriteOptions
    partitions: int


async def reached(options: WriteOptions) -> WriteTarget:
    """Find a server that answers, and the topic's partitions. Raises NO_OWNER within seconds,
    TOPIC_NOT_FOUND."""
    try:
        options = replace(options, servers=await servers_that_answer(options.servers))
        async with FencelogClient(options.servers) as client:
            ask = partial(client.topic, options.topic, confirmed=True)
            topic = await retry_idempotent(ask)
        return WriteTarget(options, int(topic["partitions"]))
    except FencelogError as error:
        raise located(error, options) from error


async def of_partition(request: Awaitable[T]) -> T:
    """Return the answer to a request for a partition that the driver has found. Raises what it
    raises; NO_OWNER, which may be repeated, where the asked broker does not know the partition yet:
    a topic never gets fewer of them."""
    try:
        return await request
    except FencelogError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        what = f"{error.detail}: it is not known everywhere yet"
        raise FencelogError(ErrorCode.NO_OWNER, what) from error


async def partitions_of_batch(client: FencelogClient, target: WriteTarget, job: Job) -> int:
    """Return the number of partitions that the batch is spread over with ``segments``: that of an
    earlier attempt, which may have committed to some of them, else the one that the driver found.
    Raises FencelogError, as ``check_attempt``."""
    last = await retry_not_applied(_commits(client, target, job).last)
    if last is None or last["batch"] < job.batch:
        return target.partitions
    check_attempt(last, job, ExactlyOnce.SEGMENTS)
    return int(last["partitions"]) or target.partitions


async def spread_of_batch(client: FencelogClient, target: WriteTarget, job: Job) -> int:
    """Return the number of partitions that the batch is spread over with ``dedup``, which its first
    attempt has stored in partition 0; store the one that the driver found, if this is the first.

    It is stored as the query's commit of the batch, without ledgers: a commit of an attempt with
    ``segments`` that is still on its way finds it, and adds none. Raises FencelogError, as
    ``check_attempt``.
    """
    commits = _commits(client, target, job)
    last = await retry_not_applied(commits.last)
    if last is None or last["batch"] < job.batch:
        last = await retry_idempotent(
            lambda: commits.commit(job.batch, [], partitions=target.partitions, by_appends=True)
        )
    check_attempt(last, job, ExactlyOnce.DEDUP)
    return int(last["partitions"])


def check_attempt(last: Mapping[str, Any], job: Job, mode: ExactlyOnce) -> None:
    """Check that the batch may be written in this mode where ``last``, a commit of it or of a later
    batch, is the last of the query. Raises FencelogError: PRODUCER_FENCED if it is a later batch,
    SEQUENCE_REUSED if an attempt has begun in another mode, whose rows this one would not
    recognise."""
    if last["batch"] > job.batch:
        raise FencelogError(
            ErrorCode.PRODUCER_FENCED,
            f"batch {last['batch']} of the query is in the topic, or has begun: batch {job.batch} "
            "comes too late. Its checkpoint is older than the topic, which may have other rows "
            "under this number, so none are written. Give the query a new checkpoint, from where "
            "the topic ends on",
        )
    begun = ExactlyOnce.DEDUP if last["by_appends"] else ExactlyOnce.SEGMENTS
    if begun is not mode:
        raise FencelogError(
            ErrorCode.SEQUENCE_REUSED,
            f"an earlier attempt has begun to write batch {job.batch} with "
            f"exactlyOnce={begun.value}: complete it with that before the query goes on with "
            "another one",
        )


def _commits(client: FencelogClient, target: WriteTarget, job: Job) -> PartitionCommits:
    """Return the commits of the query to partition 0, which each batch comes to first."""
    return PartitionCommits(client, target.options.topic, 0, job.name)


def unkeyed_partition(job: Job, partitions: int) -> int:
    """Return the partition of all rows of a batch without a key: the same in every attempt."""
    return crc32c(f"{job.name}/{job.batch}".encode()) % partitions


def located(error: FencelogError, options: WriteOptions) -> FencelogError:
    """Return the same error, naming the topic and the service: Spark shows nothing but its text."""
    code: ErrorCode = error.code
    where = f"writing topic {options.topic} at {','.join(options.servers)}"
    return FencelogError(code, f"{where}: {error.detail}", **error.extra)
