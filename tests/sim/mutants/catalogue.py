"""Every mutant: each rule broken once, and known defects of BookKeeper and others put back.

A mutant is one plausible slip. Where two places guard the same rule it has an edit for each: one
guard alone would hide the other's loss.
"""

from __future__ import annotations

from tests.sim.mutants import auditing as mutants_auditing
from tests.sim.mutants import recent as mutants_recent
from tests.sim.mutants.brokers import appends as mutants_appends
from tests.sim.mutants.brokers import clients as mutants_clients
from tests.sim.mutants.brokers import heads as mutants_heads
from tests.sim.mutants.brokers import owners as mutants_broker_owners
from tests.sim.mutants.brokers import subscriptions as mutants_subscriptions
from tests.sim.mutants.healing import balance as mutants_balance
from tests.sim.mutants.healing import checks as mutants_checks
from tests.sim.mutants.healing import marks as mutants_marks
from tests.sim.mutants.healing import parts as mutants_healing_parts
from tests.sim.mutants.healing import replication as mutants_replication
from tests.sim.mutants.ledgers import bookie as mutants_bookie
from tests.sim.mutants.ledgers import client_side as mutants_client_side
from tests.sim.mutants.ledgers import fencing as mutants_fencing
from tests.sim.mutants.ledgers import files as mutants_files
from tests.sim.mutants.ledgers import formats as mutants_formats
from tests.sim.mutants.ledgers import garbage as mutants_garbage
from tests.sim.mutants.ledgers import identity as mutants_identity
from tests.sim.mutants.ledgers import journals as mutants_journals
from tests.sim.mutants.ledgers import offline as mutants_offline
from tests.sim.mutants.ledgers import parts as mutants_parts
from tests.sim.mutants.ledgers import reader as mutants_reader
from tests.sim.mutants.ledgers import recovery as mutants_recovery
from tests.sim.mutants.ledgers import replay as mutants_replay
from tests.sim.mutants.ledgers import seldom as mutants_seldom
from tests.sim.mutants.ledgers import storage as mutants_storage
from tests.sim.mutants.ledgers import writer as mutants_writer
from tests.sim.mutants.mutation import Mutant
from tests.sim.mutants.parts import adds as mutants_adds
from tests.sim.mutants.parts import handshakes as mutants_handshakes
from tests.sim.mutants.parts import instance as mutants_instance
from tests.sim.mutants.parts import keys as mutants_keys
from tests.sim.mutants.parts import local_reads as mutants_local_reads
from tests.sim.mutants.parts import lost_answers as mutants_lost_answers
from tests.sim.mutants.parts import metastore as mutants_metastore
from tests.sim.mutants.parts import owners as mutants_owners
from tests.sim.mutants.parts import peers as mutants_peers
from tests.sim.mutants.parts import produce as mutants_produce
from tests.sim.mutants.parts import requests as mutants_requests
from tests.sim.mutants.parts import restores as mutants_restores
from tests.sim.mutants.parts import rings as mutants_rings
from tests.sim.mutants.parts import shared_disk as mutants_shared_disk
from tests.sim.mutants.parts import spark as mutants_spark
from tests.sim.mutants.parts import views as mutants_views
from tests.sim.mutants.parts import zookeeper as mutants_zookeeper
from tests.sim.mutants.parts import zookeeper_session as mutants_zookeeper_session
from tests.sim.mutants.topics import access as mutants_broker_access
from tests.sim.mutants.topics import admin as mutants_broker_admin
from tests.sim.mutants.topics import calls as mutants_calls
from tests.sim.mutants.topics import commits as mutants_commits
from tests.sim.mutants.topics import cursors as mutants_broker_cursors
from tests.sim.mutants.topics import dead_letters as mutants_broker_letters
from tests.sim.mutants.topics import deliveries as mutants_deliveries
from tests.sim.mutants.topics import forwards as mutants_forwards
from tests.sim.mutants.topics import limits as mutants_limits
from tests.sim.mutants.topics import log_core as mutants_broker_log
from tests.sim.mutants.topics import logs as mutants_broker
from tests.sim.mutants.topics import lost_bookies as mutants_broker_bookies
from tests.sim.mutants.topics import once as mutants_once
from tests.sim.mutants.topics import order as mutants_order
from tests.sim.mutants.topics import parts as mutants_broker_parts
from tests.sim.mutants.topics import reads as mutants_broker_reads
from tests.sim.mutants.topics import sessions as mutants_sessions
from tests.sim.mutants.topics import state as mutants_broker_state
from tests.sim.mutants.topics import takeovers as mutants_takeovers

LEDGER_MUTANTS: tuple[Mutant, ...] = (
    *mutants_writer.MUTANTS,
    *mutants_recovery.MUTANTS,
    *mutants_bookie.MUTANTS,
    *mutants_replay.MUTANTS,
    *mutants_garbage.MUTANTS,
    *mutants_storage.MUTANTS,
    *mutants_reader.MUTANTS,
)
"""Mutants of the protocol and the bookies, which histories of ledgers have to detect."""

HEALING_MUTANTS: tuple[Mutant, ...] = (
    *mutants_replication.MUTANTS,
    *mutants_balance.MUTANTS,
    *mutants_marks.MUTANTS,
    *mutants_auditing.MUTANTS,
    *mutants_recent.MUTANTS,
)
"""Mutants of replication workers, auditors, checkers and the recent check, which histories of
self-healing have to detect."""

TOPIC_MUTANTS: tuple[Mutant, ...] = (
    *mutants_broker.MUTANTS,
    *mutants_takeovers.MUTANTS,
    *mutants_broker_log.MUTANTS,
    *mutants_broker_state.MUTANTS,
    *mutants_broker_cursors.MUTANTS,
    *mutants_broker_admin.MUTANTS,
    *mutants_broker_access.MUTANTS,
    *mutants_once.MUTANTS,
    *mutants_broker_bookies.MUTANTS,
    *mutants_broker_reads.MUTANTS,
    *mutants_broker_reads.RANGES,
    *mutants_broker_reads.DENIED,
    *mutants_broker_letters.MUTANTS,
    *mutants_deliveries.MUTANTS,
    *mutants_deliveries.NOT_AGAIN,
    *mutants_order.MUTANTS,
    *mutants_forwards.MUTANTS,
    *mutants_forwards.CHANGES,
    *mutants_calls.MUTANTS,
    *mutants_limits.MUTANTS,
    *mutants_commits.MUTANTS,
    *mutants_commits.ROUTED,
    *mutants_adds.SAFETY,
    *mutants_lost_answers.GIVEN_BACK,
)
"""Mutants of the brokers, which histories of topics have to detect."""

RESTORE_MUTANTS: tuple[Mutant, ...] = mutants_restores.MUTANTS
"""Mutants of what follows the restore of a backup, which histories of restores have to detect."""

MUTANTS: tuple[Mutant, ...] = LEDGER_MUTANTS + HEALING_MUTANTS + TOPIC_MUTANTS + RESTORE_MUTANTS

UNIT_MUTANTS: tuple[Mutant, ...] = (
    *mutants_shared_disk.MUTANTS,
    *mutants_auditing.RARE,
    *mutants_balance.RARE,
    *mutants_marks.RARE,
    *mutants_takeovers.RARE,
    *mutants_recent.RARE,
    *mutants_parts.MUTANTS,
    *mutants_files.MUTANTS,
    *mutants_journals.MUTANTS,
    *mutants_identity.MUTANTS,
    *mutants_offline.MUTANTS,
    *mutants_broker_parts.MUTANTS,
    *mutants_recovery.ADOPTED,
    *mutants_recovery.DELETED,
    *mutants_fencing.TOLD,
    *mutants_recovery.LEFT_TO_A_COMMIT,
    *mutants_replication.RARE,
    *mutants_healing_parts.MUTANTS,
    *mutants_replay.BOOT,
    *mutants_garbage.RESTORED,
    *mutants_seldom.RARE,
    *mutants_storage.DECAYED_HEADERS,
    *mutants_storage.ACROSS_THE_END,
    *mutants_broker_cursors.REWOUND,
    *mutants_broker_access.OUTDATED,
    *mutants_broker_admin.LATE_LISTS,
    *mutants_commits.STALE,
    *mutants_broker_log.COUNTED,
    *mutants_limits.CUT_OFF,
    *mutants_limits.FORGOTTEN_BY_NAME,
    *mutants_broker_reads.ASKED_DIRECTLY,
    *mutants_broker_reads.STALE_BY_A_LOST_SEEK,
    *mutants_broker_letters.GROWN,
    *mutants_deliveries.RARE,
    *mutants_forwards.RELEASES,
    *mutants_order.RARE,
    *mutants_restores.IN_MEMORY,
    *mutants_sessions.MUTANTS,
    *mutants_metastore.MUTANTS,
    *mutants_instance.MUTANTS,
    *mutants_instance.DOUBTS,
    *mutants_zookeeper.NODES,
    *mutants_zookeeper.SECRETS,
    *mutants_zookeeper_session.MUTANTS,
    *mutants_handshakes.MUTANTS,
    *mutants_adds.MUTANTS,
    *mutants_requests.MUTANTS,
    *mutants_local_reads.MUTANTS,
    *mutants_lost_answers.MUTANTS,
    *mutants_rings.MUTANTS,
    *mutants_peers.MUTANTS,
    *mutants_owners.MUTANTS,
    *mutants_views.COMPACTIONS,
    *mutants_views.CATCH_UPS,
    *mutants_produce.MUTANTS,
    *mutants_keys.MUTANTS,
    *mutants_spark.WRITES,
    *mutants_spark.READS,
    *mutants_appends.MUTANTS,
    *mutants_heads.MUTANTS,
    *mutants_clients.MUTANTS,
    *mutants_subscriptions.MUTANTS,
    *mutants_broker_owners.MUTANTS,
    *mutants_checks.MUTANTS,
    *mutants_client_side.MUTANTS,
    *mutants_formats.MUTANTS,
)
"""Mutants that one history in thousands would meet, or none: a test of the part has to detect them
(``mutants/unit_layer.py``)."""
