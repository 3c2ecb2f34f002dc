"""Commits of ledgers that were written elsewhere: ``…/partitions/P/committers/NAME``.

Any broker takes the requests; the partition's owner carries them out (``broker.commits``). A commit
whose answer was lost may have been made: METADATA_UNKNOWN. Each may be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from fencelog.api.http.asgi import JSON, Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.targets import Target
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.requests import read_body
from fencelog.broker.limits import MAX_COMMIT_LEDGERS, MAX_PARTITIONS
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.ledger_list.ledger_list import Commit
    from fencelog.broker.partition.partition_log import PartitionLog

MAX_REQUEST_BYTES = 80 * MAX_COMMIT_LEDGERS
"""The longest of these bodies: a ledger and its messages, each with all its digits."""

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class LedgerToCommit(Struct, forbid_unknown_fields=True, frozen=True):
    """A ledger, and how many messages its writer was acknowledged."""

    ledger_id: Number
    messages: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class CommitRequest(Struct, forbid_unknown_fields=True):
    """A batch: the ledgers that hold its messages, in their order; none: it has no messages here.
    ``partitions``: the number that its committer spreads the batch over, for its own use;
    ``ends``: the committer commits nothing after this; ``by_appends``: it names no ledgers, for it
    appends the batch."""

    batch: Number
    ledgers: Annotated[list[LedgerToCommit], Meta(max_length=MAX_COMMIT_LEDGERS)]
    partitions: Annotated[int, Meta(ge=0, le=MAX_PARTITIONS)] = 0
    ends: bool = False
    by_appends: bool = False


class AbortRequest(Struct, forbid_unknown_fields=True):
    batch: Number
    ledgers: Annotated[list[Number], Meta(max_length=MAX_COMMIT_LEDGERS)]


class CommitAnswer(Struct):
    """A commit, and its place in the log. ``duplicate``: it was there before the request."""

    batch: int
    offset: int
    messages: int
    committed_us: int
    partitions: int
    ends: bool
    by_appends: bool
    duplicate: bool


class LastCommit(Struct):
    """The last commit of a committer, if the partition knows one."""

    commit: CommitAnswer | None


class LentLedger(Struct):
    """A new ledger: its metadata, the incarnations of its bookies, and the addresses of all."""

    ledger: dict[str, Any]
    incarnations: dict[str, str]
    bookies: dict[str, str]


class CommitRoutes:
    """The endpoints of committers."""

    def __init__(self, ownership: OwnerProxy, forwarder: Forwarder, bodies: BodyReader) -> None:
        self._ownership = ownership
        self._forwarder = forwarder
        self._bodies = bodies

    async def get(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 with the committer's last commit."""
        exchange.query(frozenset())

        async def local(log: PartitionLog) -> None:
            await log.check_owner()  # a later one may have later commits
            last = log.commits.last(target.committer)
            await exchange.respond(200, JSON, _encoded(last))

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def create_ledger(self, exchange: Exchange, target: Target) -> None:
        """Answer 201 with a new ledger for the committer to write. Raises TOPIC_TERMINATED,
        NOT_ENOUGH_BOOKIES, …."""
        exchange.query(frozenset())
        await self._bodies.read(exchange, MAX_REQUEST_BYTES)

        async def create(log: PartitionLog) -> bytes:
            return msgspec.json.encode(await log.lend_ledger(target.committer))

        await exchange.respond(201, JSON, await self._at_owner(exchange, target, create, b""))

    async def commit(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 once the batch, or a later one of the committer, is in the log. Raises
        METADATA_UNKNOWN, …."""
        exchange.query(frozenset())
        body = await self._bodies.read(exchange, MAX_REQUEST_BYTES)
        request = read_body(exchange, body, CommitRequest)
        ledgers = [(each.ledger_id, each.messages) for each in request.ledgers]

        async def commit(log: PartitionLog) -> bytes:
            done = await log.commits.commit(
                target.committer,
                request.batch,
                ledgers,
                request.partitions,
                ends=request.ends,
                by_appends=request.by_appends,
            )
            answer = CommitAnswer(**asdict(done.commit), duplicate=done.duplicate)
            return msgspec.json.encode(answer)

        await exchange.respond(200, JSON, await self._at_owner(exchange, target, commit, body))

    async def abort(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 once the ledgers can get into the log no more, or with the commit that they
        may be part of. Raises METADATA_UNKNOWN, …."""
        exchange.query(frozenset())
        body = await self._bodies.read(exchange, MAX_REQUEST_BYTES)
        request = read_body(exchange, body, AbortRequest)

        async def abort(log: PartitionLog) -> bytes:
            return _encoded(
                await log.commits.abort(target.committer, request.batch, request.ledgers)
            )

        await exchange.respond(200, JSON, await self._at_owner(exchange, target, abort, body))

    async def _at_owner(
        self,
        exchange: Exchange,
        target: Target,
        local: Callable[[PartitionLog], Awaitable[bytes]],
        body: bytes,
    ) -> bytes:
        unknown = ErrorCode.METADATA_UNKNOWN

        async def remote(url: str) -> bytes:
            return await self._forwarder.ask("POST", url, exchange.path, b"", body, lost=unknown)

        try:
            return await self._ownership.at_owner(
                exchange, target.topic, target.partition, local, remote
            )
        except FencelogError as error:
            if error.code in (ErrorCode.APPEND_UNKNOWN, ErrorCode.REQUEST_TIMEOUT):
                raise FencelogError(unknown, error.detail) from error
            raise


def _encoded(commit: Commit | None) -> bytes:
    answer = None if commit is None else CommitAnswer(**asdict(commit), duplicate=True)
    return msgspec.json.encode(LastCommit(answer))
