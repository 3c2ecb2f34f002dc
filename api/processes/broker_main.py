"""Composition root of a broker: ledger client, broker, HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fencelog.api.http.addresses import check_advertised, check_listener, parse_address
from fencelog.api.processes.browser_access import NO_OTHERS, BrowserAccess
from fencelog.api.processes.descriptors import connection_limits
from fencelog.api.processes.lifecycle import Running
from fencelog.api.processes.traces.options import process_spans
from fencelog.api.routing.link import Links
from fencelog.api.routing.peers import LinkPeers
from fencelog.api.server.app import Application, ProcessCounts, build_app
from fencelog.api.server.limits import MAX_CONNECTIONS
from fencelog.api.server.origins_core import Origins
from fencelog.api.server.serve import HttpServer, bind, url_of
from fencelog.bookie.engine.bookie import Bookie
from fencelog.broker.broker import Broker, BrokerConfig
from fencelog.broker.policy import Policy
from fencelog.ledgers.client import DEFAULT_COPIES, LedgerClient, Replication
from fencelog.ledgers.host import Host, SystemHost
from fencelog.ledgers.metastore.instance import read_instance
from fencelog.ledgers.metastore.open import open_metadata_store
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import EmbeddedBookie, RegisteredBookies
from fencelog.ledgers.rpc.secret_file import secret_from

DRAIN_TIMEOUT_S = 45.0
"""The time for a broker to end; its supervisor has to wait a little longer before it kills."""

_ID_BYTES = 4
"""The length of a random broker id: the brokers of one cluster will not collide."""


@dataclass(frozen=True, slots=True)
class BrokerProcessConfig:
    """The configuration of a broker process. ``metadata``: URL of the store. ``http``: the address
    to listen on. ``advertise``: the URL that other brokers forward to (None: the address listened
    on). ``broker_id``: None draws one. ``copies``: of each message in topics created without a
    replication of their own. ``secret_file``: the secret that bookies ask of their clients, and
    brokers of each other (None: none). ``drain_timeout_s``: for the transfer of all partitions at
    the end. ``linger_s``: how long HTTP goes on at least once the process is to end, until no proxy
    sends requests any more. ``browsers``: who may ask over HTTP. ``accepted_secret_file``: another
    secret that brokers may know instead, while it is changed. ``record_events``: in the
    timeline."""

    metadata: str
    http: str = "127.0.0.1:8080"
    advertise: str | None = None
    broker_id: str | None = None
    copies: int = DEFAULT_COPIES
    secret_file: Path | None = None
    drain_timeout_s: float = DRAIN_TIMEOUT_S
    browsers: BrowserAccess = NO_OTHERS
    linger_s: float = 0.0
    accepted_secret_file: Path | None = None
    record_events: bool = True


@contextlib.asynccontextmanager
async def broker_process(config: BrokerProcessConfig) -> AsyncIterator[Running]:
    """Run a broker process over a shared metadata store and registered bookies.

    Raises FencelogError: METADATA_UNAVAILABLE within METADATA_TIMEOUT_MS, BAD_REQUEST (address,
    secret).
    """
    check_advertised(config.http, config.advertise)
    check_listener(config.http, insecure=config.browsers.insecure)
    host = SystemHost()
    secret = secret_from(config.secret_file, host=host, accepted=config.accepted_secret_file)
    limits = connection_limits(http=True)
    async with contextlib.AsyncExitStack() as stack:
        store = open_metadata_store(config.metadata, host=host)
        await store.start()
        stack.push_async_callback(store.close)
        url = await stack.enter_async_context(
            serving_broker(
                store,
                {},
                host=host,
                http=config.http,
                advertise=config.advertise,
                broker_id=config.broker_id,
                replication=Replication.of_copies(config.copies),
                secret=secret,
                drain_timeout_s=config.drain_timeout_s,
                browsers=config.browsers,
                linger_s=config.linger_s,
                record_events=config.record_events,
                max_connections=limits.http,
            )
        )
        yield Running({"role": "broker", "http": url})


@contextlib.asynccontextmanager
async def serving_broker(
    store: MetadataStore,
    local: Mapping[str, EmbeddedBookie],
    *,
    host: Host,
    http: str,
    advertise: str | None = None,
    broker_id: str | None = None,
    replication: Replication | None = None,
    secret: SharedSecret | None = None,
    drain_timeout_s: float = DRAIN_TIMEOUT_S,
    browsers: BrowserAccess = NO_OTHERS,
    linger_s: float = 0.0,
    measured: Sequence[Bookie] = (),
    record_events: bool = True,
    max_connections: int = MAX_CONNECTIONS,
) -> AsyncIterator[str]:
    """Run a broker that serves HTTP, and yield it with its URL. ``local``: bookies in this process;
    ``replication``: of topics created without one; ``secret``: of the cluster, for bookies
    elsewhere and links between brokers; ``measured``: the bookies whose metrics are shown here.

    The socket is bound before the broker starts, since the broker registers its address, and
    accepts only afterwards. Leaving transfers all partitions to other brokers while HTTP goes on,
    for ``linger_s`` at least, then stops HTTP, and last closes what is left and the bookie clients.
    """
    async with contextlib.AsyncExitStack() as stack:
        sock = stack.enter_context(bind(*parse_address(http)))
        bookies = RegisteredBookies(store, local=local, connect=partial(_bookie_client, secret))
        await bookies.start()
        stack.push_async_callback(bookies.close)
        ledgers = LedgerClient(store, bookies, host=host)
        config = BrokerConfig(
            broker_id=broker_id or f"broker-{host.random_bytes(_ID_BYTES).hex()}",
            url=(advertise or url_of(sock)).rstrip("/"),
            policy=Policy().with_replication(replication or Replication()),
            drain_timeout_s=drain_timeout_s,
            record_events=record_events,
        )
        cluster = await read_instance(store) or ""
        links = Links(secret, cluster=cluster)
        stack.push_async_callback(links.close)
        broker = Broker(store, ledgers, host=host, config=config, peers=LinkPeers(links))
        ledgers.on_ensemble_change = broker.events.ensemble_changed
        await ledgers.warm_up()  # before others know of it and give it partitions
        await broker.start()
        stack.push_async_callback(broker.close)
        counted = ProcessCounts(ledgers.metrics, measured)
        app = build_app(
            broker, store=store, bookies=bookies, links=links, secret=secret, counted=counted
        )
        _complete(app, broker, browsers.origins(http, config.url), cluster)
        server = await HttpServer.start(app, sock, max_connections)
        stack.push_async_callback(server.close)
        # With the loop's next turn, which is that after the announcement.
        asyncio.get_running_loop().call_soon(app.administration.load)
        stack.callback(app.drain)
        stack.push_async_callback(_leave, broker, linger_s)
        yield server.url


def _bookie_client(secret: SharedSecret | None, address: str, bookie_id: str) -> TcpBookieClient:
    return TcpBookieClient(bookie_id, address, credentials=secret)


def _complete(app: Application, broker: Broker, origins: Origins, cluster: str) -> None:
    """Give an application the names that requests may give, the spans of this process, and the
    cluster that other brokers are told."""
    app.origins, app.request_spans = origins, process_spans.get()
    if app.host is not None:
        app.host.cluster = cluster
    if app.request_spans is not None:
        broker.metrics.spans = app.request_spans.spans


async def _leave(broker: Broker, linger_s: float) -> None:
    """Transfer all partitions, and forward requests to their new owners until no proxy sends
    any."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + linger_s
    await broker.leave()
    await asyncio.sleep(max(0.0, end_s - loop.time()))
