"""Wrong repairs and audits, which tests of replication workers and auditors detect."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CORE = "fencelog.bookie.replication.core"
REPAIR = "fencelog.bookie.replication.repair"

MUTANTS = (
    Mutant(
        "cut-off-is-back",
        "MAINTENANCE.md: re-replication",
        "A lost bookie that answers without being registered loses its marks, and gets none when "
        "it dies.",
        (
            Edit(
                CORE,
                "_is_back",
                "return is_registered and isinstance(answer, BookieEntries)",
                "return isinstance(answer, BookieEntries)",
            ),
        ),
    ),
    Mutant(
        "unread-is-damaged",
        "unknown is not no",
        "A bookie that is not reached while its copies are verified is replaced.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._is_well",
                "error.reason is MissingReason.UNREACHED and not error.is_damaged",
                "self._attempts < 0",
            ),
        ),
    ),
    Mutant(
        "old-fragments-keep-a-ledger-open",
        "MAINTENANCE.md: re-replication",
        "The last fragment of a ledger without a writer waits for the others.",
        (
            Edit(
                REPAIR,
                "LedgerRepair.run",
                "if plan.needs_close:",
                "if plan.needs_close and why is None:",
            ),
        ),
    ),
    Mutant(
        "marked-as-far-as-it-went",
        "MAINTENANCE.md: the auditor",
        "Bookies whose ledgers a scan stopped marking, as they were back or self-healing was off, "
        "count as marked when they are lost again.",
        (
            Edit(
                "fencelog.bookie.auditor.lost_bookies",
                "check_bookies",
                "            result.lost &= gone\n",
                "",
            ),
        ),
    ),
    Mutant(
        "cancelled-while-it-marks",
        "MAINTENANCE.md: decommission",
        "An auditor that marks a last ledger after the decommission was cancelled leaves the mark.",
        (
            Edit(
                "fencelog.bookie.auditor.decommission",
                "Decommissioner._drain_or_undo",
                "if found is None or found[0].phase is Phase.CANCELLING:",
                "if job.was_read_only:",
            ),
        ),
    ),
    Mutant(
        "cancelled-and-looked-for-in-vain",
        "MAINTENANCE.md: decommission",
        "A cancellation that an auditor completes at once has found nothing to cancel.",
        (
            Edit(
                "fencelog.bookie.auditor.decommission",
                "Decommissions._begin_to_cancel",
                "                return job, await self.write(",
                "                await self.write(",
            ),
        ),
    ),
    Mutant(
        "half-cancelled-is-not-cancelled",
        "MAINTENANCE.md: decommission",
        "A cancellation had no effect, as a mark could not be taken back.",
        (
            Edit(
                "fencelog.bookie.auditor.decommission",
                "Decommissions.cancel",
                "                ErrorCode.METADATA_UNKNOWN,",
                "                error.code,",
            ),
        ),
    ),
)
"""Mutants that no history shows: it takes a bookie that is cut off from the metadata store alone
and dies later, a reading that fails for minutes, or a change of mind amid a scan."""
