"""Every limit of the system, in one place, each with its reason. Sizes in bytes, times in ms or s.

Over a limit there is a clear refusal (``PAYLOAD_TOO_LARGE``, ``OVERLOADED``, a closed connection),
never memory growth and never something half done.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# -- entries, runs and frames --------------------------------------------------------------------

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

# -- ledgers -------------------------------------------------------------------------------------

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

# -- bookie --------------------------------------------------------------------------------------

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

# -- repair of copies ----------------------------------------------------------------------------

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

# -- topics --------------------------------------------------------------------------------------

MAX_NAME_BYTES = 128
"""Namespace and topic names (ASCII letters, digits, ``._-``): they stand in URLs and metadata."""

MAX_PARTITIONS = 1024
"""Partitions of one topic; each is a log of its own with its own ledgers."""

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

MAX_BODY_BYTES = 7 * MIB
"""Body of one HTTP request; with columns and headers it still fits ``MAX_ENTRY_BYTES``."""

MAX_READ_MESSAGES = 100_000
"""Messages in one read answer."""

MAX_WAIT_MS = 60_000
"""Long poll: proxies cut idle requests after about a minute."""

MAX_PARTITION_PENDING_BYTES = 32 * MIB
"""Appends waiting in one partition. Over it: 503 with ``Retry-After``, nothing was written."""

MAX_BROKER_PENDING_BYTES = 256 * MIB
"""Appends waiting in all partitions of one broker."""

STATE_ENTRY_BYTES = 1 * MIB
"""Events of a partition's state in one entry; a larger snapshot takes several."""

STATE_LEDGER_BYTES = 8 * MIB
"""A state ledger goes on in a new one at this size, or at four times its snapshot: what a takeover
has to read."""

MAX_STATE_EVENTS_WAITING = 10_000
"""Changes of one partition's state that wait for bookies. Over it: ``OVERLOADED``, nothing is
changed."""

MAX_PULL_MESSAGES = 10_000
"""Messages leased by one pull: some 20 ms of the event loop, and a client that dies holds no more
back."""

MAX_DELIVERY_DELAY_MS = 366 * 24 * 3600 * 1000
"""Delay of a message's delivery: a year. Until then it holds back what is trimmed behind the
slowest subscription."""

SUBSCRIPTION_LOOK_MS = 60_000
"""How often a broker compares the cursors of its partitions with the subscriptions that there are.
Far longer than a server of the metadata store may lag: what is missing twice is gone."""

MAX_ACK_IDS = 10_000
"""Ack ids in one request: those of the largest pull."""

MAX_LEASE_MS = 12 * 3600 * 1000
"""A message can be kept from others for half a day; work that takes longer extends its lease."""

MAX_NACK_DELAY_MS = 24 * 3600 * 1000
"""What is to come back later than a day hence is better appended anew, with its time."""

MAX_CONSUMER_NAME_BYTES = 128
"""The name by which a consumer pulls; it stands in statistics and in each of its leases."""

MAX_CONSUMERS = 1_000
"""Consumers that a subscription remembers in one partition. Who was silent longest is forgotten,
then, over it, a new name is refused: each of them is looked at when a place becomes free."""

MAX_OUTSTANDING = 100_000
"""Messages of one partition that a subscription may have with its consumers: some 20 MB."""

MAX_HELD_MESSAGES = 50_000
"""Messages that a subscription remembers in one partition because they have to wait: until their
time, after a refusal, behind another one of their key, for the dead letter topic. Over it nothing
new is looked at. Some 200 bytes each."""

MAX_ACK_RANGES = 50_000
"""Ranges of acknowledged messages above the first one that is not. Over it no new messages are
handed out until ranges grow together; acknowledgements are never dropped. Some 20 bytes each in a
snapshot of the state, which a takeover has to read."""

KEPT_RUNS = 5
"""Appends of each producer whose offsets are remembered for whoever repeats them: as many as Kafka
lets a producer have on their way. An older duplicate is known as one, but not where it is."""

MAX_IDEMPOTENCY_KEYS = 50_000
"""Idempotency keys that a partition remembers, 300 bytes each; above, the oldest go before their
window has passed. At more than 80 keys a second over ten minutes a producer id serves better."""

MAX_IDEMPOTENCY_KEY_BYTES = 256
"""An idempotency key, in a header of HTTP."""

MAX_FENCING_TOKEN_BYTES = 256
"""A fencing token, in a header of HTTP."""

MAX_CLAIMED_PRODUCERS = 1_000
"""Producers that have held a partition exclusively, whose former epochs stay fenced; the one that
claimed longest ago goes."""

MAX_REPLAY_ENTRIES = 1_000
"""Entries with producers that a takeover may have to read again: after so many, or after one of the
next two, the state log is told what they changed."""

MAX_REPLAY_BYTES = 16 * MIB
"""… or after so many bytes: some 50 ms from the bookies."""

MAX_REPLAY_RUNS = 16_384
"""… or after so many runs of producers in them."""

MAX_WAITING_APPENDS = 1_000
"""Appends of one partition that wait for others, or for a change of who may append. Over it:
``OVERLOADED``."""

TAIL_CACHE_BYTES = 16 * MIB
"""Newest entries that a partition keeps in memory for readers at the tail."""

BROKER_CACHE_BYTES = 256 * MIB
"""Tail caches of all partitions of one broker: with thousands of them memory has to stay flat."""

READ_AHEAD_CHUNK_BYTES = 4 * MIB
"""What is fetched for readers that catch up, before they ask for it: one read reply."""

READ_AHEAD_BYTES = 64 * MIB
"""Such chunks of all partitions of one broker: sixteen, or eight readers at places of their own,
each with one chunk in hand and one ahead. With more of them nothing is fetched ahead."""

CATCH_UP_BYTES = 32 * MIB
"""Asked for from bookies by catch-up reads at the same time, in one broker: eight chunks keep any
network busy, and appends find their way between them."""

ANSWER_BYTES = 256 * MIB
"""Stored bytes in answers of one broker that their clients have not taken yet. Over it reads wait
for a turn, and are refused when none comes."""

ANSWER_TURN_MS = 5_000
"""How long a read waits for such a turn. Then: ``OVERLOADED``."""

ANSWER_STALL_MS = 60_000
"""A client that takes nothing of its answer for so long loses its connection, and with it its share
of the memory for answers."""

COMPACTED_ENTRY_BYTES = 512 * KIB
COMPACTED_ENTRY_MESSAGES = 5_000
"""An entry of a compacted view is closed at either: packing it holds the loop for a few ms."""

MAX_COMPACTION_KEYS = 500_000
"""Different keys that one pass of compaction looks at: 60 MiB while it runs, and one runs at a time.
What has more of them is compacted in several passes."""

COMPACTION_LOOK_MS = 5_000
"""How often a broker looks which logs are to be compacted: some ms for 10,000 of them."""

COMPACTION_RETRY_MS = 60_000
"""After a compaction that failed: what it lacked, bookies or metadata, may take a while."""

MAX_OPENING_PARTITIONS = 64
"""Partitions that a broker opens at the same time: enough to keep ZooKeeper and bookies busy; with
more, each would only take longer, to its time-out in the end."""

MAX_MOVING_PARTITIONS = 16
"""Partitions that a broker hands over at the same time when it drains. Each is closed for as long
as its turn takes at both brokers, so few at a time keep the gap short."""

MAX_LISTED_PARTITIONS = 10_000
"""Partitions in one answer about a broker: some 2 MB of JSON."""

SWEEP_LEDGERS_PER_S = 200
"""What the sweep looks at: two or three reads of metadata each, a tenth of what ZooKeeper gives a
single client. A million ledgers take an hour and a half."""

MAX_DISK_RESERVE_BYTES = 1024 * MIB
"""Of a bookie's disk, at most a fiftieth, kept for recovery and compaction when it takes nothing
else any more: an entry log's worth."""

# -- times ---------------------------------------------------------------------------------------

BOOKIE_TIMEOUT_MS = 5_000
"""A bookie that has not answered by then: to an add it counts as failed, to a read its answer is
unknown (BookKeeper's default for both)."""

ADMIN_WAIT_MS = 30_000
"""So much longer than any other request may an operator's take. What would take minutes is begun,
and ``status`` tells of it."""

MAX_BOOKIE_DIRECTORIES = 64
"""Journal or ledger directories of one bookie, each a shard with four threads. More disks than a
machine has."""

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

SLOW_OPENING_MS = 2_000
"""An opening that takes longer waits for a bookie, and lets another begin beside it."""

OFFER_TIMEOUT_MS = 5_000
"""How long a partition's former owner waits for the next one to open it, its requests with it."""

OWNER_GONE_MS = 1_000
"""An owner whose node is gone for so long is not waited for any more: requests that were passed on
to it end. One that lives puts its node back, or has answered, long before."""

METADATA_TIMEOUT_MS = 10_000
"""A metadata operation; after it the outcome is unknown. Also the wait for ZooKeeper at start."""
