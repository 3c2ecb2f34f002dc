"""The gathering of observations: everything at once, each with a time-out of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from fencelog.api.admin.doctor.limits import (
    ANSWER_MS,
    ASKED_AT_ONCE,
    METADATA_MS,
    SCAN_MS,
)
from fencelog.api.admin.doctor.observations import (
    BookieState,
    BrokerState,
    ClockOffset,
    HealingState,
    Leftovers,
    Membership,
    NotAnswered,
    Observations,
    TopicReplication,
    UnownedPartition,
)
from fencelog.bookie.auditor.registered import read_bookies
from fencelog.bookie.identity.cookie_registry import COOKIES_PATH
from fencelog.bookie.identity.cookies import Cookie, decode_cookie
from fencelog.broker.background.sweep import Sweep
from fencelog.broker.ledger_list.codec import decode_ledger_list
from fencelog.broker.ledger_list.store import ledger_list_path
from fencelog.broker.partition.ownership import OWNERS_PATH
from fencelog.broker.partition.stats.troubles import Troubles
from fencelog.broker.registry.topics import TopicInfo, TopicRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.instance import read_instance
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.registration import BROKERS_PATH
from fencelog.ledgers.metastore.watch import names_or_empty, value_or_none
from fencelog.ledgers.metastore.zookeeper_tls import Certificate
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

T = TypeVar("T")
S = TypeVar("S")
Json = dict[str, Any]

_LISTED_MARKS = 1000
_US_PER_MS = 1000


class HealingAdmin(Protocol):
    """Self-healing as ``AutorecoveryAdmin`` shows it."""

    async def status(self) -> Json: ...

    async def checks(self) -> Json: ...

    async def underreplicated(self, *, start_after: int = -1, limit: int = ...) -> Json: ...

    async def decommissions(self) -> Json: ...


@dataclass(frozen=True, slots=True)
class ClusterUnderObservation:
    """The accesses to a cluster. ``ask_broker(id, url)``: what ``GET /v1/brokers/ID/troubles``
    answers; raises FencelogError."""

    store: MetadataStore
    bookies: BookieDirectory
    healing: HealingAdmin
    topics: TopicRegistry
    sweep: Sweep
    host: Host
    ask_broker: Callable[[str, str], Awaitable[Json]]


async def read_topics(
    cluster: ClusterUnderObservation, known: Sequence[TopicInfo]
) -> list[TopicInfo] | NotAnswered:
    """Return all topics, those that are ``known`` as they are known; others are read."""

    async def read() -> list[TopicInfo]:
        names = set(await cluster.topics.names())
        kept = [info for info in known if info.name in names]
        fresh = sorted(names - {info.name for info in kept}, key=str)
        return [*kept, *await cluster.topics.get_all(fresh)]

    return await _within(SCAN_MS, read)


async def observe(
    cluster: ClusterUnderObservation,
    topics: Sequence[TopicInfo] | NotAnswered,
    *,
    scan: bool,
) -> Observations:
    """Ask everything at once. ``scan``: look at every ledger and partition, too."""
    turns = asyncio.Semaphore(ASKED_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        membership = group.create_task(_within(METADATA_MS, partial(_membership, cluster.store)))
        brokers = group.create_task(_brokers(cluster, turns))
        healing = group.create_task(_within(METADATA_MS, partial(_healing, cluster.healing)))
        leftovers = group.create_task(_scan(cluster, topics) if scan else _nothing())
        members = await membership
        registered = {} if isinstance(members, NotAnswered) else members.registered
        asked = {
            bookie_id: group.create_task(_bookie(cluster, turns, bookie_id))
            for bookie_id, info in registered.items()
            if info is not None
        }
    return Observations(
        cluster.host.now_us(),
        members,
        healing.result(),
        topics if isinstance(topics, NotAnswered) else [_replication(info) for info in topics],
        brokers.result(),
        {bookie_id: task.result() for bookie_id, task in asked.items()},
        leftovers.result(),
    )


async def _nothing() -> None:
    return


async def _within(timeout_ms: int, work: Callable[[], Awaitable[T]]) -> T | NotAnswered:
    """Return the result of ``work``, or why there is none in time. It begins here: nothing is left
    of it where nobody waits any more."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await work()
    except TimeoutError:
        return NotAnswered(f"no answer within {timeout_ms / 1000:g} s")
    except FencelogError as error:
        return NotAnswered(error.detail)


async def _clocked(host: Host, request: Awaitable[Json]) -> tuple[Json, ClockOffset]:
    """Return an answer with the ``now_us`` of the process that gives it, and its clock's offset:
    the process has looked at it some time between the request and the answer."""
    before_us = host.now_us()
    answer = await request
    after_us = host.now_us()
    half_us = max(0, after_us - before_us) // 2
    return answer, ClockOffset(int(answer["now_us"]) - before_us - half_us, half_us)


def _understood(answer: Any, type_: type[T]) -> T:
    """Return a part of an answer as what it is. Raises FencelogError(CORRUPT)."""
    try:
        return msgspec.convert(answer, type_)
    except msgspec.ValidationError as error:
        raise FencelogError(ErrorCode.CORRUPT, f"not understood: {error}") from error


# -- processes ------------------------------------------------------------------------------------


async def _bookie(
    cluster: ClusterUnderObservation, turns: asyncio.Semaphore, bookie_id: str
) -> BookieState | NotAnswered:
    async def ask() -> BookieState:
        request = cluster.bookies.client(bookie_id).admin({"do": "status"})
        status, clock = await _clocked(cluster.host, request)
        shown = status.get("metadata", {}).get("certificates", [])
        return BookieState(clock, status, _understood(shown, list[Certificate]))

    async with turns:
        return await _within(ANSWER_MS, ask)


async def _brokers(
    cluster: ClusterUnderObservation, turns: asyncio.Semaphore
) -> Mapping[str, BrokerState | NotAnswered] | NotAnswered:
    """Ask every broker that is registered."""
    urls = await _within(METADATA_MS, partial(_urls, cluster.store))
    if isinstance(urls, NotAnswered):
        return urls

    async def ask(broker_id: str, url: str) -> BrokerState:
        answer, clock = await _clocked(cluster.host, cluster.ask_broker(broker_id, url))
        troubles = _understood(answer["troubles"], Troubles)
        certificates = _understood(answer.get("certificates", []), list[Certificate])
        return BrokerState(clock, bool(answer["draining"]), troubles, certificates)

    async def ask_in_turn(broker_id: str, url: str) -> BrokerState | NotAnswered:
        async with turns:
            return await _within(ANSWER_MS, partial(ask, broker_id, url))

    async with asyncio.TaskGroup() as group:
        asked = {
            broker_id: group.create_task(ask_in_turn(broker_id, url))
            for broker_id, url in urls.items()
        }
    return {broker_id: task.result() for broker_id, task in asked.items()}


async def _urls(store: MetadataStore) -> dict[str, str]:
    """Return the URL of every registered broker."""
    found = {}
    for name in await names_or_empty(store.children(BROKERS_PATH)):
        node = await value_or_none(store.get(f"{BROKERS_PATH}/{name}"))
        if node is not None:
            found[name] = str(json.loads(node.value)["url"])
    return found


# -- metadata -------------------------------------------------------------------------------------


async def _membership(store: MetadataStore) -> Membership:
    known = await read_bookies(store)
    cookies: dict[str, Cookie | None] = {}
    for bookie_id in sorted(known.with_cookie):
        path = f"{COOKIES_PATH}/{bookie_id}"
        node = await value_or_none(store.get(path))
        if node is not None:
            try:
                cookies[bookie_id] = decode_cookie(path, node.value)
            except FencelogError:
                cookies[bookie_id] = None
    return Membership(await read_instance(store), cookies, known.registered)


async def _healing(healing: HealingAdmin) -> HealingState:
    status, checks = await healing.status(), await healing.checks()
    marks = await healing.underreplicated(limit=_LISTED_MARKS)
    leaving = await healing.decommissions()
    return HealingState(status, checks, marks["ledgers"], marks["total"], leaving["decommissions"])


def _replication(info: TopicInfo) -> TopicReplication:
    policy = info.policy
    return TopicReplication(
        str(info.name),
        policy.ensemble_size,
        policy.write_quorum,
        policy.ack_quorum,
        info.created_us,
    )


# -- every ledger ---------------------------------------------------------------------------------


async def _scan(
    cluster: ClusterUnderObservation, topics: Sequence[TopicInfo] | NotAnswered
) -> Leftovers | NotAnswered:
    async def scan() -> Leftovers:
        swept = await cluster.sweep.find()
        if isinstance(topics, NotAnswered):
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, topics.why)
        unsealed = [each async for each in _unsealed(cluster.store, topics)]
        return Leftovers(swept.ledgers, swept.topics, unsealed)

    return await _within(SCAN_MS, scan)


async def _unsealed(
    store: MetadataStore, topics: Iterable[TopicInfo]
) -> AsyncIterator[UnownedPartition]:
    """Yield the partitions that have a ledger to be recovered, and no owner."""
    places = [(info, p) for info in topics for p in range(info.config.partitions)]
    for first in range(0, len(places), ASKED_AT_ONCE):
        batch = places[first : first + ASKED_AT_ONCE]
        found = await asyncio.gather(*(_unowned(store, info, p) for info, p in batch))
        for each in found:
            if each is not None:
                yield each


async def _unowned(
    store: MetadataStore, info: TopicInfo, partition: int
) -> UnownedPartition | None:
    node = await value_or_none(store.get(ledger_list_path(info.topic_id, partition)))
    if node is None:
        return None
    unsealed = [s for s in decode_ledger_list(node.value).segments if s.sealed is None]
    if not unsealed:
        return None
    owner = await value_or_none(store.get(f"{OWNERS_PATH}/{info.topic_id}-{partition}"))
    if owner is not None:
        return None
    ids = tuple(segment.ledger_id for segment in unsealed)
    since_us = min(segment.created_us for segment in unsealed)
    return UnownedPartition(str(info.name), partition, ids, since_us)
