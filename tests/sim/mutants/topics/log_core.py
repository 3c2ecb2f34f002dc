"""Wrong brokers: the states of an open log, and what leads from one to the next (``LogCore``)."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

LEDGER_LIST = "fencelog.broker.ledger_list.ledger_list"
CORE = "fencelog.broker.log.core"
PIPELINE = "fencelog.broker.append.pipeline"
RUNNER = "fencelog.broker.log.step_runner"
STEPS = "fencelog.broker.log.steps_core"

NO_CHECK_OF_DRAINED = Edit(
    PIPELINE,
    "AppendPipeline.start_ledger",
    '        check(self.is_drained, "a new ledger before the old one is drained")\n',
    "",
)

CLOSED_AND_THEN_SEALED = Edit(
    STEPS,
    "LogSteps.drained",
    "            closing = Seal(ledger.ledger_id, closes=True)\n",
    "            pass\n",
)

OPENING = (
    Mutant(
        "serves-while-opening",
        "SEMANTICS.md, the states of an open log; I1",
        "A log serves as soon as it has a ledger; the list is not written.",
        (
            Edit(
                STEPS,
                "LogSteps.created",
                "            return self._do(TakeOver(ledger_id))\n",
                "            self._do(TakeOver(ledger_id))\n            return []\n",
            ),
        ),
    ),
)

ROLLING = (
    Mutant(
        "roll-forgets-a-failure",
        "SEMANTICS.md, the states of an open log; I6",
        "A ledger that fails while it is drained counts as drained: what was in flight goes on in "
        "the next one's name.",
        (
            Edit(
                STEPS,
                "LogSteps.drained",
                "        if ledger.failure is not None:\n",
                "        if False:\n",
            ),
            Edit(
                RUNNER,
                "StepRunner._drain",
                "        if ledger.failure is None:\n",
                "        if True:\n",
            ),
            NO_CHECK_OF_DRAINED,
        ),
    ),
    Mutant(
        "roll-seals-nothing",
        "SEMANTICS.md, list of ledgers 3; I2b",
        "A roll is over as soon as the old ledger is closed; the list is not told what it holds.",
        (
            CLOSED_AND_THEN_SEALED,
            Edit(
                STEPS,
                "LogSteps.closed",
                "        return self._seal() if self._ends(CloseLedger) else []\n",
                "        if self._ends(CloseLedger) and self.state is not LogState.ROLLING:\n"
                "            return self._seal()\n"
                "        self._rest()\n"
                "        return []\n",
            ),
            Edit(
                LEDGER_LIST,
                "LedgerList.with_next",
                "        check(not self.is_rolling, "
                '"a second roll before the first is finished")\n',
                "",
            ),
            Edit(
                LEDGER_LIST,
                "_checked",
                "    check(all(segment.sealed is not None for segment in old), "
                '"an old ledger is not sealed")\n',
                "",
            ),
        ),
    ),
    Mutant(
        "held-after-the-roll",
        "SEMANTICS.md, the states of an open log",
        "A roll leaves appends on hold.",
        (
            Edit(
                STEPS,
                "LogSteps._write_following",
                "        self.mode.hold(False)\n",
                "        self.mode.hold(self.state is LogState.ROLLING)\n",
            ),
        ),
    ),
)

REPAIRING = (
    Mutant(
        "repaired-into-no-list",
        "SEMANTICS.md, the states of an open log; I1",
        "The ledger that takes a failed one's place is written without being listed.",
        (
            Edit(
                STEPS,
                "LogSteps.created",
                "        return self._do(ListLedger(ledger_id, seals=self._left.ledger_id))\n",
                "        effects = self._write_following()\n"
                "        self._rest()\n"
                "        return effects\n",
            ),
        ),
    ),
    Mutant(
        "refuses-after-the-repair",
        "SEMANTICS.md, when bookies fail",
        "What was refused while a ledger was replaced is refused for ever.",
        (
            Edit(
                STEPS,
                "LogSteps._write_following",
                "        if not self._is_closing:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "a-deadline-says-no",
        "SEMANTICS.md, when bookies fail; I15",
        "When a repair takes too long, appends in flight are told to be not in the log.",
        (
            Edit(
                CORE,
                "LogCore.deadline_passed",
                "        return [RefuseAppends(error, unknown(error.detail))]\n",
                "        return [RefuseAppends(error, error)]\n",
            ),
        ),
    ),
)

ENDING = (
    Mutant(
        "a-lost-log-says-no",
        "SEMANTICS.md, the states of an open log; I15",
        "A log that is lost tells appends in flight to be not in the log.",
        (
            Edit(
                STEPS,
                "LogSteps.lose",
                "RefuseAppends(error, unknown(error.detail))",
                "RefuseAppends(error, error)",
            ),
        ),
    ),
    Mutant(
        "terminated-and-open",
        "SEMANTICS.md, terminate",
        "A log that was terminated lets appends in, and never answers.",
        (
            Edit(
                STEPS,
                "LogSteps._end",
                "        self.mode.refusal = error\n",
                "",
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*OPENING, *ROLLING, *REPAIRING, *ENDING)

COUNTED = (
    Mutant(
        "given-up-not-counted",
        "SEMANTICS.md, for producers: If-Offset",
        "What was given up, and may be in the log, is not counted by expected offsets.",
        (
            Edit(
                "fencelog.broker.append.pipeline",
                "AppendPipeline._recount",
                "self.tail_offset + sum(entry.count for entry in self._in_flight)",
                "self.tail_offset",
            ),
        ),
    ),
)
"""A mutant that one history in hundreds would meet: a repair has to take longer than an append may,
and a producer that expects an offset has to come before its end."""
