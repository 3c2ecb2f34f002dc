"""Committers that are a Spark query's own code (``spark_connector/write/segments.py``) over the
simulated HTTP: they ask any broker, repeat what is not answered, and conclude what that code
concludes.

The real client sends their requests; what carries them is ``_Ways``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from fencelog.api.client import FencelogClient
from fencelog.api.client.commits import PartitionCommits
from fencelog.api.client.retry import retry_idempotent
from fencelog.api.http.problems import error_from_problem
from fencelog.broker.commits.commits import PendingLedger
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import from_json
from fencelog.spark_connector.write import segments
from fencelog.spark_connector.write.options import ExactlyOnce, WriteOptions
from fencelog.spark_connector.write.segments import LedgerOfTask, TaskLedgers
from fencelog.spark_connector.write.target import (
    Job,
    WriteTarget,
    of_partition,
    partitions_of_batch,
)
from tests.sim.commits.committers import Committer
from tests.sim.commits.history import Attempt
from tests.sim.commits.routes import CommitterRoutes
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.oracle.call_history import Call
from tests.sim.plan.topic_plan import CommitterPlan, TopicPlan
from tests.sim.topics.brokers import TOPIC
from tests.sim.topics.clients import Clients
from tests.sim.topics.http import Answer, Broken, NoConnection, Refused, Request, Silent
from tests.sim.topics.small_limits import Limits

if TYPE_CHECKING:
    from tests.sim.engine.process import Process

_COMMITTER: ContextVar[RoutedCommitter] = ContextVar("COMMITTER")
"""Whose code is running."""

_ASKED: ContextVar[list[Call]] = ContextVar("ASKED")
"""What was asked for one commit."""

_KNOWN = (ErrorCode.PRODUCER_FENCED, ErrorCode.SEQUENCE_REUSED)
"""The errors of a driver whose batch, or a later one, is in the log: another attempt's."""


def routed_limits(plan: TopicPlan) -> Limits:
    """Return what is another one while a history is played that has such committers."""
    routed = [each for each in plan.committers if each.over_http]
    if not routed:
        return ()
    return (
        (segments, "FencelogClient", _client),
        (segments, "COMMIT_S", routed[0].gives_up_s),
    )


def _client(servers: Sequence[str]) -> FencelogClient:
    return _COMMITTER.get().client(servers)


class RoutedCommitter(Committer):
    """One committer of one partition."""

    def __init__(
        self,
        plan: CommitterPlan,
        cluster: Cluster,
        clients: Clients,
        session: Session,
        routes: CommitterRoutes,
    ) -> None:
        super().__init__(plan, cluster, clients, session)
        self._routes = routes
        self._number = 0

    async def run(self) -> None:
        _COMMITTER.set(self)
        _ASKED.set([])
        await super().run()

    def client(self, servers: Sequence[str]) -> FencelogClient:
        """Return a client, which begins at any of the brokers."""
        client = FencelogClient(servers)
        client._service._http = httpx.AsyncClient(transport=_Ways(self), trust_env=False)
        return client

    def _options(self) -> WriteOptions:
        names = self._clients.broker_names()
        servers = tuple(f"http://{name}" for name in self._chance.sample(names, len(names)))
        return WriteOptions(servers, str(TOPIC), ExactlyOnce.SEGMENTS)

    # -- tasks -----------------------------------------------------------------------------------

    async def _write(self, attempt: Attempt) -> bool:
        options = self._options()
        target = WriteTarget(options, 1)
        try:
            async with self.client(options.servers) as client:
                await partitions_of_batch(client, target, self._job(attempt))
        except FencelogError as error:
            await self._go_on(error)
            return False
        return await super()._write(attempt)

    async def _create(self) -> PendingLedger | None:
        async with self.client(self._options().servers) as client:
            partition, name = self._log.partition, self._plan.machine
            commits = PartitionCommits(client, str(TOPIC), partition, name)
            try:
                made = await retry_idempotent(lambda: of_partition(commits.create_ledger()))
            except FencelogError as error:
                await self._go_on(error)
                return None
        return PendingLedger(from_json(made["ledger"]), made["incarnations"])

    # -- the driver ------------------------------------------------------------------------------

    async def _commit(self, attempt: Attempt, *, ends: bool = False) -> bool:
        if not attempt.ledgers:  # a driver without tasks asks nobody
            return False
        asked: list[Call] = []
        _ASKED.set(asked)
        try:
            await segments.commit(self._tasks(attempt), self._options(), is_stream=not ends)
        except FencelogError as error:
            if error.code in _KNOWN:
                return True
            self._routes.given_up(self._log, attempt, error, asked)
            await self._go_on(error, "commit")
            return False
        self._routes.concluded(self._log, attempt)
        return True

    async def _abort(self, attempt: Attempt) -> bool:
        """Abort the attempt as a writer does, which tells nobody what came of it."""
        try:
            await segments.abort(self._tasks(attempt), self._options())
        except FencelogError as error:
            await self._go_on(error, "abort")
        return False

    def _job(self, attempt: Attempt) -> Job:
        return Job(attempt.committer, attempt.batch)

    def _tasks(self, attempt: Attempt) -> list[TaskLedgers]:
        """One task for each ledger."""
        job, partition = self._job(attempt), self._log.partition
        counts = [sum(len(sent.payloads) for sent in ledger) for ledger in attempt.sent]
        return [
            TaskLedgers(job, 1, (LedgerOfTask(partition, ledger_id, count),))
            for ledger_id, count in zip(attempt.ledgers, counts, strict=True)
        ]

    # -- requests --------------------------------------------------------------------------------

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send one request; note what its answer says. Raises what a connection may."""
        committer, _, verb = request.url.path.rpartition("/")[2].partition(":")
        self._number += 1
        call = Call(f"{verb} {self._number} of {self._plan.machine}", self._plan.machine)
        newest = self._routes.newest(self._log, committer)
        if verb:
            _ASKED.get().append(call)
        answer = await self._answer(request, call if verb else None)
        if answer.status not in (200, 201):
            if verb:
                error = error_from_problem(answer.body, answer.status)
                self._routes.calls.told_error(call, error)
        else:
            told = msgspec.json.decode(answer.body)
            if verb:
                self._routes.told_done(call, verb, told, self._log.partition)
            elif not self._plan.ends:
                self._routes.told_last(self._log, committer, newest, told)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    async def _answer(self, request: httpx.Request, call: Call | None) -> Answer:
        times: Any = request.extensions["timeout"]
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        sent = Request(
            request.method, request.url.path, request.url.query, headers, request.content, call
        )
        ask = self._clients.front.http.ask
        try:
            answer = await ask(
                request.url.host,
                sent,
                connect_s=times["connect"],
                answer_s=self._clients.timeout_s(self._chance),
            )
        except Refused as error:
            raise httpx.ConnectError(repr(error)) from error
        except NoConnection as error:
            raise httpx.ConnectTimeout(repr(error)) from error
        except Broken as error:
            raise httpx.ReadError(repr(error)) from error
        except Silent as error:
            raise httpx.ReadTimeout(repr(error)) from error
        if not answer.is_whole:
            raise httpx.RemoteProtocolError("the answer breaks off")
        return answer


class _Ways(httpx.AsyncBaseTransport):
    """The connections of a client."""

    def __init__(self, committer: RoutedCommitter) -> None:
        self._committer = committer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._committer.send(request)


def start_committers(
    plans: tuple[CommitterPlan, ...],
    cluster: Cluster,
    clients: Clients,
    routes: CommitterRoutes | None,
) -> list[Process]:
    """Start a process for each committer. ``routes``: for those that use them."""

    async def work(plan: CommitterPlan, session: Session) -> None:
        if routes is not None and plan.over_http:
            await RoutedCommitter(plan, cluster, clients, session, routes).run()
        else:
            await Committer(plan, cluster, clients, session).run()

    return [cluster.client_process(plan.machine, partial(work, plan)) for plan in plans]
