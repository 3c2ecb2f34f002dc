"""The HTTP application: the hot endpoints on plain ASGI, in front of FastAPI for everything else.

A FastAPI endpoint answers a third of what plain ASGI does, so appends and reads never enter it;
they are described in its OpenAPI document all the same (``openapi``). Importing FastAPI takes as
long as the rest of a start, so its half is loaded while this one serves (``administration``). Every
error of both parts leaves as a problem document from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencelog.api.admin.events.log import EventLog, EventTopic
from fencelog.api.admin.ledger_view import LedgerView
from fencelog.api.admin.partition_admin import PartitionAdmin
from fencelog.api.http.accept import preferred
from fencelog.api.http.asgi import (
    EVENT_STREAM,
    JSON,
    READING,
    ClientGone,
    Exchange,
    Receive,
    Scope,
    Send,
    received,
)
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.problems import (
    MEDIA_TYPE,
    cut_off,
    log_problem,
    problem_body,
    problem_headers,
    send_problem,
    unexpected,
)
from fencelog.api.http.request_ids import CURRENT, OF_THIS_PROCESS, request_of, serving
from fencelog.api.http.request_spans import RequestSpans
from fencelog.api.http.sse import problem_event
from fencelog.api.http.targets import Endpoint, Target, Targets
from fencelog.api.http.waits import Waits
from fencelog.api.produce.access import Producers
from fencelog.api.produce.batch import ProduceBatch
from fencelog.api.produce.commits import CommitRoutes
from fencelog.api.produce.once import Once
from fencelog.api.produce.post_paths import PostPaths
from fencelog.api.produce.single import Produce
from fencelog.api.read.compaction_routes import Compactions
from fencelog.api.read.offsets import OffsetRoutes
from fencelog.api.read.read import Read
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.link import Links
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.routing.partitioner import RoundRobin
from fencelog.api.routing.peers import LinkPeers
from fencelog.api.routing.served_link import LinkHost
from fencelog.api.server.administration import Administration
from fencelog.api.server.health import Health
from fencelog.api.server.methods import answer_other_method
from fencelog.api.server.origins_core import Origins
from fencelog.api.server.together import TOGETHER_PATH, Together
from fencelog.api.subscriptions.app import build_subscriptions
from fencelog.api.subscriptions.dead_letters import Appending
from fencelog.api.web_console.files import console_pages
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_ADMIN_BYTES
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metrics import LedgerCounts
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies

if TYPE_CHECKING:
    from fencelog.api.server.framework import Framework
    from fencelog.api.subscriptions.lifecycle import SubscriptionLifecycle
    from fencelog.bookie.engine.bookie import Bookie
    from fencelog.broker.broker import Broker

Page = Callable[[Exchange], Awaitable[None]]
Handler = Callable[[Exchange, Target], Awaitable[None]]

_JSON_ALONE = (JSON,)
_FORMS = {Endpoint.SUBSCRIPTION_EVENTS: (EVENT_STREAM,)}
_OWN_FORMS = frozenset((Endpoint.READ, Endpoint.READ_ONE))
"""The endpoints that choose the form themselves, or answer with any bytes."""

_TAKING = frozenset((Endpoint.SUBSCRIPTION_EVENTS,))
"""The endpoints at which reading leases messages."""

_log = logging.getLogger(__name__)


class Application:
    """An ASGI application. Call ``drain`` before the server closes; the lifespan's end closes the
    connections to other brokers."""

    def __init__(
        self,
        endpoints: Mapping[Endpoint, Mapping[str, Handler]],
        pages: Mapping[str, Page],
        administration: Administration,
        links: Links,
        waits: Waits,
        metrics: ApiMetrics,
        produce: Produce,
        bodies: BodyReader,
    ) -> None:
        self._bodies = bodies
        self.append_now = produce.append_now
        self.append_elsewhere = produce.append_elsewhere
        self.append_for_peer = produce.append_for_peer
        self.appended_now = produce.appended_now
        self.now_us = produce.now_us
        self.origins = Origins()
        """The names and origins that requests over HTTP may give."""
        self.request_ids = OF_THIS_PROCESS
        self.request_spans: RequestSpans | None = None
        """The spans of requests (None: none are sampled)."""
        self.administration = administration
        self.host: LinkHost | None = None
        """The serving end of links (None: there is none)."""
        self._endpoints = endpoints
        self._pages = {**pages, TOGETHER_PATH: Together(self._serve, waits).get}
        self._links = links
        self._waits = waits
        self._metrics = metrics
        self._targets = Targets()
        self.posts = PostPaths(self._targets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        exchange = Exchange(scope, receive, send)
        request = scope.get(CURRENT) or request_of(exchange.headers, self.request_ids)
        spans = self.request_spans
        with serving(request), nullcontext() if spans is None else spans.span_of(request, exchange):
            await self._serve(exchange, scope, receive)

    async def _serve(self, exchange: Exchange, scope: Scope, receive: Receive) -> None:
        try:
            target = self._targets.find(exchange.path_as_sent())
            if target is None:
                await self._administer(exchange, scope, receive)
            else:
                await self._dispatch(exchange, target)
        except ClientGone:
            return
        except FencelogError as error:
            log_problem(error, exchange.method, exchange.path)
            await self._fail(exchange, error)
        except asyncio.CancelledError:
            await self._fail(exchange, cut_off(exchange.method, exchange.path))
            raise
        except Exception:
            _log.exception("%s %s failed", exchange.method, exchange.path)
            await self._fail(exchange, unexpected())

    def drain(self) -> None:
        """End long polls and event streams, so that the server can close without waiting."""
        self._waits.close()

    def problem_answer(
        self, error: BaseException, method: str, path: str
    ) -> tuple[int, bytes, bytes, list[tuple[bytes, bytes]]]:
        """Return the status, media type, body and headers of the answer to a request that
        failed."""
        if not isinstance(error, FencelogError):
            _log.error("%s %s failed", method, path, exc_info=error)
            error = unexpected()
        else:
            log_problem(error, method, path)
        self._metrics.problem(error.code.slug)
        return error.code.status, MEDIA_TYPE, problem_body(error, path), problem_headers(error)

    async def _dispatch(self, exchange: Exchange, target: Target) -> None:
        handlers = self._endpoints[target.endpoint]
        method = exchange.method
        if target.endpoint in _TAKING:
            site, mode = exchange.header(b"sec-fetch-site"), exchange.header(b"sec-fetch-mode")
            self.origins.check_navigation(site, mode)
        if method in READING and target.endpoint not in _OWN_FORMS:
            preferred(exchange.header(b"accept"), _FORMS.get(target.endpoint, _JSON_ALONE))
        handler = handlers.get("GET" if method == "HEAD" else method)
        if handler is not None:
            await handler(exchange, target)
        else:
            await answer_other_method(exchange, handlers, self.origins)

    async def _administer(self, exchange: Exchange, scope: Scope, receive: Receive) -> None:
        """Answer about health or with a page, or have the framework answer, which knows GET for
        HEAD: the server leaves the body out."""
        method, page = exchange.method, self._pages.get(exchange.path)
        if page is not None:
            if method in READING:
                await page(exchange)
            else:
                await answer_other_method(exchange, ("GET",), self.origins)
            return
        framework = await self.administration.framework()
        methods = framework.methods_at(scope)
        if not methods:
            raise FencelogError(ErrorCode.NOT_FOUND, f"there is no {exchange.path}; see /docs")
        if method in READING:
            method = "GET"
            if exchange.path.startswith("/v1/"):
                preferred(exchange.header(b"accept"), _JSON_ALONE)
        if method in methods:
            # The framework would read a body of any size, and parse it at once.
            read = received(await self._bodies.read(exchange, MAX_ADMIN_BYTES), receive)
            await framework.app({**scope, "method": method}, read, exchange.send)
        else:
            await answer_other_method(exchange, methods, self.origins)

    async def _fail(self, exchange: Exchange, error: FencelogError) -> None:
        """Answer with a problem. An event stream that has begun ends with one after a whole event;
        the rest of any other answer is left out, so that the server closes the connection and the
        client sees that it is not whole. A client drops a part of an event: with more text behind
        it, it would take it for whole, and go on behind a message that it does not have."""
        if not exchange.started:
            self._metrics.problem(error.code.slug)
            await send_problem(exchange, error)
        elif exchange.sends_events and not exchange.is_within_event:
            self._metrics.problem(error.code.slug)
            await exchange.send_body(problem_event(error, exchange.path))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.shutdown":
                await self._links.close()
            await send({"type": f"{event['type']}.complete"})
            if event["type"] == "lifespan.shutdown":
                return


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """The parts of a process beside its broker whose metrics it shows: the broker's ledger client,
    and bookies."""

    ledgers: LedgerCounts
    bookies: Sequence[Bookie] = ()


def build_app(
    broker: Broker,
    *,
    store: MetadataStore,
    bookies: RegisteredBookies,
    links: Links | None = None,
    secret: SharedSecret | None = None,
    counted: ProcessCounts | None = None,
) -> Application:
    """Build the application of a broker that has been started, and have its events appended.

    ``store``: of the cluster's metadata; ``links``: to other brokers; ``secret``: that they ask
    for, and are asked for, on links; ``counted``: what else of this process ``/metrics``
    shows.
    """
    metrics = ApiMetrics()
    links = links or Links(secret)
    forwarder = Forwarder(links)
    waits = Waits()
    ownership = OwnerProxy(broker, forwarder, waits)
    round_robin = RoundRobin()
    bodies = BodyReader()
    once = Once(broker, ownership, forwarder, bodies)
    produce = Produce(broker, ownership, round_robin, once, bodies, metrics)
    batch = ProduceBatch(broker, ownership, forwarder, round_robin, once, bodies, metrics)
    read = Read(ownership, waits, metrics)
    offsets = OffsetRoutes(broker, ownership, forwarder)
    compactions = Compactions(broker, ownership, bodies)
    endpoints: dict[Endpoint, dict[str, Handler]] = {
        Endpoint.PRODUCE: {"POST": produce.post},
        Endpoint.PRODUCE_BATCH: {"POST": batch.post},
        Endpoint.READ: {"GET": read.get},
        Endpoint.READ_ONE: {"GET": read.get_one},
        Endpoint.SEGMENTS: {"GET": read.get_segments},
        Endpoint.OFFSETS: {"GET": offsets.get},
        Endpoint.TOPIC_OFFSETS: {"GET": offsets.get_all},
        Endpoint.COMPACT: {"POST": compactions.compact},
        Endpoint.COMPACTION: {"GET": compactions.get},
    }
    endpoints |= _partition_endpoints(broker, ownership, forwarder, bodies, store)
    endpoints[Endpoint.FIND_KEY] = {"POST": once.find_key}
    lifecycle, served = build_subscriptions(
        broker, ownership, forwarder, waits, bodies, metrics, once
    )
    endpoints |= served
    others = counted or ProcessCounts(LedgerCounts())

    def load() -> Framework:
        return _load_framework(broker, store, bookies, LinkPeers(links), lifecycle, metrics, others)

    broker.rate_history.start()
    broker.events.start(EventTopic(broker, Appending(ownership, forwarder)))
    pages = {**Health(broker.check_ready).pages(), **console_pages()}
    pages |= EventLog(ownership, waits).pages()
    app = Application(
        endpoints, pages, Administration(load), links, waits, metrics, produce, bodies
    )
    config = broker.config
    app.host = LinkHost(app, produce.append_for_peer, config.url, config.broker_id, secret)
    return app


def _load_framework(
    broker: Broker,
    store: MetadataStore,
    bookies: RegisteredBookies,
    peers: LinkPeers,
    lifecycle: SubscriptionLifecycle,
    metrics: ApiMetrics,
    counted: ProcessCounts,
) -> Framework:
    """Import and build FastAPI's half, in a thread."""
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin
    from fencelog.api.admin.doctor_routes import service_doctor
    from fencelog.api.metrics.service import ServiceMetrics
    from fencelog.api.server.framework import build_framework

    healing = AutorecoveryAdmin(store, bookies, host=broker.host)
    shown = ServiceMetrics(metrics, broker, counted.ledgers, counted.bookies, healing)
    doctor = service_doctor(broker, store, bookies, healing, peers)
    return build_framework(broker, bookies, peers, lifecycle, metrics, healing, shown, doctor)


def _partition_endpoints(
    broker: Broker,
    ownership: OwnerProxy,
    forwarder: Forwarder,
    bodies: BodyReader,
    store: MetadataStore,
) -> dict[Endpoint, dict[str, Handler]]:
    """Return the endpoints about one partition's log beside its messages."""
    producers = Producers(ownership, forwarder, bodies)
    endpoints: dict[Endpoint, dict[str, Handler]] = {
        Endpoint.FENCE: {"POST": producers.fence},
        Endpoint.CLAIM: {"POST": producers.claim},
        Endpoint.PRODUCERS: {"GET": producers.get},
        Endpoint.PRODUCER: {"GET": producers.get_one, "DELETE": producers.release},
    }
    commits = CommitRoutes(ownership, forwarder, bodies)
    endpoints |= {
        Endpoint.COMMITTER: {"GET": commits.get},
        Endpoint.CREATE_LEDGER: {"POST": commits.create_ledger},
        Endpoint.COMMIT: {"POST": commits.commit},
        Endpoint.ABORT: {"POST": commits.abort},
    }
    partitions = PartitionAdmin(broker, ownership, forwarder, bodies)
    endpoints |= {
        Endpoint.INTERNALS: {"GET": partitions.internals},
        Endpoint.LEDGER_VIEW: {"GET": LedgerView(broker, ownership, store).get},
        Endpoint.TRIM: {"POST": partitions.trim},
        Endpoint.TERMINATE: {"POST": partitions.terminate},
        Endpoint.TERMINATE_ALL: {"POST": partitions.terminate_all},
    }
    return endpoints
