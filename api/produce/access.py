"""The access to a partition: ``…/partitions/P:fence``, ``…/partitions/P/producers``.

Any broker takes the requests; the partition's owner carries them out (``broker.access_changes``). A
request whose answer was lost may have been carried out: STATE_UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from fencelog.api.http.asgi import JSON, Exchange, parse_number
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.targets import Target
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.requests import read_body
from fencelog.broker.append.producer_access import MODES
from fencelog.broker.limits import MAX_FENCING_TOKEN_BYTES, MAX_NAME_BYTES, MAX_WAIT_MS
from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from fencelog.broker.partition.partition_log import PartitionLog

MAX_REQUEST_BYTES = 8 * MAX_NAME_BYTES + 8 * MAX_FENCING_TOKEN_BYTES
"""The longest of these bodies, with every character escaped."""

RELEASE_PARAMETERS = frozenset(("epoch",))

_MAX_EPOCH = 2**63 - 1


class FenceRequest(Struct, forbid_unknown_fields=True):
    token: (
        Annotated[
            str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_FENCING_TOKEN_BYTES})
        ]
        | None
    )
    expected: str | UnsetType | None = UNSET


class ClaimRequest(Struct, forbid_unknown_fields=True):
    mode: Annotated[str, Meta(extra_json_schema={"enum": list(MODES)})] = MODES[0]
    wait_ms: Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MAX_WAIT_MS})] = 0


class ClaimAnswer(Struct):
    epoch: int


class ExclusiveHolder(Struct):
    producer_id: str
    epoch: int


class AccessAnswer(Struct):
    """The fencing token, the exclusive producer, and how many producers are remembered."""

    fencing_token: str | None
    exclusive: ExclusiveHolder | None
    count: int


class ProducerAnswer(Struct):
    """The epoch of a producer, and the sequence that it appends next."""

    producer_id: str
    epoch: int
    next_sequence: int


class Producers:
    """The endpoints of fencing tokens and producers."""

    def __init__(self, ownership: OwnerProxy, forwarder: Forwarder, bodies: BodyReader) -> None:
        self._ownership = ownership
        self._forwarder = forwarder
        self._bodies = bodies

    async def fence(self, exchange: Exchange, target: Target) -> None:
        """Answer 204 once the token is durable. Raises PRECONDITION_FAILED, STATE_UNKNOWN, …."""
        exchange.query(frozenset())
        body = await self._bodies.read(exchange, MAX_REQUEST_BYTES)
        request = read_body(exchange, body, FenceRequest)
        _check_token(request.token)
        expected = None if isinstance(request.expected, UnsetType) else (request.expected,)

        async def fence(log: PartitionLog) -> bytes:
            await log.access.fence(request.token, expected=expected)
            return b""

        await self._change(exchange, target, fence, body)

    async def claim(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 ``{"epoch"}`` once the claim is durable. Raises PRODUCER_BUSY, STATE_UNKNOWN,
        …."""
        exchange.query(frozenset())
        body = await self._bodies.read(exchange, MAX_REQUEST_BYTES)
        request = read_body(exchange, body, ClaimRequest)
        if request.mode not in MODES or not 0 <= request.wait_ms <= MAX_WAIT_MS:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"mode is one of {', '.join(MODES)}, wait_ms 0 to {MAX_WAIT_MS}; not "
                f"{request.mode[:80]!r} and {request.wait_ms}",
            )

        async def claim(log: PartitionLog) -> bytes:
            epoch = await log.access.claim(target.producer, request.mode, wait_ms=request.wait_ms)
            return msgspec.json.encode(ClaimAnswer(epoch))

        await self._change(exchange, target, claim, body)

    async def release(self, exchange: Exchange, target: Target) -> None:
        """Answer 204 once the release is durable. Raises PRODUCER_FENCED, STATE_UNKNOWN, …."""
        query = exchange.query(RELEASE_PARAMETERS)
        epoch = parse_number("epoch", query.get("epoch", ""), low=0, high=_MAX_EPOCH)

        async def release(log: PartitionLog) -> bytes:
            await log.access.release(target.producer, epoch)
            return b""

        await self._change(exchange, target, release, b"")

    async def get(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 with the fencing token, the exclusive producer, and how many are
        remembered."""
        exchange.query(frozenset())

        async def local(log: PartitionLog) -> None:
            await exchange.respond(
                200, JSON, msgspec.json.encode(AccessAnswer(**log.access.shown()))
            )

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def get_one(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 with a producer's epoch and next sequence once all its appends in flight are
        decided; 0 and 0 for one that is not known. Raises READ_UNKNOWN."""
        exchange.query(frozenset())

        async def local(log: PartitionLog) -> None:
            found = await log.access.producer(target.producer)
            epoch, sequence = (0, 0) if found is None else (found.epoch, found.next_sequence)
            answer = ProducerAnswer(target.producer, epoch, sequence)
            await exchange.respond(200, JSON, msgspec.json.encode(answer))

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def _change(
        self,
        exchange: Exchange,
        target: Target,
        local: Callable[[PartitionLog], Awaitable[bytes]],
        body: bytes,
    ) -> None:
        query = exchange.scope["query_string"]
        unknown = ErrorCode.STATE_UNKNOWN

        async def remote(url: str) -> bytes:
            return await self._forwarder.ask(
                exchange.method, url, exchange.path, query, body, lost=unknown
            )

        try:
            answer = await self._ownership.at_owner(
                exchange, target.topic, target.partition, local, remote
            )
        except FencelogError as error:
            if error.code in (ErrorCode.APPEND_UNKNOWN, ErrorCode.REQUEST_TIMEOUT):
                raise FencelogError(unknown, error.detail) from error
            raise
        if answer:
            await exchange.respond(200, JSON, answer)
        else:
            await exchange.start(204, [])
            await exchange.send_body(b"")


def _check_token(token: str | None) -> None:
    """Check that a header can carry the token. Raises FencelogError(BAD_REQUEST)."""
    if token is not None and not (
        1 <= len(token.encode()) <= MAX_FENCING_TOKEN_BYTES
        and token.isprintable()
        and token == token.strip()
    ):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"a token has 1 to {MAX_FENCING_TOKEN_BYTES} bytes of printable text, and no space at "
            "either end",
            field="token",
        )
