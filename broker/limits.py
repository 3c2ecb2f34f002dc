"""The limits of topics, their producers, readers and subscribers, each with its reason.

Those of ledgers, messages and bookies stand in ``ledgers/limits.py``, which also says what happens
over a limit.
"""

from __future__ import annotations

from fencelog.ledgers.limits import KIB, MIB

# -- topics and requests ---------------------------------------------------------------------------

MAX_NAME_BYTES = 128
"""The names of namespaces and topics (ASCII letters, digits, ``._-``): they stand in URLs and
metadata."""

MAX_PARTITIONS = 1024
"""The partitions of one topic; each is a log of its own with its own ledgers."""

MAX_BODY_BYTES = 7 * MIB
"""The body of one HTTP request; with columns and headers it still fits ``MAX_ENTRY_BYTES``."""

MAX_READ_MESSAGES = 100_000
"""The messages in one read answer."""

MAX_WAIT_MS = 60_000
"""The time of a long poll: proxies cut idle requests after about a minute."""

# -- appends ---------------------------------------------------------------------------------------

MAX_PARTITION_PENDING_BYTES = 32 * MIB
"""The appends waiting in one partition. Over it: 503 with ``Retry-After``, nothing was written."""

MAX_BROKER_PENDING_BYTES = 256 * MIB
"""The appends waiting in all partitions of one broker; and apart from these, the request bodies
that have arrived in part."""

SHARE_OF_ADDRESS = 2
"""The part of a limit, one in so many, that one client address may take: of the connections, and of
the bodies that have arrived in part. So it cannot exclude all others by itself; a load balancer is
one address, so that it may have much."""

MAX_WAITING_APPENDS = 1_000
"""The appends of one partition that wait for others, or for a change of access. Over it:
``OVERLOADED``."""

# -- state of a partition --------------------------------------------------------------------------

STATE_ENTRY_BYTES = 1 * MIB
"""The events of a partition's state in one entry; a larger snapshot takes several."""

STATE_LEDGER_BYTES = 8 * MIB
"""The size at which a state ledger is continued in a new one, or at four times its snapshot: a
takeover has to read all of it."""

MAX_STATE_EVENTS_WAITING = 10_000
"""The changes of one partition's state that wait for bookies. Over it: ``OVERLOADED``, nothing is
changed."""

# -- producers -------------------------------------------------------------------------------------

RECENT_APPENDS = 5
"""The appends of each producer whose offsets are remembered for repetitions: as many as Kafka
allows a producer to have in flight. An older duplicate is recognised, but its offset is not
known."""

MAX_PREVIOUS_COUNTS = 16
"""The previous numbers of partitions that a topic remembers: an append under an idempotency key
asks about one partition for each of them. More growth within ``idempotency_window_ms`` is
refused."""

LATE_GROWTH_MS = 60_000
"""The time after which every broker knows of a topic's new partitions: many times what a watch, or
a new session with the metadata store, takes."""

MAX_IDEMPOTENCY_KEYS = 50_000
"""The idempotency keys that a partition remembers, 300 bytes each; above, the oldest are forgotten
before their window has passed. At more than 80 keys a second over ten minutes a producer id serves
better."""

MAX_IDEMPOTENCY_KEY_BYTES = 256
"""An idempotency key, in a header of HTTP."""

MAX_FENCING_TOKEN_BYTES = 256
"""A fencing token, in a header of HTTP."""

MAX_WAITING_CHANGES = 100
"""The changes of access that wait for one another in one partition: each may take seconds where the
state log is not written, and continues without its caller. Over it: ``OVERLOADED``."""

MAX_WAITING_COMMITS = 100
"""The commits of segments that wait for one another in one partition. Over it: ``OVERLOADED``."""

MAX_COMMITTERS = 200
"""The committers of segments that one partition remembers. One takes up to 300 bytes of the list of
ledgers, which is written with every change. Beyond it one that has ended or is idle is forgotten;
where there is none: ``LIMIT_REACHED``."""

IDLE_COMMITTER_S = 30 * 24 * 3600.0
"""The time without a commit after which a committer may be forgotten, and a batch that it repeats
is a new one. A query that runs once a month still repeats its last batch within it."""

MAX_COMMIT_LEDGERS = 1_000
"""The ledgers of one commit. Each is closed and read before, at some ms each, 16 at a time."""

PENDING_LEDGER_S = 24 * 3600.0
"""The time in which a ledger that was made for a committer has to be committed; then the sweep may
delete it."""

MAX_CLAIMED_PRODUCERS = 1_000
"""The producers that have claimed a partition, whose previous epochs stay fenced; the oldest claim
is forgotten first."""

MAX_CHOSEN_EPOCH = 2**62
"""The highest epoch that an append may name if no claim has assigned it. Claims assign higher ones
than any that they find, and one append must not use up the numbers of 64 bits."""

MAX_REPLAY_ENTRIES = 1_000
"""The entries with producers that a takeover may have to read again: after so many, or after one of
the next two, the changes are written to the state log."""

MAX_REPLAY_BYTES = 16 * MIB
"""… or after so many bytes: some 50 ms from the bookies."""

MAX_REPLAY_RANGES = 16_384
"""… or after so many sequence ranges in them."""

# -- subscriptions ---------------------------------------------------------------------------------

MAX_PULL_MESSAGES = 10_000
"""The messages leased by one pull: some 20 ms of the event loop, and a client that dies holds back
no more than these."""

MAX_DELIVERY_DELAY_MS = 366 * 24 * 3600 * 1000
"""The delay of a message's delivery: a year. Until then it keeps messages after it from being
trimmed behind the slowest subscription."""

SUBSCRIPTION_LOOK_MS = 60_000
"""The interval at which a broker compares the cursors of its partitions with the existing
subscriptions. Far longer than a server of the metadata store may lag: a subscription that is
missing twice is gone."""

MAX_ACK_IDS = 10_000
"""The ack ids in one request: those of the largest pull."""

MAX_LEASE_MS = 12 * 3600 * 1000
"""The longest lease: a message can be kept from others for half a day; work that takes longer
extends its lease."""

MAX_NACK_DELAY_MS = 24 * 3600 * 1000
"""The longest delay of a refused message: one that is to be delivered more than a day later is
better appended again, with its time."""

MAX_CONSUMER_NAME_BYTES = 128
"""The name by which a consumer pulls; it stands in statistics and in each of its leases."""

MAX_CONSUMERS = 1_000
"""The consumers that a subscription remembers in one partition. The one that was silent longest is
forgotten; then, over the limit, a new name is refused: each of them is examined when a place
becomes free."""

MAX_OUTSTANDING = 100_000
"""The messages of one partition that a subscription may have with its consumers: some 20 MB."""

MAX_HELD_MESSAGES = 50_000
"""The messages that a subscription remembers in one partition because they have to wait: until
their time, after a refusal, behind another one of their key, for the dead letter topic. Over it no
new messages are read. Some 200 bytes each."""

MAX_ACK_RANGES = 50_000
"""The ranges of acknowledged messages above the first unacknowledged one. Over it no new messages
are delivered until ranges merge; acknowledgements are never dropped. Some 20 bytes each in a
snapshot of the state, which a takeover has to read."""

# -- reads -----------------------------------------------------------------------------------------

TAIL_CACHE_BYTES = 16 * MIB
"""The newest entries that a partition keeps in memory for readers at the tail."""

BROKER_CACHE_BYTES = 256 * MIB
"""The tail caches of all partitions of one broker: with thousands of them memory has to stay
flat."""

READ_AHEAD_CHUNK_BYTES = 4 * MIB
"""The size of a prefetch for readers that catch up: one read reply."""

READ_AHEAD_BYTES = 64 * MIB
"""The prefetched chunks of all partitions of one broker: sixteen, or eight readers at different
positions, each with one chunk in use and one ahead. With more of them nothing is prefetched."""

CATCH_UP_BYTES = 32 * MIB
"""The bytes requested from bookies by catch-up reads at the same time, in one broker: eight chunks
keep any network busy, and appends are sent between them."""

ANSWER_BYTES = 256 * MIB
"""The stored bytes in answers of one broker that their clients have not taken yet. Over it reads
wait, and are refused after the time limit."""

ANSWER_TURN_MS = 5_000
"""The time limit of such a wait. After it: ``OVERLOADED``."""

ANSWER_STALL_MS = 60_000
"""The time after which a client that takes nothing of its answer loses its connection, and with it
its share of the memory for answers."""

# -- compaction ------------------------------------------------------------------------------------

COMPACTED_ENTRY_BYTES = 512 * KIB
COMPACTED_ENTRY_MESSAGES = 5_000
"""The messages, and the bytes, of which either closes an entry of a compacted view: packing it
holds the loop for a few ms."""

MAX_COMPACTION_KEYS = 500_000
"""The different keys that one pass of compaction examines: 60 MiB while it runs, and one runs at a
time. A log with more of them is compacted in several passes."""

COMPACTION_LOOK_MS = 5_000
"""The interval at which a broker checks which logs are to be compacted: some ms for 10,000 of
them."""

COMPACTION_RETRY_MS = 60_000
"""The pause after a compaction that failed: missing bookies or metadata may stay away for a
while."""

# -- partitions of a broker ------------------------------------------------------------------------

MAX_OPENING_PARTITIONS = 64
"""The partitions that a broker opens at the same time: enough to keep ZooKeeper and bookies busy;
with more, each would only take longer, the first ones too, in the end until its timeout."""

SLOW_OPENING_MS = 2_000
"""The time after which an opening, which then waits for a bookie, lets another begin beside it."""

MAX_MOVING_PARTITIONS = MAX_OPENING_PARTITIONS
"""The partitions that a broker transfers at the same time when it drains. Each is closed for as
long as its transfer takes at both brokers; more than the other broker opens at a time would only
wait there."""

OFFER_TIMEOUT_MS = 5_000
"""The time for which a partition's previous owner waits for the next one to open it, together with
its requests."""

MAX_OFFERS = 2
"""The number of brokers that are asked to take a partition; after them, any broker that gets the
next request does."""

OWNER_LOST_MS = 1_000
"""The time after which requests that were forwarded to an owner whose node is gone end, if that
broker is not registered any more; while it is, the time between two looks."""

OWNER_MOVED_MS = MAX_OFFERS * OFFER_TIMEOUT_MS + OWNER_LOST_MS
"""The time after which they end although that broker is registered: a living one lets them wait for
the next owner as long as its offers do, and answers."""

QUIET_CHECK_MS = 30_000
"""The time after which an owner that is asked for messages, and has acknowledged none, looks
whether it was replaced. Appends prove that it was not; without this, a log that is only read would
show an old tail for ever. One metadata read per partition and period."""

OPENED_AT_ONCE = 16
"""The ledgers of a partition whose metadata is read at a time, when a direct reader asks for all of
them. One after the other, a log of thousands takes seconds; all at once, they would hold up the
store for everybody else."""

MAX_LISTED_PARTITIONS = 10_000
"""The partitions in one answer about a broker: some 2 MB of JSON."""

# -- links between brokers -------------------------------------------------------------------------

LINK_MAX_REQUESTS = 16_384
"""The requests in flight from one broker to another, followed streams among them: as many as a
broker has clients. Over it: ``OVERLOADED``, nothing was sent."""

LINK_MAX_PENDING_BYTES = 64 * MIB
"""The bytes of requests in flight from one broker to another: what a writer may have on its way
to a bookie. Over it: ``OVERLOADED``, nothing was sent."""

LINK_WINDOW_BYTES = 256 * KIB
"""The bytes of one answer on a link that its reader has not taken yet: enough to keep a connection
of 1 ms busy, and a thousand slow readers hold 256 MiB."""

LINK_CHUNK_BYTES = 64 * KIB
"""The part of an answer in one frame. Between two of them other answers are sent."""

LINK_PING_MS = 1_000
"""The interval at which a broker that waits for answers asks whether the other one is still
there."""

LINK_MAX_MISSED_PINGS = 5
"""The pings without any sign of life after which a link counts as half-open: together as long as a
bookie may take (``BOOKIE_TIMEOUT_MS``)."""

LINK_IDLE_MS = 20_000
"""The time after which an unused link is closed: dialling again costs a millisecond, and a request
on a link that has become half-open unnoticed is of unknown outcome."""

# -- unlisted ledgers -----------------------------------------------------------------------------

SWEEP_LEDGERS_PER_S = 200
"""The ledgers that the sweep examines in a second: two or three reads of metadata each, a tenth of
what ZooKeeper gives a single client. A million ledgers take an hour and a half."""

# -- the console ----------------------------------------------------------------------------------

MAX_LISTED_TAKEOVERS = 100
"""The takeovers of a partition that its ledger list remembers: some 6 KiB of its node, and years of
them where brokers are restarted once a month."""

MAX_VIEWED_LEDGERS = 200
"""The ledgers of a partition that are described at a time, each by two reads of metadata."""

MAX_VIEWED_SUBSCRIPTIONS = 100
"""The subscriptions that are described with them, the slowest: more do not fit on a screen."""

MAX_TOPIC_PAGE = 200
"""The topics in one page with figures, each by a read of metadata."""

ADMIN_ANSWER_S = 2
"""The time for one broker or bookie to answer what a screen asks of all of them: who needs longer
is named, and the screen shows what the others answered."""

STATS_WAIT_S = 0.1
"""The time that a list of names waits for the figures of brokers: nobody sees it, and a broker that
works answers within a tenth of it."""

KEPT_STATS_S = 10
"""The age up to which a list shows the figures that a broker has sent last, when its next ones are
late: twice the time between two questions of a screen."""

TOPIC_TOTALS_MS = 2_000
"""The age up to which a broker's figures of topics are used again: a console that is refreshed
every few seconds costs one look at all partitions, however many people watch it."""

MAX_SUBSCRIPTION_PAGE = 1_000
"""The subscriptions in one page with figures, which are all in memory: some 200 bytes each."""

NAMES_AT_ONCE = 32
"""The topics whose subscriptions are read from metadata side by side, to learn their names."""

LAG_SAMPLE_MS = 10_000
LAG_SAMPLES = 360
"""The interval of the samples of a cursor's lag, and how many are kept: an hour, in which a person
sees whether a subscription catches up."""

MAX_SAMPLED_CURSORS = 10_000
"""The cursors of one broker whose lag is kept: 3 KB each, 30 MB. Those that come later are sampled
when others go."""

RECENT_LAG_SAMPLES = 30
"""The samples of the lag in a list of subscriptions: the last 5 minutes."""

RATE_SAMPLE_MS = 5_000
RATE_SAMPLES = 60
"""The interval of the samples of rates, and how many are kept: 5 minutes, in which a person sees
whether traffic has stopped just now. The rates themselves are means over some 15 s."""

MAX_SAMPLED_TOPICS = 10_000
"""The topics of one broker whose rates are kept: 1.2 KB each, 12 MB. Idle ones have none."""

MAX_SAMPLES_BACK = 12
"""The samples that are left out when the clock was set back, of at most two minutes; beyond that,
what was kept is of another time."""

# -- the timeline of events ------------------------------------------------------------------------

MAX_QUEUED_EVENTS = 10_000
"""The events of one broker that wait to be appended, some 3 MB: a broker that takes 10,000
partitions over at once records each. Over it an event is dropped and counted."""

EVENT_BATCH = 500
"""The events in one append: some 150 KiB, rendered in a millisecond."""

EVENT_LINGER_MS = 100
"""The time that the first event of a batch waits for others: an event seldom comes alone, and a
person does not notice it."""

EVENT_APPEND_MS = 30_000
"""The time limit of one append of events; after it the outcome is unknown. Longer than a takeover
of the topic may take."""

EVENT_PAUSE_MS = 1_000
"""The pause after an append of events that failed."""

EVENT_REPEAT_MS = 5 * 60 * 1000
"""The time for which an append of unknown outcome is repeated: half of
``EVENT_WINDOW_MS``, so that the key is certainly remembered."""

EVENT_WINDOW_MS = 10 * 60 * 1000
"""The time for which the topic of events remembers the key of an append."""

EVENT_FLUSH_MS = 1_000
"""The time for which a broker that drains or ends waits for its last events to be durable."""

UNREACHABLE_FOR_MS = 10_000
"""The time for which a broker whose port refused connections counts as unreachable in the record of
takeovers: as long as its partitions take to be requested again."""

MAX_EVENT_TEXT = 300
"""The characters of an error in an event."""

MAX_EVENT_LEDGERS = 100
"""The ledgers that an event names: a batch of such events is far below ``MAX_BODY_BYTES``."""

EVENTS_RETENTION_MS = 30 * 24 * 3600 * 1000
EVENTS_RETENTION_BYTES = 256 * MIB
"""The time for which events are kept, or the size up to which they are: a million of them, each an
answer to "what happened last month?"."""

EVENTS_ROLL_BYTES = 16 * MIB
"""The size of a ledger of events: retention deletes whole ledgers."""

MAX_EVENTS_PAGE = 1_000
"""The events in one answer: some 400 KB of JSON."""

MAX_EVENTS_SCANNED = 10_000
"""The events that are read for one answer that a filter makes short: some 30 ms, in steps."""

# -- figures --------------------------------------------------------------------------------------

SHOWN_TOPICS = 100
"""The topics with a row of their own in the metrics of a broker, the busiest: five series each, so
that 100 brokers have 50,000, which a small Prometheus holds."""

SHOWN_SUBSCRIPTIONS = 100
"""The same for subscriptions, those with the longest backlog."""

SHOWN_PARTITIONS = 100
"""The same for partitions, the busiest, where they are asked for."""

STATS_AT_ONCE = 200
"""The partitions that are looked at in one turn of the event loop: about a millisecond, with a
subscription each."""

RANKED_AT_ONCE = 2_000
"""The topics or subscriptions that are compared in one turn of the event loop: half a
millisecond."""

SHOWN_AT_ONCE = 20
"""The partitions with rows of their own that are measured in one turn of the event loop: half a
millisecond, as each of their ledgers is looked at."""

STATS_NAMES_MS = 1_000
"""The time for metadata to tell the names of subscriptions that are shown for the first time:
Prometheus waits 10 s for everything."""

MAX_SHOWN_TROUBLES = 100
"""The partitions in trouble of each kind that a broker describes; the rest is counted. A person
reads the first few, and what ails a hundred ails the cluster."""
