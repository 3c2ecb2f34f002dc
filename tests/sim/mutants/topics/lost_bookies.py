"""Wrong brokers and recoveries, when a bookie of the log has lost, forgotten or damaged data."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

RECOVERY = "fencelog.ledgers.recovery.rules"
TAKEOVER = "fencelog.broker.partition.takeover"
RUNNER = "fencelog.broker.log.step_runner"

_INCOMPLETE = "error.code is not ErrorCode.RECOVERY_INCOMPLETE"

MUTANTS = (
    Mutant(
        "takeover-takes-limbo-for-no",
        "SEMANTICS.md, takeover 2; PROTOCOL.md rule 10",
        "To who takes a log over, a bookie that does not know what it has forgotten says no.",
        (
            Edit(
                RECOVERY,
                "EntryRound.answer",
                "elif error.code.is_negative:",
                "elif error.code.is_negative or error.code is ErrorCode.LEDGER_IN_LIMBO:",
            ),
        ),
    ),
    Mutant(
        "unrecovered-ledger-ends-as-read",
        "SEMANTICS.md, takeover 2; list of ledgers 4",
        "A ledger that cannot be recovered now ends where a reader sees its end, so that the "
        "partition serves again sooner.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._find_end",
                "        end = await factory.ledgers.find_end(ledger_id)\n",
                "        try:\n"
                "            end = await factory.ledgers.find_end(ledger_id)\n"
                "        except FencelogError as error:\n"
                f"            if {_INCOMPLETE}:\n"
                "                raise\n"
                "            reader = await factory.ledgers.open(ledger_id)\n"
                "            last_entry_id = await reader.read_lac()\n"
                '            replace = __import__("dataclasses").replace\n'
                "            end = FoundEnd(\n"
                "                replace(\n"
                "                    reader.metadata,\n"
                "                    state=reader.metadata.state.CLOSED,\n"
                "                    last_entry_id=last_entry_id,\n"
                "                    length=0,\n"
                "                )\n"
                "            )\n",
            ),
        ),
    ),
    Mutant(
        "failed-ledger-ends-at-its-acks",
        "SEMANTICS.md, when bookies fail; I6",
        "An owner whose failed ledger cannot be recovered now goes on behind its last "
        "acknowledgement.",
        (
            Edit(
                RUNNER,
                "StepRunner._recover",
                "        metadata = await self._factory.ledgers.recover(ledger.ledger_id)\n",
                "        try:\n"
                "            metadata = await self._factory.ledgers.recover(ledger.ledger_id)\n"
                "        except Exception:\n"
                '            replace = __import__("dataclasses").replace\n'
                "            metadata = replace(\n"
                "                ledger.writer.metadata,\n"
                "                state=ledger.writer.metadata.state.CLOSED,\n"
                "                last_entry_id=ledger.last_confirmed,\n"
                "                length=0,\n"
                "            )\n",
            ),
        ),
    ),
)
