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
from collections.abc import Generator, Sequence
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

    A secret is changed in steps, each of them carried out everywhere before the next: both ends
    accept the new one too; they prove that they know the new one; they forget the old one.
    """

    method = "hmac-sha256"

    def __init__(self, secret: bytes, *, host: Host, accepted: Sequence[bytes] = ()) -> None:
        """Create a method. ``accepted``: secrets of which clients may know one instead. Raises
        FencelogError(BAD_REQUEST) if one is shorter than MIN_SECRET_BYTES."""
        self._secret, self._accepted, self._host = secret, (secret, *accepted), host
        shortest = min(map(len, self._accepted))
        if shortest < MIN_SECRET_BYTES:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"a secret of {shortest} bytes, at least {MIN_SECRET_BYTES} are needed",
            )

    def prove(self, bookie_id: str) -> Generator[bytes, bytes, None]:
        nonce = self._host.random_bytes(NONCE_BYTES)
        nonces = nonce + _nonce((yield nonce), bookie_id)
        proof = yield _proof(self._secret, b"client", nonces, bookie_id)
        _known((self._secret,), proof, b"bookie", nonces, bookie_id)

    def verify(self, bookie_id: str, first: bytes) -> Generator[bytes, bytes, bytes]:
        nonce = self._host.random_bytes(NONCE_BYTES)
        nonces = _nonce(first, bookie_id) + nonce
        proof = yield nonce
        secret = _known(self._accepted, proof, b"client", nonces, bookie_id)
        return _proof(secret, b"bookie", nonces, bookie_id)


def _proof(secret: bytes, role: bytes, nonces: bytes, bookie_id: str) -> bytes:
    text = b"fencelog auth " + role + nonces + bookie_id.encode()
    return hmac.new(secret, text, hashlib.sha256).digest()


def _known(
    secrets: Sequence[bytes], proof: bytes, role: bytes, nonces: bytes, bookie_id: str
) -> bytes:
    """Return the secret that the other end has proved to know."""
    for secret in secrets:
        if hmac.compare_digest(proof, _proof(secret, role, nonces, bookie_id)):
            return secret
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
