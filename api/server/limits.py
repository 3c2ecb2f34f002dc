"""The limits of a connection of the HTTP server, with their reasons."""

from __future__ import annotations

from fencelog.ledgers.limits import KIB, MIB

KEEP_ALIVE_S = 75
"""The time that idle connections stay open, longer than clients keep theirs: the side that closes
should be the client, which knows that it has no request in flight."""

LAST_REQUEST_S = 0.5
"""The time that a connection stays open at the server's end for a request that its client has sent
before it could know; the answer to it ends the connection."""

MAX_DIRECT_BODY_BYTES = 64 * KIB
"""The longest body of a single post that is gathered by the connection itself. Above it, reading
takes longer than dispatching, and bodies that arrive are counted together (``BodyReader``)."""

MAX_HEAD_BYTES = 64 * KIB
"""The limit of a request's line and headers: a message's headers may have 32 KiB."""

HEAD_S = 10
"""The time for a head to arrive. Clients send it in one piece; one that drips it holds a
connection."""

BODY_S = 60
"""The time for a body to arrive; one that takes longer holds memory for too long."""

BODY_STALL_S = 20
"""The time within which more of a body has to arrive: longer than what TCP needs to repeat lost
packets a few times."""

LINGER_S = 1.0
"""The time that a connection goes on reading after an answer that ends it with a body unread: a
reset might destroy the answer before the client has read it."""

MAX_CONNECTIONS = 16_384
"""The limit of connections: some 10 KiB each while they are idle, 64 KiB and more while they send
bodies, and one file descriptor each. A process with too few of these takes fewer
(``processes/descriptors.py``)."""

MAX_REFUSED_CONNECTIONS = 32
"""The connections beyond the limit that are told so, each for LINGER_S at most; more of them are
closed at once, since they take descriptors as well."""

MAX_UNTAKEN_BYTES = 512 * MIB
"""The limit of answers that wait for their clients in the connections of one server. Above it those
end whose clients have taken nothing for longest: a message, or a pull, may be 4 MiB for each."""

MAX_ANSWERS_TOGETHER = 16
"""The paths that one request may ask for: more than any page of the console shows."""

MAX_ANSWER_BYTES = 4 * MIB
"""The largest answer among several: each is gathered as a whole, and larger ones are to be asked
for alone, where they are sent while they are rendered."""

ANSWERS_MS = 10_000
"""The time for an answer among several: the doctor asks processes for 3 s and metadata for 5 s."""
