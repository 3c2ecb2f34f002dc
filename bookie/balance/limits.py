"""The limits and intervals of balancing, each with its reason. Times in ms."""

from __future__ import annotations

BEGIN_SHARE = 0.2
"""The distance between the fullest and the emptiest bookie, as a share of the mean, from which on
copies are moved. Placement is random, and so is what topics delete: a smaller distance comes and
goes by itself, and copies that were moved for it would have to come back."""

END_SHARE = 0.1
"""The distance down to which they are moved, once they are: far enough below BEGIN_SHARE that new
ledgers do not begin it again soon."""

MAX_MOVES = 100
"""The ledgers that are marked at a time: they are read again by each worker at each of its
looks."""

ROUND_MS = 600_000
"""The time for which moves are planned ahead, by the rate of one worker: what topics delete
meanwhile changes the balance."""

LOOK_MS = 10_000
"""The interval at which the auditor looks whether the marked moves are over, or whether what lacks
copies has them."""

INTERVAL_MS = 300_000
"""The interval at which all metadata is read where nothing is to be moved. A larger cluster takes
longer (SCAN_SHARE)."""

SCAN_SHARE = 10
"""The pause after a scan of all metadata, in multiples of its duration."""

AVOID_MS = 3_600_000
"""The time after which a move that a worker has dropped is planned again: the others come first,
and what kept it from being made may be over."""
