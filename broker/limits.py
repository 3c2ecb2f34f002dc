"""The limits of topics, their producers, readers and subscribers, each with its reason.

Those of ledgers, messages and bookies stand in ``ledgers/limits.py``, where it says what happens
over a limit.
"""

from __future__ import annotations

from fencelog.ledgers.limits import KIB, MIB

# -- topics and requests ---------------------------------------------------------------------------

MAX_NAME_BYTES = 128
"""Namespace and topic names (ASCII letters, digits, ``._-``): they stand in URLs and metadata."""

MAX_PARTITIONS = 1024
"""Partitions of one topic; each is a log of its own with its own ledgers."""

MAX_BODY_BYTES = 7 * MIB
"""Body of one HTTP request; with columns and headers it still fits ``MAX_ENTRY_BYTES``."""

MAX_READ_MESSAGES = 100_000
"""Messages in one read answer."""

MAX_WAIT_MS = 60_000
"""Long poll: proxies cut idle requests after about a minute."""

# -- appends ---------------------------------------------------------------------------------------

MAX_PARTITION_PENDING_BYTES = 32 * MIB
"""Appends waiting in one partition. Over it: 503 with ``Retry-After``, nothing was written."""

MAX_BROKER_PENDING_BYTES = 256 * MIB
"""Appends waiting in all partitions of one broker."""

MAX_WAITING_APPENDS = 1_000
"""Appends of one partition that wait for others, or for a change of who may append. Over it:
``OVERLOADED``."""

# -- state of a partition --------------------------------------------------------------------------

STATE_ENTRY_BYTES = 1 * MIB
"""Events of a partition's state in one entry; a larger snapshot takes several."""

STATE_LEDGER_BYTES = 8 * MIB
"""A state ledger goes on in a new one at this size, or at four times its snapshot: what a takeover
has to read."""

MAX_STATE_EVENTS_WAITING = 10_000
"""Changes of one partition's state that wait for bookies. Over it: ``OVERLOADED``, nothing is
changed."""

# -- producers -------------------------------------------------------------------------------------

RECENT_APPENDS = 5
"""Appends of each producer whose offsets are remembered for whoever repeats them: as many as Kafka
lets a producer have on their way. An older duplicate is known as one, but not where it is."""

MAX_IDEMPOTENCY_KEYS = 50_000
"""Idempotency keys that a partition remembers, 300 bytes each; above, the oldest go before their
window has passed. At more than 80 keys a second over ten minutes a producer id serves better."""

MAX_IDEMPOTENCY_KEY_BYTES = 256
"""An idempotency key, in a header of HTTP."""

MAX_FENCING_TOKEN_BYTES = 256
"""A fencing token, in a header of HTTP."""

MAX_WAITING_CHANGES = 100
"""Changes of who may append that wait for one another in one partition: each may take seconds where
the state log is not written, and goes on without its caller. Over it: ``OVERLOADED``."""

MAX_CLAIMED_PRODUCERS = 1_000
"""Producers that have held a partition exclusively, whose former epochs stay fenced; the one that
claimed longest ago goes."""

MAX_CHOSEN_EPOCH = 2**62
"""Highest epoch that an append may name if no claim has given it. Claims give higher ones than any
that they find, and one append must not use up the numbers of 64 bits."""

MAX_REPLAY_ENTRIES = 1_000
"""Entries with producers that a takeover may have to read again: after so many, or after one of the
next two, the state log is told what they changed."""

MAX_REPLAY_BYTES = 16 * MIB
"""… or after so many bytes: some 50 ms from the bookies."""

MAX_REPLAY_RUNS = 16_384
"""… or after so many runs of producers in them."""

# -- subscriptions ---------------------------------------------------------------------------------

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

# -- reads -----------------------------------------------------------------------------------------

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

# -- compaction ------------------------------------------------------------------------------------

COMPACTED_ENTRY_BYTES = 512 * KIB
COMPACTED_ENTRY_MESSAGES = 5_000
"""An entry of a compacted view is closed at either: packing it holds the loop for a few ms."""

MAX_COMPACTION_KEYS = 500_000
"""Different keys that one pass of compaction looks at: 60 MiB while it runs, and one runs at a
time. What has more of them is compacted in several passes."""

COMPACTION_LOOK_MS = 5_000
"""How often a broker looks which logs are to be compacted: some ms for 10,000 of them."""

COMPACTION_RETRY_MS = 60_000
"""After a compaction that failed: what it lacked, bookies or metadata, may take a while."""

# -- partitions of a broker ------------------------------------------------------------------------

MAX_OPENING_PARTITIONS = 64
"""Partitions that a broker opens at the same time: enough to keep ZooKeeper and bookies busy; with
more, each would only take longer, to its time-out in the end."""

SLOW_OPENING_MS = 2_000
"""An opening that takes longer waits for a bookie, and lets another begin beside it."""

MAX_MOVING_PARTITIONS = 16
"""Partitions that a broker hands over at the same time when it drains. Each is closed for as long
as its turn takes at both brokers, so few at a time keep the gap short."""

OFFER_TIMEOUT_MS = 5_000
"""How long a partition's former owner waits for the next one to open it, its requests with it."""

OWNER_LOST_MS = 1_000
"""An owner whose node is gone for so long is not waited for any more: requests that were passed on
to it end. One that lives puts its node back, or has answered, long before."""

MAX_LISTED_PARTITIONS = 10_000
"""Partitions in one answer about a broker: some 2 MB of JSON."""

# -- ledgers that nobody lists ---------------------------------------------------------------------

SWEEP_LEDGERS_PER_S = 200
"""What the sweep looks at: two or three reads of metadata each, a tenth of what ZooKeeper gives a
single client. A million ledgers take an hour and a half."""
