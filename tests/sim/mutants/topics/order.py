"""Wrong brokers: what is written, waits and is read back in part, or in another order."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

LIST_STORE = "fencelog.broker.ledger_list.store"
PIPELINE = "fencelog.broker.append.pipeline"
PRODUCERS = "fencelog.broker.append.producer_table"
RETENTION = "fencelog.broker.log.retention"
STATE_LOG = "fencelog.broker.ledger_list.state_log"
TAKEOVER = "fencelog.broker.partition.takeover"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "recorded-during-the-snapshot",
        "SEMANTICS.md, state log",
        "What is recorded while a snapshot is written counts as a part of it.",
        (
            Edit(
                STATE_LOG,
                "StateLog._roll",
                "        taken, self._waiting = self._waiting, []\n"
                "        try:\n"
                "            if not await self._append(ledger, list(self._state.snapshot())):\n"
                "                self._waiting = taken + self._waiting\n",
                "        taken = []\n"
                "        try:\n"
                "            is_done = await self._append(ledger, list(self._state.snapshot()))\n"
                "            taken, self._waiting = self._waiting, []\n"
                "            if not is_done:\n"
                "                self._waiting = taken + self._waiting\n",
            ),
        ),
    ),
    Mutant(
        "state-not-waited-for",
        "SEMANTICS.md, state log",
        "Events are durable when the first entry of their ledger is.",
        (
            Edit(
                STATE_LOG,
                "StateLog._append",
                "self._wait_acknowledged(ledger, last)",
                "self._wait_acknowledged(ledger, 0)",
            ),
        ),
    ),
    Mutant(
        "state-read-in-part",
        "SEMANTICS.md, state log",
        "A takeover takes the first read of the state ledger for all of it.",
        (
            Edit(
                TAKEOVER,
                "_read_state",
                "next_entry = entry.entry_id + 1",
                "next_entry = metadata.last_entry_id + 1",
            ),
        ),
    ),
    Mutant(
        "put-back-in-reverse",
        "SEMANTICS.md, when bookies fail",
        "What a failed ledger did not take is sent to the next one in reverse order.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline.resolve",
                "self._in_flight.pop()",
                "self._in_flight.pop(0)",
            ),
        ),
    ),
    Mutant(
        # Nothing is lost: a takeover cannot follow the links, and fails each time.
        "links-lead-into-another-ledger",
        "SEMANTICS.md, exactly once",
        "The first entry of a ledger that names producers links to one of the ledger before it.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline.start_ledger",
                "        self._last_range_entry = -1\n",
                "",
            ),
        ),
    ),
    Mutant(
        "own-change-known-by-its-owner",
        "SEMANTICS.md, list of ledgers 4; I3",
        "After a conflict any list of the same broker counts as the change that was sent.",
        (
            Edit(
                LIST_STORE,
                "LedgerListStore._set",
                "if found is not None and found.token == token:",
                "if found is not None and found.owner == decode_ledger_list(value).owner:",
            ),
        ),
    ),
)

RARE: tuple[Mutant, ...] = (
    Mutant(
        # Two trims have to meet while the state log is slow, and the owner has to die.
        "persisted-before-it-is-durable",
        "SEMANTICS.md, producers",
        "The producers of entries that go count as persisted once they were handed to the state "
        "log.",
        (
            Edit(
                "fencelog.broker.append.producer_snapshot",
                "ProducerSnapshot.ensure_persisted",
                "        if recorded:\n",
                "        self._persisted_offset = end\n        if recorded:\n",
            ),
        ),
    ),
    Mutant(
        # The entries of one write to the state log have to be cut in two by a takeover.
        "end-before-its-producers",
        "SEMANTICS.md, exactly once",
        "The state log says that producers are known up to an offset, and names them afterwards.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable._events",
                "        for part in _parts(producers):\n",
                '        yield ["producers", [], [], self.end_offset]\n'
                "        for part in _parts(producers):\n",
            ),
        ),
    ),
    Mutant(
        # An append of the next epoch has to be repeated while it is on its way behind a longer one
        # of the previous epoch.
        "commit-ends-the-next-epoch",
        "SEMANTICS.md, exactly once",
        "What is in the log of one epoch ends what is on its way of the next.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable._commit_sequence",
                "while in_flight and (in_flight[0].sequences.epoch, "
                "_end(in_flight[0].sequences)) <= (\n"
                "                sequences.epoch,\n"
                "                _end(sequences),\n"
                "            ):",
                "while in_flight and _end(in_flight[0].sequences) <= _end(sequences):",
            ),
        ),
    ),
    Mutant(
        # A producer has to come back in a new epoch, and repeat one of its first appends.
        "duplicate-of-a-previous-epoch",
        "SEMANTICS.md, exactly once",
        "A duplicate is answered with the offset of its number in the previous epoch.",
        (
            Edit(
                PRODUCERS,
                "ProducerTable._commit_sequence",
                "if known is None or known.epoch != sequences.epoch:",
                "if known is None:",
            ),
        ),
    ),
    Mutant(
        # Of what a session has read, no change of its own comes later; another session's may.
        "late-change-counts-as-lost",
        "SEMANTICS.md, list of ledgers 4; I3",
        "A change without an answer that the list does not show yet is taken for refused.",
        (
            Edit(
                LIST_STORE,
                "LedgerListStore._set",
                "                may_be_made = True\n",
                "                if error.code is ErrorCode.METADATA_UNKNOWN:\n"
                "                    found, version = await self._read_back()\n"
                "                    if found is not None and found.token != token:\n"
                "                        raise LedgerListLost(self.path, found) from error\n"
                "                may_be_made = True\n",
            ),
        ),
    ),
    Mutant(
        # A ledger has to end, and its messages be acknowledged, while the trim waits.
        "trimmed-what-ended-meanwhile",
        "SEMANTICS.md, retention",
        "A trim takes ledgers that have ended since the state log was written for it.",
        (
            Edit(
                RETENTION,
                "Retention._let_go",
                "if ends.get(id_, inf) <= settled",
                "if ends.get(id_, 0) <= inf",
            ),
        ),
    ),
)
"""Mutants that one history in thousands would meet: tests of the parts detect them."""
