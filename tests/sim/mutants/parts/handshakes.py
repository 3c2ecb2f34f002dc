"""Wrong beginnings of connections to bookies: who is at the other end, and how it is proved."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

AUTHENTICATION = "fencelog.ledgers.rpc.authentication"
CONNECTION = "fencelog.ledgers.rpc.bookie_connection"
HANDSHAKE = "fencelog.ledgers.rpc.handshake"
SECRET_FILE = "fencelog.ledgers.rpc.secret_file"

_HANDSHAKE = "PROTOCOL.md: the handshake"
_HOSTILE = "PROTOCOL.md: hostile frames"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "proof-of-an-earlier-connection",
        _HANDSHAKE,
        "What a client has sent on one connection opens another one.",
        (
            Edit(
                AUTHENTICATION,
                "SharedSecret.prove",
                "nonces = nonce + _nonce((yield nonce), bookie_id)",
                "_nonce((yield nonce), bookie_id)\n        nonces = nonce",
            ),
            Edit(
                AUTHENTICATION,
                "SharedSecret.verify",
                "nonces = _nonce(first, bookie_id) + nonce",
                "nonces = _nonce(first, bookie_id)",
            ),
        ),
    ),
    Mutant(
        "proof-of-an-earlier-bookie",
        _HANDSHAKE,
        "What a bookie has sent on one connection proves it on another one.",
        (
            Edit(
                AUTHENTICATION,
                "SharedSecret.prove",
                "nonces = nonce + _nonce((yield nonce), bookie_id)",
                "nonces = _nonce((yield nonce), bookie_id)",
            ),
            Edit(
                AUTHENTICATION,
                "SharedSecret.verify",
                "nonces = _nonce(first, bookie_id) + nonce",
                "_nonce(first, bookie_id)\n        nonces = nonce",
            ),
        ),
    ),
    Mutant(
        "bookie-believed-unproved",
        _HANDSHAKE,
        "A client does not look at the proof of the bookie.",
        (
            Edit(
                AUTHENTICATION,
                "SharedSecret.prove",
                '_known((self._secret,), proof, b"bookie", nonces, bookie_id)',
                "_nonce(proof, bookie_id)",
            ),
        ),
    ),
    Mutant(
        "proof-for-any-bookie",
        _HANDSHAKE,
        "A proof for one bookie is one for all.",
        (
            Edit(
                AUTHENTICATION,
                "_proof",
                "role + nonces + bookie_id.encode()",
                "role + nonces",
            ),
        ),
    ),
    Mutant(
        "short-secret-beside-a-long-one",
        _HANDSHAKE,
        "A secret that is too short is accepted beside another one.",
        (Edit(AUTHENTICATION, "SharedSecret.__init__", "min(map(", "max(map("),),
    ),
    Mutant(
        "another-bookie-at-the-address",
        _HANDSHAKE,
        "A bookie is taken for the one that was at its address before.",
        (
            Edit(
                HANDSHAKE,
                "ClientHandshake._read_hello",
                'if fields.get("bookie_id") != self._bookie_id:',
                'if not fields.get("bookie_id"):',
            ),
        ),
    ),
    Mutant(
        "bookie-without-a-method",
        _HANDSHAKE,
        "A client that has a secret goes on with a bookie that asks for none.",
        (
            Edit(
                HANDSHAKE,
                "ClientHandshake._read_hello",
                'raise self._unauthorized(f"does not prove itself by {self._credentials.method}")',
                "self._credentials = None",
            ),
        ),
    ),
    Mutant(
        "accepted-before-the-proof",
        _HANDSHAKE,
        "A bookie that accepts a client need not prove itself.",
        (
            Edit(
                HANDSHAKE,
                "ClientHandshake.answer",
                '            raise self._unauthorized("did not prove itself")\n',
                '            self.is_done = True\n            return b""\n',
            ),
        ),
    ),
    Mutant(
        "answer-to-an-earlier-message",
        _HANDSHAKE,
        "An answer of the handshake is taken whichever message it is for.",
        (
            Edit(
                HANDSHAKE,
                "ClientHandshake.answer",
                " or frame.request_id != self._sent",
                "",
            ),
        ),
    ),
    Mutant(
        "feature-that-was-not-offered",
        _HANDSHAKE,
        "A bookie may agree to what the client did not offer.",
        (
            Edit(
                HANDSHAKE,
                "ClientHandshake._read_hello",
                " or features - self._offered",
                "",
            ),
        ),
    ),
    Mutant(
        "accepted-secret-stands-alone",
        _HANDSHAKE,
        "A bookie with a secret to accept and none of its own lets everybody in.",
        (
            Edit(
                SECRET_FILE,
                "secret_from",
                "        if accepted is not None:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "lost-right-after-the-greeting",
        _HANDSHAKE,
        "A connection that ends right behind its greeting counts as one that is there.",
        (Edit(CONNECTION, "establish", "if connection.is_over:", "if False:"),),
    ),
    Mutant(
        "large-frame-before-the-greeting",
        _HOSTILE,
        "A frame of any size is received before the handshake is over.",
        (
            Edit(
                CONNECTION,
                "BookieConnection.connection_made",
                "        self.transport = stream",
                "        self._frames.accept_large_frames()\n        self.transport = stream",
            ),
        ),
    ),
)
