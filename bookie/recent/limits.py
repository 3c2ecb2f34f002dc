"""The limits and intervals of the recent check, each with its reason. Times in ms."""

from __future__ import annotations

RECENT_CHECK_INTERVAL_MS = 60_000
"""The interval at which new ledgers are looked for. A ledger that was seen open is looked at when
its metadata changes."""

SETTLE_MS = 15_000
"""The time between a change, or a look that finds copies missing, and the next look: an add in
flight has failed or arrived by then (BOOKIE_TIMEOUT_MS). Not longer than the interval."""

LOOKS_PER_S = 100
"""The ledgers that are looked at per second, each for one read of metadata and a list of each of
its bookies: some ten percent of a core. A broker's 10,000 partitions, all closed at once by a
takeover, are seen within two minutes."""

LOOKS_AT_ONCE = 16
"""The looks side by side: enough to hide the round trips."""

LIST_TIMEOUT_REST_MS = 5_000
"""The time for which a bookie that did not answer is not asked again: one time-out for many
ledgers."""

LAST_PAUSE_MS = 600_000
"""The longest pause before the next look at a ledger of which a bookie could not tell, or that is
marked and not repaired yet; each is twice the previous one."""

MAX_WATCHED_LEDGERS = 20_000
"""The open ledgers that are watched, some 2 KB each in this process. Those beyond are read again at
every interval, as far as LOOKS_PER_S allows."""

MAX_TRACKED_LEDGERS = 200_000
"""The ledgers that wait for a look or are open, some 300 bytes each. Those beyond are found again
by a later listing."""

NEWEST_DIRECTORIES = 2
"""The directories of 65,536 ledgers that are listed at every interval; ids are given out in blocks,
so that a client may use one late. Of the others one is listed at a time."""

MAX_SAVED_DIRECTORIES = 16
"""The bitmaps of verified ledgers, of up to 8 KB, that are written in one interval."""
