"""The bookie's side of the handshake of a connection: HELLO, then AUTH if the bookie requires it.

Without I/O: frames in, frames out; ``ledgers.handshake`` is the other end.
"""

from __future__ import annotations

from collections.abc import Generator, Set

from fencelog.ledgers.errors import ErrorCode, FencelogError, ProtocolError
from fencelog.ledgers.limits import MAX_AUTH_STEPS
from fencelog.ledgers.rpc.authentication import Authenticator
from fencelog.ledgers.rpc.handshake import FEATURES, agree_on_features
from fencelog.ledgers.rpc.wire import (
    VERSION,
    Flag,
    Frame,
    Op,
    decode_hello,
    encode_error,
    encode_hello,
    encode_reply,
)


class ServerHandshake:
    """The handshake of one connection. Exactly one of ``is_accepted`` and ``is_refused`` becomes
    true; before, only HELLO and AUTH are valid."""

    def __init__(
        self,
        bookie_id: str,
        incarnation: str,
        authenticator: Authenticator | None = None,
        *,
        features: Set[str] = FEATURES,
        required: Set[str] = frozenset(),
        kind: str = "bookie",
        cluster: str = "",
    ) -> None:
        """Begin a handshake. ``cluster``: the one that this end says it is of, if it says so."""
        self._bookie_id = bookie_id
        self._cluster = cluster
        self._kind = kind
        self._incarnation = incarnation
        self._authenticator = authenticator
        self._known = features | required
        self._required = required
        self._handshake_done = False
        self._proof: Generator[bytes, bytes, bytes] | None = None
        self._steps = 0
        self.features: Set[str] = frozenset()
        self.is_accepted = False
        self.is_refused = False

    def answer(self, frame: Frame) -> bytes:
        """Return the reply to a frame. Raises ProtocolError for a frame that is not valid here.

        After a refusal the reply is b"": further frames are ignored, for closing the connection
        upon one could keep the refusal from being read.
        """
        if self.is_refused:
            return b""
        if frame.op == Op.HELLO and not self._handshake_done:
            step = self._hello
        elif frame.op == Op.AUTH and self._handshake_done:
            step = self._auth
        else:
            raise ProtocolError(f"operation {frame.op} is not valid in a handshake")
        try:
            return step(frame)
        except ProtocolError:
            raise
        except FencelogError as error:
            self.is_refused = True
            return encode_error(frame.op, frame.request_id, error.code, error.detail)

    def _hello(self, frame: Frame) -> bytes:
        hello = decode_hello(frame.body)
        self.features = agree_on_features(hello, self._known, self._required)
        method = self._authenticator.method if self._authenticator else ""
        if method and hello.get("auth") != method:
            raise self._unauthorized(
                f"asks for authentication by {method}, the client offers "
                f"{hello.get('auth') or 'none'}"
            )
        self._handshake_done = True
        self.is_accepted = not method
        fields = {
            "version": VERSION,
            "features": sorted(self.features),
            "bookie_id": self._bookie_id,
            "incarnation": self._incarnation,
            "auth": method,
        }
        if self._cluster:
            fields["cluster"] = self._cluster
        return encode_reply(Op.HELLO, frame.request_id, encode_hello(fields))

    def _auth(self, frame: Frame) -> bytes:
        authenticator = self._authenticator
        if authenticator is None or self.is_accepted:
            raise ProtocolError("AUTH where there is nothing to prove")
        self._steps += 1
        if self._steps > MAX_AUTH_STEPS:
            raise self._unauthorized(f"takes at most {MAX_AUTH_STEPS} messages of a client")
        try:
            if self._proof is None:
                self._proof = authenticator.verify(self._bookie_id, frame.body)
                message = next(self._proof)
            else:
                message = self._proof.send(frame.body)
        except StopIteration as end:
            self.is_accepted = True
            return encode_reply(Op.AUTH, frame.request_id, end.value, Flag.ACCEPTED)
        return encode_reply(Op.AUTH, frame.request_id, message)

    def _unauthorized(self, what: str) -> FencelogError:
        return FencelogError(ErrorCode.UNAUTHORIZED, f"{self._kind} {self._bookie_id} {what}")
