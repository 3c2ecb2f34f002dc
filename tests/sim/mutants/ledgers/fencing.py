"""Wrong fences of a recovery: its writer goes on, or an answer is taken for more than it says."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ANSWERS = "fencelog.bookie.engine.fence_answers"
CORE = "fencelog.ledgers.recovery.rules"
FENCING_SHELL = "fencelog.ledgers.recovery.fencing"
MACHINE = "fencelog.ledgers.recovery.machine"
REQUESTS = "fencelog.bookie.server.read_requests"

UNFENCED_ANSWERS = (
    Edit(ANSWERS, "fence_and_read", "fence=True", "fence=False"),
    Edit(
        REQUESTS,
        "read_request_of",
        "fences = [ledger_id for ledger_id, _ in ledgers]",
        "fences = list[int]()",
    ),
)

FENCING = (
    Mutant(
        "recovery-reads-do-not-fence",
        "PROTOCOL.md rule 4; BK#2614",
        "Only the LAC reads fence: a bookie that did not get one goes on taking the writer's adds.",
        (
            Edit(
                MACHINE,
                "RecoveryCore._ask",
                "fence=True",
                "fence=False",
            ),
        ),
    ),
    Mutant(
        # The recovery reads fence what they conclude from. What is left is that a bookie which does
        # not know the ledger says so, and an empty ledger can never be closed; and a delete, whose
        # only fence this is.
        "lac-reads-do-not-fence",
        "PROTOCOL.md rule 4",
        "Only the recovery reads fence.",
        (
            Edit(
                FENCING_SHELL,
                "_read_lacs",
                "read_lac(ledger_id, fence=True)",
                "read_lac(ledger_id)",
            ),
        ),
    ),
    Mutant(
        "recovery-does-not-fence",
        "PROTOCOL.md rule 4",
        "A recovery fences nowhere: the writer goes on while its ledger is closed.",
        (
            Edit(
                FENCING_SHELL,
                "_read_lacs",
                "read_lac(ledger_id, fence=True)",
                "read_lac(ledger_id)",
            ),
            *UNFENCED_ANSWERS,
            Edit(
                MACHINE,
                "RecoveryCore._ask",
                "fence=True",
                "fence=False",
            ),
        ),
    ),
    Mutant(
        "answers-without-a-fence",
        "PROTOCOL.md rules 4 and 6",
        "A bookie answers FENCE with the end of the ledger, and goes on taking the writer's adds.",
        UNFENCED_ANSWERS,
    ),
    Mutant(
        "doubt-at-the-end-is-no",
        "PROTOCOL.md rules 4 and 7",
        "The answer to FENCE names as missing an entry that the bookie cannot read, or may have "
        "lost.",
        (
            Edit(
                ANSWERS,
                "fence_and_read",
                "if error.code is not ErrorCode.NO_SUCH_ENTRY:",
                "if error.code is ErrorCode.BAD_REQUEST:",
            ),
        ),
    ),
    Mutant(
        "unknown-ledger-not-fenced",
        "PROTOCOL.md rule 6",
        "A bookie does not fence a ledger that it does not know, and is counted as if it did.",
        (
            Edit(
                "fencelog.bookie.engine.fences",
                "Fences.fence",
                "if state is not None and state.fence_durable:",
                "if state is None or state.fence_durable:",
            ),
            Edit(
                CORE,
                "FenceRound.error",
                "        else:\n            self.failed[index] = error\n",
                "        elif error.code.is_negative:\n"
                "            self.fenced.add(index)\n"
                "        else:\n"
                "            self.failed[index] = error\n",
            ),
        ),
    ),
)

TOLD = (
    Mutant(
        "nothing-above-a-missing-entry",
        "PROTOCOL.md rule 4",
        "A bookie that lacks an entry is taken to lack all that follow.",
        (
            Edit(
                CORE,
                "Told.about",
                "if entry_id == self.absent:",
                "if self.absent is not None and entry_id >= self.absent:",
            ),
        ),
    ),
)
"""A mutant that walks of small worlds show in seconds, and one history in a thousand: a member has
to fail an entry, take the next one, and be the last that can be asked."""
