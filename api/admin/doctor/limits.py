"""The limits of the doctor, each with its reason."""

from __future__ import annotations

ANSWER_MS = 3_000
"""The time for one process to answer: a person waits for the slowest of them, and one that takes
longer to say how it is does not serve well either."""

METADATA_MS = 5_000
"""The time for the metadata store to answer all of one kind."""

SCAN_MS = 30_000
"""The time to read the metadata of every ledger: 10,000 take a few seconds."""

ASKED_AT_ONCE = 64
"""The processes, or metadata nodes, that are asked side by side."""

FRESH_MS = 500
"""The age up to which an examination is shown again: a console on many screens polls, and on each
of them a failure shows within three seconds."""

FORGOTTEN_MS = 60_000
"""The time for which a finding has to be away to count as a new one when it is found again: what
did not answer once has not been mended."""

TOPICS_FRESH_MS = 60_000
"""The age up to which the settings of topics are taken as they were, unless everything is scanned:
each topic is a read of its own."""

NAMES_FRESH_MS = 2_000
"""The age up to which no other topics are looked for: their names are a read for each namespace."""

CLOCK_SKEW_MS = 1_000
"""The difference of clocks that matters: publish times and retention go by them, and a synchronized
clock is off by milliseconds."""

STUCK_STEP_MS = 10_000
"""The time after which a change of a ledger list is stuck; it takes milliseconds."""

STUCK_TAKEOVER_MS = 10_000
"""The same for a takeover, which takes a second."""

FILLING_NOTICE_S = 7 * 86_400
FILLING_WARNING_S = 86_400
FILLING_CRITICAL_S = 2 * 3_600
"""The times to a full disk: order another one, delete something today, be quick."""

CERTIFICATE_NOTICE_S = 30 * 86_400
CERTIFICATE_WARNING_S = 7 * 86_400
CERTIFICATE_CRITICAL_S = 86_400
"""The times to the end of a certificate: have another one made, put it in place this week, now."""

CHECK_OVERDUE_MS = 3 * 86_400_000
"""The age of the last complete check from which on nobody knows whether all copies are there: it is
made daily."""

MAX_ALONE = 5
"""The partitions that are stuck in the same way and have a finding each; more of them are one."""

MAX_SUBSCRIPTIONS = 10
"""The subscriptions that have a finding each, those that hold most; the rest is one."""

MAX_SHOWN = 20
"""The topics, ledgers and partitions that one finding names; the rest is counted."""
