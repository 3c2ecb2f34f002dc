"""The limits and intervals of auditor and checks, each with its reason. Times in ms."""

from __future__ import annotations

LEDGERS_AT_ONCE = 32
"""The ledgers that are compared at the same time: enough to hide the round trips to metadata and
bookies, and at most as many requests in flight at each bookie."""

CHECK_REPEATS = 2
CHECK_REPEAT_DELAY_MS = 15_000
"""The looks after the first one at ledgers that lack something, and the delay before each. An add
in flight has failed or arrived by then (BOOKIE_TIMEOUT_MS), and a bookie that was killed has lost
its registration after two of them."""

UNAVAILABLE_REST_MS = 5_000
"""The time for which a bookie that did not answer is not asked again: one time-out for many
ledgers."""

UNDER_REPLICATED_TOO_LONG_MS = 24 * 3_600_000
"""The time for which a ledger may stay marked before that is a violation: a terabyte is copied in
nine hours at the default rate."""

MIN_RACKS_PER_WRITE_SET = 2
"""The racks that a write set has to span where the cluster has them (BookKeeper's
minNumRacksPerWriteQuorum)."""

ACCUSATION_ATTEMPTS = 5
"""The comparisons of a ledger whose metadata changes each time, before it is left for later."""

MAX_REPORTED_VIOLATIONS = 1_000
"""The violations that a report describes, some hundred bytes each. All of them are logged and
counted."""

MAX_STORED_VIOLATIONS = 100
"""The violations that the stored result of a check describes: a node has at most a megabyte."""

METADATA_RETRY_MS = 120_000
METADATA_RETRY_PAUSE_MS = 1_000
"""The outage of the metadata store that a check survives, and the pause between its attempts: a
restart of ZooKeeper must not waste a check of hours."""

ELECTION_RETRY_MS = 5_000
"""The time between two looks at the auditor's node, where the watch has seen no change; and the
pause before a process whose auditor failed stands for election again."""

LOST_BOOKIE_GRACE_MS = 600_000
"""The time for which a bookie may be away before its copies are made elsewhere: longer than a
restart, the move of a pod or the reboot of a machine (Ceph waits as long; BookKeeper's default of 0
copies at every restart)."""

REGISTRATION_LOOK_MS = 10_000
"""The interval at which registrations are read when no watch has fired."""

BOOKIE_CHECK_INTERVAL_MS = 86_400_000
"""The interval of the scan of all metadata for lost bookies (BookKeeper's
auditorPeriodicBookieCheckInterval)."""

LEDGER_CHECK_INTERVAL_MS = 7 * 86_400_000
"""The interval of the check of all ledgers that marks them (BookKeeper's
auditorPeriodicCheckInterval)."""

CLUSTER_CHECK_INTERVAL_MS = 86_400_000
"""The interval of the cluster metadata checker, which BookKeeper leaves off
(auditorPeriodicReplicasCheckInterval): it reads no entries, so a day is no burden."""

PLACEMENT_CHECK_INTERVAL_MS = 0
"""The interval of the repair of placement. 0: never; moving healthy copies is a person's choice
(BookKeeper's auditorPeriodicPlacementPolicyCheckInterval)."""

CHECK_RETRY_MS = 3_600_000
"""The time after which a check that has failed for another reason than an absent metadata store is
made again: one record that cannot be read must not leave a cluster unchecked for a week, nor be
scanned for all day."""

FIRST_CHECK_DELAY_MS = 60_000
"""The time after which a cluster is checked for the first time: bookies that start together are
there by then."""

MAX_CHOSEN_MARKS = 100
"""The ledgers that are marked at a time for a better place alone: their copies are healthy, and
lost ones are more urgent."""

SAMPLE_BYTES_PER_S = 8 * 1024 * 1024
"""The rate at which the ledger check reads samples of entries, as the scrubber's."""

DECOMMISSION_STEP_MS = 10_000
"""The interval at which decommissions are carried on. Each step of one that waits for copies scans
all metadata, so a larger cluster takes longer steps (DECOMMISSION_SCAN_SHARE)."""

DECOMMISSION_SCAN_SHARE = 10
"""The pause after a scan of metadata for a decommission, in multiples of its duration."""
