"""The limits of a connection of the HTTP server, with their reasons."""

from __future__ import annotations

from fencelog.ledgers.limits import KIB

KEEP_ALIVE_S = 75
"""The time that idle connections stay open, longer than clients keep theirs: the side that closes
should be the client, which knows that it has no request in flight."""

LAST_REQUEST_S = 0.5
"""The time that a connection stays open at the server's end for a request that its client has sent
before it could know; the answer to it ends the connection."""

MAX_DIRECT_BODY_BYTES = 64 * KIB
"""The longest body of a single post that is gathered by the connection itself. Above it, reading
takes longer than dispatching, and bodies that arrive are counted together (``BodyReader``)."""
