"""The limits of ledgers, messages and bookies, each with its reason. Sizes in bytes, times in ms.

A request over a limit is refused clearly (``PAYLOAD_TOO_LARGE``, ``OVERLOADED``, a closed
connection); memory never grows without bound and nothing is half done.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# -- processes -------------------------------------------------------------------------------------

KEPT_FREE_BYTES = 64 * MIB
"""The memory at the end of a heap that a process has freed and keeps for its next buffers: what the
reads and appends in flight take at a time. With a fifth of it a third of the pages of a sequential
read are still new to the process."""

# -- entries, runs and frames ----------------------------------------------------------------------

MAX_ENTRY_BYTES = 8 * MIB
"""The payload of one ledger entry. BookKeeper's frame limit is 5 MiB; Kafka and Pulsar default to 1
and 5 MiB per message. 8 MiB holds the largest HTTP batch with its columns and headers."""

MAX_RUN_ENTRIES = 4096
"""The entries in one run: bounds the work that one frame can ask for (an index of 16 KiB)."""

MAX_RUN_BYTES = 12 * MIB
"""A run as sent, journaled and stored: one largest entry, its headers, and space for grouping."""

TARGET_RUN_BYTES = 1 * MIB
"""The size at which writers close a run: large enough to make per-run costs vanish, small enough
that a journal write of several runs stays below a few ms."""

MAX_FRAME_BYTES = MAX_RUN_BYTES + 4 * KIB
"""A wire frame: one largest run and its header. A longer frame closes the connection unread."""

MAX_HELLO_BYTES = 4 * KIB
"""A handshake frame: versions, features and a name, or a step of authentication. It is read before
the peer is known."""

MAX_REQUEST_ID_BYTES = 128
"""The id that a client gives its request: longer than any UUID, or id of a proxy; it is repeated in
log lines, and in frames for each bookie."""

MAX_CONTEXTS = 16
"""The requests that are named with one run of entries. They fit a frame beside the largest run;
where a thousand requests share an entry, the first ones stand for it."""

MAX_AUTH_STEPS = 8
"""The AUTH messages of a client before it is accepted, each in a handshake frame: more than any
usual method needs, and few enough that an unknown client cannot keep a bookie busy."""

MIN_SECRET_BYTES = 16
"""A secret shared by clients and bookies, or a password for ZooKeeper, whose access lists show its
hash: shorter ones can be found by trying."""

MAX_ZOOKEEPER_USERS = 8
"""The users as whom a process authenticates to ZooKeeper: two while a password is changed. Every
access list names all of them."""

MAX_ZOOKEEPER_CREDENTIALS_BYTES = 4 * KIB
"""The file of these users; a longer one is another file."""

# -- ledgers ---------------------------------------------------------------------------------------

MAX_ENSEMBLE = 32
"""The bookies in an ensemble; metadata names them all in every fragment."""

MAX_FRAGMENTS = 10_000
"""The fragments of a ledger. Each ensemble change adds one; metadata must fit a ZooKeeper node."""

MAX_METADATA_BYTES = 900 * KIB
"""A metadata node. ZooKeeper refuses more than 1 MiB (jute.maxbuffer) a packet."""

MAX_COMMIT_BYTES = 1_000_000
"""The paths and values of the changes that are made together: less than a packet of ZooKeeper
(jute.maxbuffer, 1,048,575 bytes) by what their versions and access lists take. A server ends the
connection of a larger one, and with it all that the process has in flight; and does so again as
often as that is repeated."""

MAX_ZOOKEEPER_PACKET_BYTES = 64 * MIB
"""One answer of ZooKeeper. A server's own limit is 1 MiB unless it is configured otherwise; a
larger length is no answer of one."""

METADATA_RESERVE_BYTES = 32 * KIB
"""The part of a metadata node that an open ledger leaves free for its end and for the ensembles of
its recovery."""

WRITER_MAX_PENDING_BYTES = 64 * MIB
"""The unacknowledged payload of one ledger writer. Over it: ``OVERLOADED``, nothing was sent."""

EXPLICIT_LAC_INTERVAL_MS = 250
"""The idle time after which a writer sends the LAC to its bookies; otherwise it travels with the
next add. Readers of bookies see the last entries that much later. A topic of a few messages a
second costs each bookie one more record for each of them: a thousand topics of ten messages a
second, each, send it for one message in twelve (after 100 ms: for one in three)."""

EXPLICIT_LAC_TICK_MS = 25
"""The time within which the LACs of idle ledgers that become due leave together, at its end. So a
broker of a thousand topics wakes up forty times a second to send them, and each bookie syncs them
as often, instead of thousands of times; readers see the last entries up to a tenth of the interval
later."""

MAX_ADDS_AT_ONCE = 512
"""The runs in one ADD_MANY. Its answers, if all are refused, take half a MiB."""

MAX_ADDS_BYTES = 128 * KIB
"""The runs in one ADD_MANY together, unless it is a single one. They are copied into one frame:
that costs less than a frame and an answer for each as long as they are small."""

MAX_LACS_AT_ONCE = 512
"""The LACs in one WRITE_LACS: a request of 8 KiB. Its answer, if all are refused, and what is
accounted for them until they are durable take about half a MiB."""

# -- bookie ----------------------------------------------------------------------------------------

BOOKIE_MAX_CONNECTIONS = 4096
"""The open connections of one bookie; file descriptors are shared with logs and index. A process
with too few of these takes fewer."""

BOOKIE_MAX_IN_FLIGHT_BYTES = 256 * MIB
"""The adds received and not yet answered, over all connections. Over it reading from sockets
pauses."""

BOOKIE_CONNECTION_OUT_BYTES = 64 * MIB
"""The answers waiting for one slow reader. Over it reading from that connection pauses."""

FREE_BYTES_REFRESH_MS = 60_000
"""The time between two checks of a bookie's free disk space, which placement uses."""

MAX_READ_BYTES = 4 * MIB
"""The entries in one read reply; a reader asks again for more."""

MAX_READ_RANGES = 1024
"""The ranges in one READ_RANGES: a request of 12 KiB, for MAX_READ_BYTES of rows of small
entries."""

MIN_PLACED_BYTES = TARGET_RUN_BYTES // 4
"""The bytes that a reply has to be answered by from each stored run, so that it names the run's
place and leaves the reading to a client on the same machine. A flush merges runs up to this size;
below it a file holds so little in a row that finding, reading and checking each run costs the
client more than the bytes do on a socket."""

MAX_PLACED_BYTES = 64 * MIB
"""The runs whose places one reply to READ names: what a Spark task reads, mostly. The client reads
MAX_READ_BYTES of them at a time; a request for each piece would cost as much as to read it."""

MAX_PLACED_RUNS = 128
"""The places in one reply: a reply of 1.5 KiB, and MAX_PLACED_BYTES of runs that are half full."""

MAX_PLACED_PATH_BYTES = 4 * KIB
"""The path of a file in such a reply: PATH_MAX of Linux."""

MAX_FENCES_AT_ONCE = 64
"""The ledgers in one FENCE request: enough that the frame costs next to nothing for each, few
enough that an answer with entries of all of them stays within MAX_READ_BYTES."""

FENCE_READ_BYTES = 16 * KIB
"""The bytes of entries that the answer to FENCE may contain for each ledger: the last entry of an
idle ledger, mostly. What is larger is read separately."""

MAX_LISTED_RUNS = 16_384
"""The stored runs that one answer to "which entries do you have?" covers, each some µs of the
index: tens of ms in which no read is served. Each may become a group of 24 bytes, so an answer
takes 384 KiB at most; a client that wants more asks again."""

MAX_ADMIN_BYTES = 64 * KIB
"""An operator's request to a running bookie, and its answer: JSON of some lines. The limit of the
bodies of an administrative request to a broker as well, which parses them between appends."""

MAX_LAC_WAITS = 16_384
"""The long polls waiting at one bookie: a task and a timer each, some KiB. Over it:
``OVERLOADED``."""

MAX_SIDE_BY_SIDE_READS = 32
"""The entries of a striped ledger that one read, or a recovery, asks for at once. Enough to keep an
ensemble busy; memory is bounded by bytes, as long as entries are similar in size."""

MAX_DISK_RESERVE_BYTES = 1024 * MIB
"""The part of a bookie's disk, at most a fiftieth, kept for recovery and compaction when the bookie
accepts nothing else any more: the size of an entry log."""

MAX_BOOKIE_DIRECTORIES = 64
"""The journal or ledger directories of one bookie, each a shard with four threads. More than the
disks of any machine."""

# -- repair of copies ------------------------------------------------------------------------------

COPY_BYTES_PER_S = 16 * MIB
"""The rate at which a bookie that repairs itself, or a replication worker, reads from bookies: a
terabyte in 18 hours. On a machine of two cores that does all of it, with a disk shared by all, the
p99 of appends at most doubles meanwhile; at twice the rate it does not stay within that."""

COPIES_AT_ONCE = 4
"""The reads from other bookies in flight in the repair of a ledger: hides their round trip."""

COPY_READ_BYTES = TARGET_RUN_BYTES + 64 * KIB
"""The size of one such read, at most: a full run of a writer, with its index and padding. With one
entry of the largest size each, 32 MiB are in memory."""

COPY_PART_MS = 8
"""Under a limit of the rate, the size of one such read is what may be copied in this time (128 KiB
at the usual rate): larger pieces in a journal make appends wait."""

COPY_PENDING_BYTES = 4 * MIB
"""The copies of a ledger that were sent and are not durable yet: many share a sync of the journal,
as in a writer's pipeline."""

SOURCE_REST_MS = 60_000
"""The time for which a bookie that failed a repair's read is not asked again, unless it has started
again by then; otherwise each entry would cost another timeout (BookKeeper's integrity check: one
minute)."""

ARRIVAL_REST_MS = 30_000
"""The shortest time between two attempts at all repairs that wait, each because a bookie has
registered: one that starts again and again costs no more than that."""

INTEGRITY_CHECK_MS = 3_000
"""The interval at which a bookie checks whether there is something to repair (BookKeeper's)."""

MAX_LOST_ENTRIES_NOTED = 1_000
"""The entries of a ledger missing on every bookie, after which its repair goes no further."""

MAX_DAMAGED_RUNS = 10_000
"""The damaged runs that wait for their replacement, 200 bytes each; a lost disk has more than that,
and is repaired as a lost disk. The next pass finds the rest again."""

SCRUB_BYTES_PER_S = 8 * MIB
"""The rate of the scrubber's reads: 690 GB a day, below a tenth of what a hard disk gives."""

SCRUB_INTERVAL_MS = 86_400_000
"""The time from the beginning of one pass of the scrubber to that of the next: a day, if the pass
ends by then."""

# -- re-replication --------------------------------------------------------------------------------

LEDGERS_AT_ONCE = 4
"""The ledgers that a replication worker repairs at the same time, each with COPIES_AT_ONCE reads: a
slow source delays one of them, and 128 MiB are in memory at most."""

REPLICATION_CHECK_MS = 5_000
"""The interval at which a replication worker lists the ledgers that lack copies: one write and one
listing of each 65,536 ledgers."""

REPLICATION_ROUND_MS = 60_000
"""The time after which a replication worker that has more to repair lists the marks again: a ledger
that has lost another copy meanwhile comes next, and a listing of 10,000 marks takes seconds."""

OPEN_LEDGER_GRACE_MS = 30_000
"""The time without any progress of its writer after which an open ledger that lacks copies is
recovered, which ends the writer (BookKeeper's ``openLedgerRereplicationGracePeriod``). A writer
that appends replaces a lost bookie by itself."""

SELF_REPAIR_ATTEMPTS = 6
"""The attempts, a minute in all, for which a bookie that answers is left its own repair, or given
what it lacks, before another bookie takes its place. Attempts that come early, as a bookie
registers, or that end before the bookie is asked, do not count."""

MAX_REPLICATION_ROUNDS = 5
"""The number of times that one attempt looks at a ledger again after a change, before others have
their turn."""

# -- messages --------------------------------------------------------------------------------------

MAX_MESSAGE_BYTES = 4 * MIB
"""The value of one message. Larger objects belong in an object store, their address in the log."""

MAX_KEY_BYTES = 64 * KIB
"""The key of one message."""

MAX_HEADERS = 64
"""The headers of one message."""

MAX_HEADER_BYTES = 32 * KIB
"""The names and values of one message's headers together."""

MAX_BATCH_MESSAGES = 100_000
"""The messages in one ``:batch`` request, so that one request cannot hold the event loop for
long."""

# -- times -----------------------------------------------------------------------------------------

BOOKIE_TIMEOUT_MS = 5_000
"""The time in which a bookie has to answer. After it an add counts as failed, and the answer to a
read is unknown (BookKeeper's default for both)."""

ADMIN_WAIT_MS = 30_000
"""The extra time that an operator's request may take beyond any other. Work that would take minutes
is only started, and ``status`` reports on it."""

JOURNAL_STUCK_MS = 30_000
"""The time for which a disk may answer nothing before the bookie says that only a restart can help.
A healthy disk needs ms, one that is overloaded seconds; writers have gone elsewhere after
BOOKIE_TIMEOUT_MS."""

DISK_WATCH_MS = 1_000
MIN_DISK_WATCH_MS = 10
MAX_DISK_BYTES_PER_S = 2 * 1024 * MIB
"""The interval at which a bookie checks how full its disks are: the time in which a disk of this
speed writes what is left for adds, but within these bounds."""

DISK_RESERVE_SHARE = 16
MAX_DISK_RESERVE_FILE_BYTES = 64 * MIB
"""The size of the file that a standalone service removes when its disk is full: this share of the
disk, but not more than deleting topics and starting again needs (metadata, a journal file of each
bookie)."""

SPECULATIVE_READ_MS = 200
"""The time after which another bookie of the write set is asked as well if one has not answered a
read. Far above a read from a busy disk, far below the timeout; too low a value doubles the load
when it hurts."""

LAC_POLL_MS = 5_000
"""One round of a tailing reader. Then it reads metadata: bookies are not notified that a writer
closed its ledger, so this bounds how late that is seen, and what idle readers cost."""

MAX_LAC_WAIT_MS = 60_000
"""The longest long poll for the LAC of an open ledger: a reader asks again after it."""

CONNECT_TIMEOUT_MS = 2_000
"""The time for opening a TCP connection and the handshake, in one rack."""

WARM_UP_MS = 1_000
"""The time that a process spends on connections before it is of use. A bookie that does not take
one by then is probably away, and others wait for this process."""

METADATA_TIMEOUT_MS = 10_000
"""The time for a metadata operation; after it the outcome is unknown. Also the wait for ZooKeeper
at start."""
