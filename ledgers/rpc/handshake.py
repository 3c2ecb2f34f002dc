"""The beginning of a connection, as the client sees it: HELLO, then AUTH if it has credentials.

It has no I/O: frames in, frames out. The features that both ends offer in HELLO are defined here
too; ``bookie/server/handshake.py`` is the other end.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set
from typing import Any

from fencelog.ledgers.errors import (
    ErrorCode,
    FencelogError,
    ProtocolError,
    code_from_wire,
    prefix_bookie,
)
from fencelog.ledgers.limits import MAX_AUTH_STEPS
from fencelog.ledgers.rpc.authentication import Credentials
from fencelog.ledgers.rpc.wire import (
    REPLY_BIT,
    VERSION,
    Flag,
    Frame,
    Op,
    decode_hello,
    encode_hello,
    encode_request,
)

FEATURE_OF: Mapping[int, str] = {
    Op.LIST_ENTRIES: "list_entries",
    Op.ADMIN: "admin",
    Op.FENCE: "fence",
    Op.READ_RANGES: "read_ranges",
    Op.WRITE_LACS: "write_lacs",
    Op.ADD_MANY: "add_many",
}
"""Requests that a bookie of version 1 need not know, each with its feature. Sending one where it
was not agreed on would end the connection, with all requests in flight on it."""

CONTEXTS = "contexts"
"""The feature of adds that are flagged CONTEXTS."""

PLACES = "places"
"""The feature of reads that are flagged PLACES."""

FEATURES: frozenset[str] = frozenset((*FEATURE_OF.values(), CONTEXTS, PLACES))
"""The features of this release beyond version 1. A feature gets its name with the first message
that a peer of version 1 does not know; the other end ignores names that it does not know."""


def agree_on_features(hello: Mapping[str, Any], known: Set[str], required: Set[str]) -> Set[str]:
    """Return the features that a client shares with a bookie that knows ``known`` and requires
    ``required``.

    Raises FencelogError(UNSUPPORTED_VERSION), which names what one end requires and the other
    lacks; ProtocolError.
    """
    versions, offered = hello.get("versions"), _names(hello, "features")
    if not isinstance(versions, list) or VERSION not in versions:
        raise _unsupported(f"this bookie speaks version {VERSION}, the client {versions!r}")
    if unknown := _names(hello, "required") - known:
        raise _unsupported(f"the client requires {_listed(unknown)}, which this bookie lacks")
    if missing := required - offered:
        raise _unsupported(f"this bookie requires {_listed(missing)}, which the client lacks")
    return offered & known


class ClientHandshake:
    """The handshake of one connection. Send ``hello()``, then the result of ``answer`` for each
    frame, until ``is_done``; then ``incarnation`` and ``features`` hold for the connection.

    Brokers shake hands with each other in the same way: ``kind`` is what the other end is;
    ``cluster``: the one that it has to be of, if it says so.
    """

    def __init__(
        self,
        bookie_id: str,
        credentials: Credentials | None = None,
        *,
        features: Set[str] = FEATURES,
        required: Set[str] = frozenset(),
        kind: str = "bookie",
        cluster: str = "",
    ) -> None:
        self._bookie_id = bookie_id
        self._cluster = cluster
        self._peer = f"{kind} {bookie_id}"
        self._credentials = credentials
        self._offered = features | required
        self._required = required
        self._proof: Generator[bytes, bytes, None] | None = None
        self._sent = 0
        self.is_done = False
        self.incarnation = ""
        self.features: Set[str] = frozenset()

    def hello(self) -> bytes:
        fields = {
            "versions": [VERSION],
            "features": sorted(self._offered),
            "required": sorted(self._required),
            "auth": self._credentials.method if self._credentials else "",
        }
        return encode_request(Op.HELLO, 0, encode_hello(fields))

    def answer(self, frame: Frame) -> bytes:
        """Return the bytes to send now; nothing (b"") once the handshake is done.

        Raises FencelogError: UNAUTHORIZED, UNSUPPORTED_VERSION (either end's refusal),
        BOOKIE_UNAVAILABLE (another bookie is there); ProtocolError.
        """
        expected = Op.HELLO if self._sent == 0 else Op.AUTH
        if frame.op != expected | REPLY_BIT or frame.request_id != self._sent or self.is_done:
            raise ProtocolError(f"unexpected frame in the handshake of {self._peer}")
        if (error := error_of(frame, self._bookie_id)) is not None:
            raise error
        try:
            if self._proof is not None:
                message = self._proof.send(frame.body)
            else:
                self._read_hello(frame.body)
                if self._credentials is None:
                    self.is_done = True
                    return b""
                self._proof = self._credentials.prove(self._bookie_id)
                message = next(self._proof)
        except StopIteration:
            if not frame.flags & Flag.ACCEPTED:
                raise self._unauthorized("goes on asking after the last proof") from None
            self.is_done = True
            return b""
        if frame.flags & Flag.ACCEPTED:
            raise self._unauthorized("did not prove itself")
        self._sent += 1
        if self._sent > MAX_AUTH_STEPS:
            raise self._unauthorized(f"asks for more than {MAX_AUTH_STEPS} messages")
        return encode_request(Op.AUTH, self._sent, message)

    def _read_hello(self, body: bytes) -> None:
        """Check that the address still belongs to this bookie, and the features that it agreed
        to."""
        fields = decode_hello(body)
        if fields.get("bookie_id") != self._bookie_id:
            raise FencelogError(
                ErrorCode.BOOKIE_UNAVAILABLE,
                f"expected {self._peer}, found {fields.get('bookie_id')!r}",
            )
        if self._cluster and fields.get("cluster", self._cluster) != self._cluster:
            detail = f"the {self._peer} found there is of another cluster"
            raise FencelogError(ErrorCode.BOOKIE_UNAVAILABLE, detail)
        if fields.get("version") != VERSION:
            raise _unsupported(
                f"{self._peer} answers in version {fields.get('version')!r}, "
                f"this client speaks {VERSION}"
            )
        incarnation, features = fields.get("incarnation"), _names(fields, "features")
        if not isinstance(incarnation, str) or features - self._offered:
            raise ProtocolError(f"{self._peer} agrees to what was not offered")
        if missing := self._required - features:
            raise _unsupported(f"{self._peer} lacks {_listed(missing)}")
        if self._credentials and fields.get("auth") != self._credentials.method:
            raise self._unauthorized(f"does not prove itself by {self._credentials.method}")
        self.incarnation, self.features = incarnation, features

    def _unauthorized(self, what: str) -> FencelogError:
        return FencelogError(ErrorCode.UNAUTHORIZED, f"{self._peer} {what}")


def error_of(frame: Frame, bookie_id: str) -> FencelogError | None:
    """Return the error that a reply carries, if any."""
    if frame.status == 0:
        return None
    detail = frame.body.decode("utf-8", "replace")
    return FencelogError(code_from_wire(frame.status), prefix_bookie(bookie_id, detail))


def _names(fields: Mapping[str, Any], key: str) -> frozenset[str]:
    names = fields.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ProtocolError(f"{key} of a HELLO is no list of names")
    return frozenset(names)


def _listed(names: Set[str]) -> str:
    return ", ".join(sorted(names))


def _unsupported(detail: str) -> FencelogError:
    return FencelogError(ErrorCode.UNSUPPORTED_VERSION, detail)
