"""Wrong replication workers: they share a ledger, or remove marks too early."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

LOCKS = "fencelog.bookie.replication.locks"
GARBAGE = "fencelog.bookie.gc.ledgers"
REPAIR = "fencelog.bookie.replication.repair"
STORE = "fencelog.bookie.replication.store"
WORKER = "fencelog.bookie.replication.worker"

RULE = "PROTOCOL.md rule 11"

MUTANTS = (
    Mutant(
        "marked-is-no-target",
        "MAINTENANCE.md: re-replication",
        "A bookie that lacks entries of one fragment never takes a place in another one.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._target_ensemble",
                "exclude=decommissioned(self._mark)",
                "exclude=set(self._mark.lacking)",
            ),
        ),
    ),
    Mutant(
        "lock-of-another-taken",
        "MAINTENANCE.md: re-replication",
        "A ledger that another worker has locked is repaired by a second one at the same time.",
        (
            Edit(
                LOCKS,
                "ReplicationLocks._own",
                "        if (node.ephemeral_owner, node.value) != (session_id, self._value):\n",
                "        if not node.value:\n",
            ),
        ),
    ),
    Mutant(
        "unmarked-before-repaired",
        "MAINTENANCE.md: re-replication",
        "A mark goes when its repair begins.",
        (
            Edit(
                WORKER,
                "ReplicationWorker._repair",
                "        try:\n            await repair.run()\n",
                "        await self._marks.unmark(ledger_id, mark.version)\n"
                "        try:\n            await repair.run()\n",
            ),
        ),
    ),
    Mutant(
        "lock-kept-for-ever",
        "MAINTENANCE.md: re-replication",
        "A lock whose release was not answered is never acquired again by its own worker.",
        (
            Edit(
                LOCKS,
                "ReplicationLocks._own",
                "        if (node.ephemeral_owner, node.value) != (session_id, self._value):\n",
                "        if node.value:\n",
            ),
            Edit(
                LOCKS,
                "ReplicationLocks.release",
                "        await until_known(delete)\n",
                "        if lock.ledger_id % 3:\n            await until_known(delete)\n",
            ),
        ),
    ),
    Mutant(
        "unmarked-at-any-version",
        RULE,
        "A worker removes a mark that was made after it had looked.",
        (
            Edit(
                STORE,
                "UnderReplicatedLedgers.unmark",
                "await self._store.delete(_path(ledger_id), version)",
                "version = (await self._store.get(_path(ledger_id))).version\n"
                "                await self._store.delete(_path(ledger_id), version)",
            ),
        ),
    ),
    Mutant(
        "lock-of-an-ended-session",
        "MAINTENANCE.md: re-replication",
        "A worker goes on with a ledger after the session that locked it has ended.",
        (
            Edit(
                WORKER,
                "ReplicationWorker._check_allowed",
                "self._locks.check(lock)",
                "pass",
            ),
        ),
    ),
)

RARE: tuple[Mutant, ...] = (
    Mutant(
        # The metadata has to be away just when a target has lost its disk.
        "unproven-target-forgotten",
        RULE,
        "A target that was named, and could not be marked, counts as one that has its copies.",
        (
            Edit(
                "fencelog.bookie.replication.worker",
                "ReplicationWorker.check",
                "        await self._tools.mark_unproven()\n",
                "",
            ),
        ),
    ),
    Mutant(
        # The worker has to name this bookie and remove the mark between two requests.
        "collected-when-just-named",
        "MAINTENANCE.md: garbage collection",
        "A bookie collects copies for which a worker has just named it.",
        (
            Edit(
                GARBAGE,
                "LedgerGarbage._remove_over_replicated",
                "        if await self._over_replicated(ledger_id) != metadata:\n"
                "            return False\n"
                "        await",
                "        await",
            ),
        ),
    ),
)
