"""The authentication of clients and bookies to each other: a conversation of opaque messages.

A method is a name and two generators, one for each end. Each receives the other's message from its
``yield`` and yields its own; the client sends the first message, and the bookie's last message
comes with the acceptance. Either end raises UNAUTHORIZED when it is not satisfied, and the
connection ends.

Later messages on an accepted connection are neither encrypted nor signed: the method excludes
unknown clients and mix-ups; the network has to exclude attackers that can change bytes on the wire.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Generator
from typing import Protocol

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.limits import MIN_SECRET_BYTES

NONCE_BYTES = 32


class Credentials(Protocol):
    """The client's end."""

    @property
    def method(self) -> str: ...

    def prove(self, bookie_id: str) -> Generator[bytes, bytes, None]:
        """Yield messages to the bookie; returns when the bookie has proved itself too. Raises
        FencelogError(UNAUTHORIZED)."""


class Authenticator(Protocol):
    """The bookie's end."""

    @property
    def method(self) -> str: ...

    def verify(self, bookie_id: str, first: bytes) -> Generator[bytes, bytes, bytes]:
        """Yield answers to the client, whose first message is ``first``; returns the last answer
        when the client is accepted. Raises FencelogError(UNAUTHORIZED)."""


class SharedSecret:
    """The method of a shared secret: both ends prove by HMAC-SHA256 over both ends' nonces that
    they know it.

        client -> bookie   client nonce (32 bytes)
        bookie -> client   bookie nonce (32 bytes)
        client -> bookie   HMAC(secret, "fencelog auth client" nonces, bookie id)
        bookie -> client   HMAC(secret, "fencelog auth bookie" nonces, bookie id)

    The secret itself is never sent. A proof holds for one connection (nonces), one direction (the
    words differ, so none can be sent back) and one bookie (its id), so it is of no use elsewhere.
    The client proves itself first: a client that can merely reach a bookie receives nothing from
    which to guess the secret.
    """

    method = "hmac-sha256"

    def __init__(self, secret: bytes, *, host: Host) -> None:
        """Create a method. Raises FencelogError(BAD_REQUEST) if the secret is shorter than
        MIN_SECRET_BYTES."""
        if len(secret) < MIN_SECRET_BYTES:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"a secret of {len(secret)} bytes, at least {MIN_SECRET_BYTES} are needed",
            )
        self._secret = secret
        self._host = host

    def prove(self, bookie_id: str) -> Generator[bytes, bytes, None]:
        nonce = self._host.random_bytes(NONCE_BYTES)
        nonces = nonce + _nonce((yield nonce), bookie_id)
        proof = yield self._proof(b"client", nonces, bookie_id)
        self._check(proof, b"bookie", nonces, bookie_id)

    def verify(self, bookie_id: str, first: bytes) -> Generator[bytes, bytes, bytes]:
        nonce = self._host.random_bytes(NONCE_BYTES)
        nonces = _nonce(first, bookie_id) + nonce
        proof = yield nonce
        self._check(proof, b"client", nonces, bookie_id)
        return self._proof(b"bookie", nonces, bookie_id)

    def _proof(self, role: bytes, nonces: bytes, bookie_id: str) -> bytes:
        text = b"fencelog auth " + role + nonces + bookie_id.encode()
        return hmac.new(self._secret, text, hashlib.sha256).digest()

    def _check(self, proof: bytes, role: bytes, nonces: bytes, bookie_id: str) -> None:
        if not hmac.compare_digest(proof, self._proof(role, nonces, bookie_id)):
            raise FencelogError(
                ErrorCode.UNAUTHORIZED,
                f"the {role.decode()} does not know the secret (connection to bookie {bookie_id})",
            )


def _nonce(message: bytes, bookie_id: str) -> bytes:
    if len(message) != NONCE_BYTES:
        raise FencelogError(
            ErrorCode.UNAUTHORIZED,
            f"a nonce of {len(message)} bytes on a connection to bookie {bookie_id}",
        )
    return message
