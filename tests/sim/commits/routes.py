"""The service's own routes for committers, over the simulated HTTP and links: ledgers that are
lent, commits, aborts, the last commit.

Any broker takes a request. The owner that carries it out notes it, and what is answered to the
client is compared with that (26). What a driver concludes from all its requests for a commit is
compared with what owners have taken of them (37).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.targets import Endpoint
from fencelog.api.http.waits import Waits
from fencelog.api.produce.commits import CommitRoutes
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.server.app import Handler
from fencelog.broker.broker import Broker
from fencelog.broker.commits.commits import Committed
from fencelog.broker.ledger_list.ledger_list import Commit
from fencelog.broker.names import TopicName
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.ledgers.errors import FencelogError
from tests.sim.commits.history import INVARIANT, Attempt
from tests.sim.oracle.call_history import CALL, Call, CallHistory
from tests.sim.oracle.log_history import LogHistory
from tests.sim.topics.front import Front

T = TypeVar("T")

Told = Mapping[str, Any]
"""A JSON object of an answer."""


class CommitterRoutes:
    """The routes of all brokers, and what was asked of them."""

    def __init__(self, logs: list[LogHistory], front: Front) -> None:
        """Have every broker serve them."""
        self.logs = logs
        self.calls = CallHistory(logs, has_arbiter=False)
        front.taken.more = self._endpoints

    def _endpoints(
        self, broker: Broker, forwarder: Forwarder, waits: Waits, bodies: BodyReader
    ) -> dict[Endpoint, dict[str, Handler]]:
        seen: Any = _SeenBroker(broker, self)
        routes = CommitRoutes(OwnerProxy(seen, forwarder, waits), forwarder, bodies)
        return {
            Endpoint.COMMITTER: {"GET": routes.get},
            Endpoint.CREATE_LEDGER: {"POST": routes.create_ledger},
            Endpoint.COMMIT: {"POST": routes.commit},
            Endpoint.ABORT: {"POST": routes.abort},
        }

    # -- what clients are told -------------------------------------------------------------------

    def told_done(self, call: Call, verb: str, told: Told, partition: int) -> None:
        """An answer says that a request was carried out."""
        said: Sequence[Any] = ()
        match verb:
            case "create-ledger":
                said = (told["ledger"]["ledger_id"],)
            case "commit":
                said = _said(told)
            case "abort":
                said = () if told["commit"] is None else _said({**told["commit"], "duplicate": 1})
        self.calls.told_done(call, said, (partition,))
        self.calls.count(f"{verb} by any broker")

    def newest(self, log: LogHistory, committer: str) -> int:
        """Return the last batch of a committer that any client knows to be in the log; 0: none."""
        known = log.commits.committed
        return max((batch for name, batch in known if name == committer), default=0)

    def told_last(self, log: LogHistory, committer: str, newest: int, told: Told) -> None:
        """An answer says which batch of a committer is the last; ``newest``: the one that was known
        when it was asked for."""
        self.calls.count("last commits asked for")
        found = 0 if told["commit"] is None else told["commit"]["batch"]
        if found < newest:
            log.violate(
                INVARIANT, f"batch {found} of {committer} is told to be the last, {newest} was in"
            )

    # -- what drivers conclude -------------------------------------------------------------------

    def concluded(self, log: LogHistory, attempt: Attempt) -> None:
        """The driver takes its batch for committed."""
        if self.newest(log, attempt.committer) < attempt.batch:
            log.violate(INVARIANT, f"{attempt}: taken for committed, no owner has said so")

    def given_up(
        self, log: LogHistory, attempt: Attempt, error: FencelogError, asked: Iterable[Call]
    ) -> None:
        """The driver's commit has failed, after these requests: either it says that the batch may
        be in the log, or no owner has taken any of them."""
        if error.may_have_effect:
            self.calls.count("commits in doubt")
            return
        taken = [call.name for call in asked if call.done or any(call.taken.values())]
        if taken:
            log.violate(
                INVARIANT, f"{attempt} is refused ({error.code.slug}), owners have taken {taken}"
            )


def _said(commit: Told) -> tuple[Any, ...]:
    return (commit["batch"], commit["offset"], commit["messages"], int(commit["duplicate"]))


class _SeenBroker:
    """The broker as these endpoints see it."""

    def __init__(self, broker: Broker, routes: CommitterRoutes) -> None:
        self._broker = broker
        self._routes = routes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def partition(self, topic: TopicName, partition: int) -> _SeenLog:
        return _SeenLog(self._routes, await self._broker.partition(topic, partition))


class _SeenLog:
    """An open log as these endpoints see it; also its ``commits``."""

    def __init__(self, routes: CommitterRoutes, instance: PartitionLog) -> None:
        self._calls = routes.calls
        self._log = routes.logs[instance.partition]
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    @property
    def commits(self) -> _SeenLog:
        return self

    def last(self, committer: str) -> Commit | None:
        return self._instance.commits.last(committer)

    async def lend_ledger(self, committer: str) -> Told:
        lend = partial(self._instance.lend_ledger, committer)
        return await self._once(lend, lambda made: (made["ledger"]["ledger_id"],))

    async def commit(
        self,
        committer: str,
        batch: int,
        ledgers: Sequence[tuple[int, int]],
        partitions: int,
        **flags: bool,
    ) -> Committed:
        attempt = self._log.commits.of_ledger(committer, batch, ledgers[0][0])
        newest_epoch = self._log.newest_epoch
        commit = partial(
            self._instance.commits.commit, committer, batch, ledgers, partitions, **flags
        )
        try:
            done = await self._once(commit, lambda done: _all_of(done.commit, done.duplicate))
        except FencelogError as error:
            self._log.commits.turned_away(error, self._instance.epoch, newest_epoch)
            raise
        self._log.commits.told(
            attempt, done.commit.batch, done.commit.offset, duplicate=done.duplicate
        )
        return done

    async def abort(self, committer: str, batch: int, ledgers: Sequence[int]) -> Commit | None:
        attempt = self._log.commits.of_ledger(committer, batch, ledgers[0])
        abort = partial(self._instance.commits.abort, committer, batch, ledgers)
        done = await self._once(
            abort, lambda done: () if done is None else _all_of(done, duplicate=True)
        )
        if done is None:
            attempt.is_aborted = True
            self._log.counts["aborts"] += 1
        return done

    async def _once(
        self, work: Callable[[], Awaitable[T]], says: Callable[[T], Iterable[Any]]
    ) -> T:
        call, partition = CALL.get(), self._instance.partition
        assert call is not None
        self._calls.takes(call, partition)
        try:
            result = await work()
        except FencelogError as error:
            self._calls.failed(call, partition, error)
            raise
        self._calls.did(call, partition, says(result))
        return result


def _all_of(commit: Commit, duplicate: bool) -> tuple[Any, ...]:
    return (commit.batch, commit.offset, commit.messages, int(duplicate))
