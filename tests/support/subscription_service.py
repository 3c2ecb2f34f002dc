"""The brokers with real partition logs behind HTTP servers, over ledgers and metadata in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from fencelog.api.server.app import build_app
from fencelog.api.server.serve import HttpServer, bind
from fencelog.broker.broker import Broker
from fencelog.broker.config import BrokerConfig
from fencelog.broker.names import TopicName
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.record_batch import Message
from fencelog.ledgers.rpc.absent_bookie import AbsentBookie
from fencelog.ledgers.rpc.bookie_port import BookieClient, BookieInfo
from tests.support.network.http_client import http_client
from tests.support.scripted_ledgers import ScriptedLedgers


class NamedBookies:
    """Bookies that are registered, and no more."""

    def available(self) -> list[str]:
        return ["b1", "b2", "b3"]

    def read_only(self) -> list[str]:
        return []

    def describe(self, bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id)

    def client(self, bookie_id: str) -> BookieClient:
        return AbsentBookie(bookie_id)

    def addresses(self) -> dict[str, str]:
        return {}


@dataclass
class Site:
    """One broker, seen by a test that has a topic of its own: ``http`` is a client of that
    broker."""

    broker: Broker
    url: str
    http: httpx.AsyncClient
    name: TopicName = TopicName("ns", "none")  # noqa: RUF009 - an immutable value

    @property
    def topic(self) -> str:
        return f"/v1/topics/{self.name.namespace}/{self.name.topic}"

    @property
    def sub(self) -> str:
        return f"{self.topic}/subscriptions/s"


@dataclass
class Service:
    """The brokers over one cluster, started one after the other."""

    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    ledgers: ScriptedLedgers = field(default_factory=ScriptedLedgers)
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    topics: int = 0

    async def site(self, broker_id: str, *, record_events: bool = False) -> Site:
        """Start another broker."""
        store = MemoryMetadataStore(self.cluster)
        await store.start()
        self.stack.push_async_callback(store.close)
        listening = bind("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = BrokerConfig(broker_id, url, close_timeout_s=1.0, record_events=record_events)
        broker = Broker(store, self.ledgers, host=SystemHost(), config=config)
        await broker.start()
        self.stack.push_async_callback(broker.close)
        bookies: Any = NamedBookies()
        app = build_app(broker, store=store, bookies=bookies)
        await app.administration.framework()  # No client's time limit includes loading it.
        server = await HttpServer.start(app, listening)
        self.stack.push_async_callback(server.close)
        http = await self.stack.enter_async_context(http_client(url))
        return Site(broker, url, http)

    async def topic(self, owners: list[Site]) -> list[Site]:
        """Return the same sites with a new topic, which has a partition for each; they own them in
        this order."""
        self.topics += 1
        sites = [replace(site, name=TopicName("ns", f"t{self.topics}")) for site in owners]
        answer = await sites[0].http.put(sites[0].topic, json={"partitions": len(sites)})
        assert answer.status_code == 201, answer.text
        for partition, site in enumerate(sites):
            await site.broker.partition(site.name, partition)
        return sites


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Service]:
    service = Service()
    async with service.stack:
        yield service


async def ok(answer: httpx.Response) -> Any:
    """Return the JSON of an answer that is a success."""
    assert answer.is_success, answer.text
    return answer.json()


async def subscribe(site: Site, name: str = "s", **settings: Any) -> dict[str, Any]:
    """Create a subscription; by default it begins at the earliest message."""
    body = {"start": "earliest", **settings}
    found: dict[str, Any] = await ok(
        await site.http.put(f"{site.topic}/subscriptions/{name}", json=body)
    )
    return found


async def post(
    site: Site, *texts: str, partition: int = 0, headers: dict[str, str] | None = None
) -> None:
    path = f"{site.topic}/messages?partition={partition}"
    for text in texts:
        await ok(await site.http.post(path, content=text.encode(), headers=headers))


async def pull(site: Site, **request: Any) -> list[dict[str, Any]]:
    answer = await ok(await site.http.post(f"{site.sub}:pull", json=request))
    found: list[dict[str, Any]] = answer["messages"]
    return found


async def verb(site: Site, name: str, **request: Any) -> Any:
    return await ok(await site.http.post(f"{site.sub}:{name}", json=request))


async def pull_all(site: Site, **request: Any) -> list[dict[str, Any]]:
    """Pull until nothing is left: a pull need not ask every partition."""
    found: list[dict[str, Any]] = []
    while messages := await pull(site, **request):
        found += messages
    return found


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [message["ack_id"] for message in messages]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["text"] for message in messages]


async def append(site: Site, message: Message, partition: int = 0) -> None:
    """Append at the owner, with any headers."""
    log = await site.broker.partition(site.name, partition)
    await log.append_message(message)
