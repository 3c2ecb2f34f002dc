"""The place that a task writes to: its topic's partitions, and the batch of its query."""

from __future__ import annotations

from collections.abc import Awaitable
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
    Raises FencelogError, as ``_check_not_begun``."""
    await _check_not_begun(_spreads(client, target, job), job, ExactlyOnce.DEDUP)
    last = await retry_not_applied(_commits(client, target, job).last)
    if last is not None and last["batch"] == job.batch and last["partitions"]:
        return int(last["partitions"])
    return target.partitions


async def spread_of_batch(client: FencelogClient, target: WriteTarget, job: Job) -> int:
    """Return the number of partitions that the batch is spread over with ``dedup``, which its first
    attempt has stored in partition 0; store the one that the driver found, if this is the first.

    It is stored as a commit without ledgers, by a name of its own: the batch is not committed.
    Raises FencelogError: PRODUCER_FENCED if a later batch has begun; as ``_check_not_begun``.
    """
    spreads = _spreads(client, target, job)
    found = await retry_not_applied(spreads.last)
    if found is None or found["batch"] < job.batch:
        await _check_not_begun(_commits(client, target, job), job, ExactlyOnce.SEGMENTS)
        found = await retry_idempotent(
            lambda: spreads.commit(job.batch, [], partitions=target.partitions)
        )
    if found["batch"] > job.batch:
        raise _too_late(job, found["batch"])
    return int(found["partitions"])


async def _check_not_begun(commits: PartitionCommits, job: Job, other: ExactlyOnce) -> None:
    """Check that no attempt of the batch, or of a later one, has begun to write in another mode,
    whose rows this one would not recognise. Raises FencelogError: SEQUENCE_REUSED,
    PRODUCER_FENCED."""
    last: dict[str, Any] | None = await retry_not_applied(commits.last)
    if last is None or last["batch"] < job.batch:
        return
    if last["batch"] > job.batch:
        raise _too_late(job, last["batch"])
    raise FencelogError(
        ErrorCode.SEQUENCE_REUSED,
        f"an earlier attempt has begun to write batch {job.batch} with exactlyOnce={other.value}: "
        "complete it with that before the query goes on with another one",
    )


def _commits(client: FencelogClient, target: WriteTarget, job: Job) -> PartitionCommits:
    """Return the commits of the query to partition 0, which each batch of ``segments`` comes to
    first."""
    return PartitionCommits(client, target.options.topic, 0, job.name)


def _spreads(client: FencelogClient, target: WriteTarget, job: Job) -> PartitionCommits:
    """Return the commits that store how each batch of ``dedup`` is spread."""
    return PartitionCommits(client, target.options.topic, 0, f"{job.name}-spread")


def _too_late(job: Job, begun: int) -> FencelogError:
    return FencelogError(
        ErrorCode.PRODUCER_FENCED,
        f"batch {begun} has begun: a task of batch {job.batch} comes too late",
    )


def unkeyed_partition(job: Job, partitions: int) -> int:
    """Return the partition of all rows of a batch without a key: the same in every attempt."""
    return crc32c(f"{job.name}/{job.batch}".encode()) % partitions


def located(error: FencelogError, options: WriteOptions) -> FencelogError:
    """Return the same error, naming the topic and the service: Spark shows nothing but its text."""
    code: ErrorCode = error.code
    where = f"writing topic {options.topic} at {','.join(options.servers)}"
    return FencelogError(code, f"{where}: {error.detail}", **error.extra)
