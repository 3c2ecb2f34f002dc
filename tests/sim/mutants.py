"""Every mutant: each rule broken once, and known defects of BookKeeper and others put back.

A mutant is one plausible slip. Where two places guard the same rule it has an edit for each: one
guard alone would hide the other's loss.
"""

from __future__ import annotations

import mutants_bookie
import mutants_broker
import mutants_broker_access
import mutants_broker_admin
import mutants_broker_bookies
import mutants_broker_cursors
import mutants_broker_letters
import mutants_broker_reads
import mutants_broker_state
import mutants_calls
import mutants_forwards
import mutants_garbage
import mutants_reader
import mutants_recovery
import mutants_replay
import mutants_storage
import mutants_writer
from mutation import Mutant

LEDGER_MUTANTS: tuple[Mutant, ...] = (
    *mutants_writer.MUTANTS,
    *mutants_recovery.MUTANTS,
    *mutants_bookie.MUTANTS,
    *mutants_replay.MUTANTS,
    *mutants_garbage.MUTANTS,
    *mutants_storage.MUTANTS,
    *mutants_reader.MUTANTS,
)
"""Of the protocol and the bookies; histories of ledgers have to see them."""

TOPIC_MUTANTS: tuple[Mutant, ...] = (
    *mutants_broker.MUTANTS,
    *mutants_broker_state.MUTANTS,
    *mutants_broker_cursors.MUTANTS,
    *mutants_broker_admin.MUTANTS,
    *mutants_broker_access.MUTANTS,
    *mutants_broker_bookies.MUTANTS,
    *mutants_broker_reads.MUTANTS,
    *mutants_broker_letters.MUTANTS,
    *mutants_forwards.MUTANTS,
    *mutants_calls.MUTANTS,
)
"""Of the brokers; histories of topics have to see them."""

MUTANTS: tuple[Mutant, ...] = LEDGER_MUTANTS + TOPIC_MUTANTS

UNIT_MUTANTS: tuple[Mutant, ...] = mutants_replay.BOOT
"""What histories would come to once in thousands: a test of the part has to see it
(``unit_layer.py``)."""
