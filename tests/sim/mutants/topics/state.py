"""Wrong brokers: what a partition remembers beside its messages, lost or told too early."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CONDITIONAL = "fencelog.broker.append.conditional_appends"
PIPELINE = "fencelog.broker.append.pipeline"
STATE = "fencelog.broker.ledger_list.state_core"
STATE_LOG = "fencelog.broker.ledger_list.state_log"
TABLE = "fencelog.broker.append.producer_table"
TAKEOVER = "fencelog.broker.partition.takeover"

PRODUCERS = (
    Mutant(
        "producers-not-restored",
        "SEMANTICS.md, exactly once; I11",
        "A takeover takes the producers from the snapshot, not from the log behind it.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._restore",
                "await replay_producers(self._open, self._loaded, self._sealed, self._producers)",
                "pass",
            ),
        ),
    ),
    Mutant(
        "duplicate-answered-early",
        "SEMANTICS.md, exactly once",
        "A duplicate of an append that is still on its way is told to be in the log.",
        (
            Edit(
                CONDITIONAL,
                "ConditionalAppends._repeat",
                "            found.add_waiter(future, sequences)\n            return\n",
                "            place = (self._pipeline.partition, -1, sequences.rows, -1)\n"
                "            future.set_result(Repeated(*place))\n"
                "            return\n",
            ),
        ),
    ),
    Mutant(
        "attempts-count-as-appended",
        "SEMANTICS.md, exactly once; I11; apache/pulsar#5218",
        "What was given up still counts as on its way, so that its retry waits for nothing.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline._recount",
                "        self.conditional.producers.retrack"
                "((*tracked_of(self._in_flight), *self.queue.tracked))\n",
                "",
            ),
        ),
    ),
    Mutant(
        "settled-when-sent",
        "SEMANTICS.md, exactly once; I11",
        "A producer's sequence counts as in the log as soon as it is admitted.",
        (
            Edit(
                CONDITIONAL,
                "ConditionalAppends._decide",
                "            self.producers.track(tracked)\n",
                "            self.producers.commit(\n"
                "                (tracked.sequences,),\n"
                "                self._pipeline.queue.next_offset, 1, append.size\n"
                "            )\n",
            ),
        ),
    ),
    Mutant(
        "former-epoch-accepted",
        "SEMANTICS.md, exactly once",
        "A producer's previous epoch may go on beside the new one.",
        (
            Edit(
                TABLE,
                "ProducerTable.find",
                "        if sequences.epoch < epoch:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "gap-accepted",
        "SEMANTICS.md, exactly once",
        "A sequence that does not follow the last one is taken all the same.",
        (
            Edit(
                TABLE,
                "ProducerTable.find",
                "        if _end(sequences) > following:\n            raise FencelogError(\n",
                "        if _end(sequences) > following:\n            return None\n"
                "            raise FencelogError(\n",
            ),
        ),
    ),
    Mutant(
        "offset-judged-by-the-tail",
        "SEMANTICS.md, conditional appends",
        "An expected offset is compared with the tail, whatever is on its way.",
        (
            Edit(
                CONDITIONAL,
                "ConditionalAppends._is_next",
                "        if offset == following:\n",
                "        if offset == tail:\n",
            ),
        ),
    ),
    Mutant(
        "key-forgotten-at-a-takeover",
        "SEMANTICS.md, exactly once",
        "Idempotency keys are not in snapshots.",
        (
            Edit(
                TABLE,
                "ProducerTable.snapshot",
                "self._events(list(self._producers.items()), list(self._keys.items()))\n",
                "self._events(list(self._producers.items()), [])\n",
            ),
        ),
    ),
)

STATE_LOGS = (
    Mutant(
        "snapshot-incomplete",
        "ARCHITECTURE.md, state log",
        "Of a snapshot that takes several entries only the first is written.",
        (
            Edit(
                STATE,
                "encode_events",
                "        if lines and size + len(line) > STATE_ENTRY_BYTES:\n"
                '            yield len(lines), b"\\n".join(lines)\n',
                "        if lines and size + len(line) > STATE_ENTRY_BYTES:\n"
                '            yield len(lines), b"\\n".join(lines)\n'
                "            return\n",
            ),
        ),
    ),
    Mutant(
        "state-ledger-not-fenced",
        "ARCHITECTURE.md, state log",
        "A takeover reads the state ledger without fencing it.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._recover_state",
                "        end = await ledgers.find_end(ledger_id)\n",
                "        reader = await ledgers.open(ledger_id)\n"
                "        last = await reader.read_lac()\n"
                "        closed = reader.metadata.state.CLOSED\n"
                '        replace = __import__("dataclasses").replace\n'
                "        end = FoundEnd(\n"
                "            replace(reader.metadata, state=closed, last_entry_id=last, length=0)\n"
                "        )\n",
            ),
        ),
    ),
    Mutant(
        "served-before-the-state-is-read",
        "ARCHITECTURE.md, state log",
        "A takeover does not wait for the state ledger, which it reads beside the others.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._restore",
                "        if self._restored is not None:\n",
                "        if self._restored is not None and self._restored.done():\n",
            ),
        ),
    ),
    Mutant(
        "state-log-stops-for-good",
        "SEMANTICS.md, when bookies fail",
        "A list that cannot be changed once ends the state log; messages go on without it.",
        (
            Edit(
                STATE_LOG,
                "StateLog._try_again",
                "        await asyncio.sleep(RETRY_S)\n",
                "        raise error\n",
            ),
        ),
    ),
    Mutant(
        "state-ledger-deleted-early",
        "ARCHITECTURE.md, state log; I4",
        "The previous state ledger is deleted before the new one is in its place.",
        (
            Edit(
                STATE_LOG,
                "StateLog._roll",
                "            previous_id = self._node.ledger_list.state_ledger\n",
                "            previous_id = self._node.ledger_list.state_ledger\n"
                "            if previous_id is not None:\n"
                "                await self._delete(previous_id)\n",
            ),
        ),
    ),
    Mutant(
        "confirmed-before-the-state-ledger-is-listed",
        "ARCHITECTURE.md, state log",
        "What a new state ledger begins with counts as durable before the list names it.",
        (
            Edit(
                STATE_LOG,
                "StateLog._roll",
                "            previous_id = self._node.ledger_list.state_ledger\n",
                "            previous_id = self._node.ledger_list.state_ledger\n"
                "            _succeed(taken)\n",
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*PRODUCERS, *STATE_LOGS)
