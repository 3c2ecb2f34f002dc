"""Wrong garbage collectors: they remove ledgers that are not garbage, or bring them back."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ADDS = "fencelog.bookie.engine.adds"
LEDGERS = "fencelog.bookie.gc.ledgers"
LEDGER_NODES = "fencelog.ledgers.ledger_metadata.ledger_nodes"
OTHER_COPIES = "fencelog.bookie.repair.other_copies"
SHARD = "fencelog.bookie.engine.shard"
STATE = "fencelog.bookie.format.ledger_state"
STORAGE = "fencelog.bookie.storage.storage"

_NOT_LOOKED_UP = Edit(
    LEDGERS,
    "LedgerGarbage._remove_deleted",
    "            await self._ledgers.get(ledger_id)\n",
    '            raise FencelogError(ErrorCode.LEDGER_NOT_FOUND, "not looked up")\n',
)
"""The removal, without another look, of what a listing lacks: the second guard of each rule about
listings."""

_NEVER_GIVEN = Edit(
    "fencelog.bookie.gc.core", "choose_ledgers", "if ledger_id <= last_given_id", "if True"
)
"""The removal of a ledger whose id the metadata has not assigned: the guard against an older
backup."""

MUTANTS = (
    Mutant(
        "broken-listing-is-whole",
        "MAINTENANCE.md: garbage collection",
        "A listing that breaks off counts as whole: what it did not come to is removed.",
        (
            _NOT_LOOKED_UP,
            Edit(
                LEDGERS,
                "LedgerGarbage._listed",
                "        listed = {\n"
                "            metadata.ledger_id: "
                "is_over_replicated(metadata, self._bookie.bookie_id)\n"
                "            async for metadata in self._ledgers.read_all()\n"
                "            if metadata.ledger_id in local\n"
                "        }\n",
                "        listed = dict[int, bool]()\n"
                "        try:\n"
                "            async for metadata in self._ledgers.read_all():\n"
                "                listed[metadata.ledger_id] = False\n"
                "        except FencelogError:\n"
                "            return listed, 1 << 62\n",
            ),
        ),
    ),
    Mutant(
        "instance-ignored",
        "MAINTENANCE.md: garbage collection",
        "Garbage is collected by any store: an emptied one empties the bookie.",
        (
            _NEVER_GIVEN,
            Edit(LEDGERS, "LedgerGarbage._check_instance", "if found != own:", "if found is self:"),
        ),
    ),
    Mutant(
        "stale-listing",
        "MAINTENANCE.md: garbage collection",
        "The listing may come from a server that is behind: a new ledger looks deleted.",
        (
            _NEVER_GIVEN,
            _NOT_LOOKED_UP,
            Edit(
                LEDGER_NODES,
                "read_ledgers",
                "await catch_up(store)",
                "store.session_id",
            ),
            Edit(
                LEDGERS,
                "LedgerGarbage._listed",
                "        await self._check_instance()\n        listed = {",
                "        listed = {",
            ),
        ),
    ),
    Mutant(
        "created-during-the-listing",
        "MAINTENANCE.md: garbage collection",
        "What came while the ledgers were listed is compared with that listing.",
        (
            _NOT_LOOKED_UP,
            Edit(
                LEDGERS,
                "LedgerGarbage.collect",
                "        choice = choose_ledgers(\n",
                "        for shard in self._bookie.shards:\n"
                "            for ledger_id, state in shard.states.items():\n"
                "                if not state.deleted and not state.removing:\n"
                "                    local[ledger_id] = state.last_entry >= 0\n"
                "        choice = choose_ledgers(\n",
            ),
        ),
    ),
    Mutant(
        "open-ledger-is-over-replicated",
        "MAINTENANCE.md: over-replicated ledgers",
        "A ledger that is not closed is given up where its last change left this bookie out.",
        (
            Edit(
                "fencelog.bookie.gc.core",
                "is_over_replicated",
                "return metadata.is_closed and not named",
                "return not named",
            ),
        ),
    ),
    Mutant(
        "tombstone-not-flushed",
        "MAINTENANCE.md: tombstones",
        "The index does not say that a ledger was deleted.",
        (
            Edit(
                STATE,
                "BookieLedgerState.encode",
                "        flags |= _DELETED if self.deleted else 0\n",
                "",
            ),
        ),
    ),
    Mutant(
        "deleted-ledger-takes-adds",
        "MAINTENANCE.md: tombstones",
        "A deleted ledger takes the adds of a recovery that sleeps since before.",
        (
            Edit(
                ADDS,
                "Adds._admit",
                "if state is not None and state.deleted:",
                "if state is not None and state.deleted and not recovery:",
            ),
        ),
    ),
    Mutant(
        "cached-runs-stay",
        "MAINTENANCE.md: garbage collection",
        "What is cached of a removed ledger is flushed all the same, and nothing will remove it.",
        (Edit(SHARD, "Shard.remove", "        self.cache.discard(ledger_id)\n", ""),),
    ),
    Mutant(
        "indexed-runs-stay",
        "MAINTENANCE.md: garbage collection",
        "The runs of a removed ledger stay in the index.",
        (Edit(STORAGE, "Storage.store", "removed=flushed.removed", "removed=()"),),
    ),
)

RESTORED = (
    Mutant(
        "grace-on-a-disk-that-fills-up",
        "MAINTENANCE.md: garbage collection",
        "Deleted ledgers stay for their grace time until a disk is full of them.",
        (
            Edit(
                "fencelog.bookie.gc.collector",
                "Garbage._is_space_left",
                "used_share(await self._bookie.space()) < self._config.grace_below",
                "True",
            ),
        ),
    ),
    Mutant(
        "over-replicated-by-metadata-alone",
        "MAINTENANCE.md: over-replicated ledgers",
        "Others are not asked for their copies: a restored backup names those that have none.",
        (
            Edit(
                LEDGERS,
                "LedgerGarbage._remove_over_replicated",
                "            return False\n        if await has_node",
                "            pass\n        if await has_node",
            ),
        ),
    ),
    Mutant(
        "copies-in-limbo-count",
        "MAINTENANCE.md: over-replicated ledgers",
        "A bookie confirms copies of a ledger that it has in limbo.",
        (Edit(OTHER_COPIES, "OtherCopies._compare", "if in_limbo:", "if False:"),),
    ),
    Mutant(
        "copies-of-another-bookie-count",
        "MAINTENANCE.md: over-replicated ledgers",
        "A bookie is not asked for an entry that it lacks, if it has others.",
        (
            Edit(
                OTHER_COPIES,
                "OtherCopies._compare",
                "next(listed.missing_from(ranges), None)",
                "listed.span is None and ranges[0] or None",
            ),
        ),
    ),
)
"""Mutants that no history shows, as none restores a backup that is older than
the grace time. A test of the part has to detect
them."""
