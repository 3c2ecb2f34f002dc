"""The limits of ledgers, messages and bookies, each with its reason. Sizes in bytes, times in ms.

Over a limit there is a clear refusal (``PAYLOAD_TOO_LARGE``, ``OVERLOADED``, a closed connection),
never memory growth and never something half done.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# -- entries, runs and frames ----------------------------------------------------------------------

MAX_ENTRY_BYTES = 8 * MIB
"""Payload of one ledger entry. BookKeeper's frame limit is 5 MiB; Kafka and Pulsar default to 1 and
5 MiB per message. 8 MiB holds the largest HTTP batch with its columns and headers."""

MAX_RUN_ENTRIES = 4096
"""Entries in one run: bounds the work that one frame can ask for (an index of 16 KiB)."""

MAX_RUN_BYTES = 12 * MIB
"""A run as sent, journaled and stored: one largest entry, its headers, and room to group."""

TARGET_RUN_BYTES = 1 * MIB
"""Writers close a run at this size: large enough to make per-run costs vanish, small enough that
a journal write of several runs stays below a few ms."""

MAX_FRAME_BYTES = MAX_RUN_BYTES + 4 * KIB
"""A wire frame: one largest run and its header. A longer one closes the connection unread."""

MAX_HELLO_BYTES = 4 * KIB
"""Handshake frame: versions, features and a name, or a step of authentication. Read before the peer
is known."""

MAX_AUTH_STEPS = 8
"""AUTH messages of a client before it is accepted, each in a handshake frame: more than any usual
method takes, and a stranger cannot keep a bookie busy."""

MIN_SECRET_BYTES = 16
"""A secret shared by clients and bookies: shorter ones can be found by trying."""

# -- ledgers ---------------------------------------------------------------------------------------

MAX_ENSEMBLE = 32
"""Bookies in an ensemble; metadata names them all in every fragment."""

MAX_FRAGMENTS = 10_000
"""Fragments of a ledger. Each ensemble change adds one; metadata must fit a ZooKeeper node."""

MAX_METADATA_BYTES = 900 * KIB
"""A metadata node. ZooKeeper refuses more than 1 MiB (jute.maxbuffer) a packet."""

METADATA_RESERVE_BYTES = 32 * KIB
"""What an open ledger leaves free of it: its end, and the ensembles of its recovery, must fit."""

WRITER_MAX_PENDING_BYTES = 64 * MIB
"""Unacknowledged payload of one ledger writer. Over it: ``OVERLOADED``, nothing was sent."""

EXPLICIT_LAC_INTERVAL_MS = 100
"""A writer that sends nothing for so long tells its bookies the LAC, which else would travel with
the next add. Readers of bookies see the last entries that much later; a topic of a few messages a
second costs each bookie one record more for each of them, which joins a sync that others pay."""

# -- bookie ----------------------------------------------------------------------------------------

BOOKIE_MAX_CONNECTIONS = 4096
"""Open connections of one bookie; file descriptors are shared with logs and index."""

BOOKIE_MAX_IN_FLIGHT_BYTES = 256 * MIB
"""Adds received and not yet answered, all connections. Over it reading from sockets pauses."""

BOOKIE_CONNECTION_OUT_BYTES = 64 * MIB
"""Answers waiting for one slow reader. Over it reading from that connection pauses."""

FREE_BYTES_REFRESH_MS = 60_000
"""Between two looks of a bookie at what its disk has left, which placement goes by."""

MAX_READ_BYTES = 4 * MIB
"""Entries in one read reply; a reader asks again for more."""

MAX_LISTED_RUNS = 16_384
"""Stored runs that one answer to "which entries do you have?" goes through, each some µs of the
index: tens of ms in which no read gets its turn. Each may become a group of 24 bytes, so that an
answer takes 384 KiB at most; whoever wants more asks again."""

MAX_ADMIN_BYTES = 64 * KIB
"""An operator's request to a running bookie, and its answer: JSON of some lines."""

MAX_LAC_WAITS = 16_384
"""Long polls waiting at one bookie: a task and a timer each, some KiB. Over it: ``OVERLOADED``."""

MAX_SIDE_BY_SIDE_READS = 32
"""Entries of a striped ledger that one read, or a recovery, asks for at once. Enough to keep an
ensemble busy; memory is bounded by bytes, as long as entries are alike."""

MAX_DISK_RESERVE_BYTES = 1024 * MIB
"""Of a bookie's disk, at most a fiftieth, kept for recovery and compaction when it takes nothing
else any more: an entry log's worth."""

MAX_BOOKIE_DIRECTORIES = 64
"""Journal or ledger directories of one bookie, each a shard with four threads. More disks than a
machine has."""

# -- repair of copies ------------------------------------------------------------------------------

COPY_BYTES_PER_S = 32 * MIB
"""What a bookie that repairs itself takes from the others: a terabyte in nine hours, and a third of
a gigabit network at most."""

COPIES_AT_ONCE = 4
"""Reads from other bookies on their way in a repair: hides the round trip of striped ledgers, whose
entries come one by one."""

COPY_READ_BYTES = 1 * MIB
"""Asked for in one of them: with one entry of the largest size each, 32 MiB are in memory."""

SOURCE_REST_MS = 60_000
"""A bookie that failed a repair's read is not asked again for so long, else each entry would cost
another time-out (BookKeeper's integrity check: one minute)."""

INTEGRITY_CHECK_MS = 3_000
"""How often a bookie looks whether there is something to repair (BookKeeper's)."""

MAX_LOST_ENTRIES_NOTED = 1_000
"""Entries of a ledger that nobody has, after which its repair goes no further."""

MAX_DAMAGED_RUNS = 10_000
"""Damaged runs that wait for their replacement, 200 bytes each; a lost disk is more than that, and
is repaired as a lost disk. What is over is found again by the next pass."""

SCRUB_BYTES_PER_S = 8 * MIB
"""What the scrubber reads: 690 GB a day, below a tenth of what a hard disk gives."""

SCRUB_INTERVAL_MS = 86_400_000
"""From the beginning of one pass of the scrubber to that of the next: a day, if it ends by then."""

# -- messages --------------------------------------------------------------------------------------

MAX_MESSAGE_BYTES = 4 * MIB
"""Value of one message. Larger objects belong in an object store, their address in the log."""

MAX_KEY_BYTES = 64 * KIB
"""Key of one message."""

MAX_HEADERS = 64
"""Headers of one message."""

MAX_HEADER_BYTES = 32 * KIB
"""Names and values of one message's headers together."""

MAX_BATCH_MESSAGES = 100_000
"""Messages in one ``:batch`` request, so that one request cannot hold the event loop for long."""

# -- times -----------------------------------------------------------------------------------------

BOOKIE_TIMEOUT_MS = 5_000
"""A bookie that has not answered by then: to an add it counts as failed, to a read its answer is
unknown (BookKeeper's default for both)."""

ADMIN_WAIT_MS = 30_000
"""So much longer than any other request may an operator's take. What would take minutes is begun,
and ``status`` tells of it."""

DISK_WATCH_MS = 1_000
"""How often a bookie looks how full its disks are: within this time the fastest disks write less
than what is kept free."""

SPECULATIVE_READ_MS = 200
"""A bookie that has not answered a read by then: another of the write set is asked as well. Far
above a read from a busy disk, far below the time-out; too low doubles the load when it hurts."""

LAC_POLL_MS = 5_000
"""One round of a tailing reader. Then it looks at metadata: bookies are not told that a writer
closed its ledger, so this bounds how late that is seen, and what idle readers cost."""

MAX_LAC_WAIT_MS = 60_000
"""Long poll for the LAC of an open ledger: a reader asks again after it."""

CONNECT_TIMEOUT_MS = 2_000
"""Opening a TCP connection and the handshake, in one rack."""

METADATA_TIMEOUT_MS = 10_000
"""A metadata operation; after it the outcome is unknown. Also the wait for ZooKeeper at start."""
