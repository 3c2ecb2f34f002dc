"""Wrong restarts: what was found by replay is lost by the flush or the start behind it, or the
journal is let go of too early."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CONTROL = "fencelog.bookie.format.control_records"
FLUSH = "fencelog.bookie.storage.flush"
SHARD = "fencelog.bookie.engine.shard"
STATE = "fencelog.bookie.format.ledger_state"

_WAS_DIRTY = Edit(
    CONTROL,
    "take_back",
    "    is_limbo = record.type is RecordType.LIMBO\n",
    "    is_limbo = record.type is RecordType.LIMBO\n    was_dirty = ledger_id in states._dirty\n",
)


def _not_dirty(condition: str) -> tuple[Edit, ...]:
    """A record that ``condition`` is true of changes the state in memory alone."""
    text = "    state.fenced = state.fence_durable = True"
    return (
        _WAS_DIRTY,
        Edit(
            CONTROL,
            "take_back",
            text,
            f"{text}\n    if {condition} and not was_dirty:\n"
            "        states._dirty.discard(ledger_id)",
        ),
    )


FOUND_BY_REPLAY = (
    Mutant(
        # The next flush leaves the fence out, and the checkpoint lets go of its record: the start
        # behind that takes an add of the old writer.
        "replayed-fence-not-flushed",
        "PROTOCOL.md rule 6",
        "A fence that replay found is in memory alone, until something else of the ledger changes.",
        _not_dirty("not is_limbo"),
    ),
    Mutant(
        "replayed-limbo-not-flushed",
        "PROTOCOL.md rule 10; BP-46",
        "Limbo that replay found is in memory alone: after the next start it says no.",
        _not_dirty("is_limbo"),
    ),
    Mutant(
        "replayed-lac-not-flushed",
        "a bookie's LAC never goes back",
        "An explicit LAC that replay found is in memory alone.",
        (
            Edit(
                CONTROL,
                "take_back",
                "        state = states.change(ledger_id)\n        state.lac",
                "        was_dirty = ledger_id in states._dirty\n"
                "        state = states.change(ledger_id)\n"
                "        if not was_dirty:\n"
                "            states._dirty.discard(ledger_id)\n"
                "        state.lac",
            ),
        ),
    ),
    Mutant(
        "replayed-removal-not-flushed",
        "MAINTENANCE.md: tombstones",
        "A removal that replay found takes the entries, and leaves no tombstone in the index.",
        (
            Edit(
                CONTROL,
                "take_back",
                "        states.remove(ledger_id, deleted=deleted).fence_durable = True\n",
                "        states.remove(ledger_id, deleted=deleted).fence_durable = True\n"
                "        states._dirty.discard(ledger_id)\n",
            ),
        ),
    ),
    Mutant(
        "replayed-removal-keeps-the-cache",
        "MAINTENANCE.md: garbage collection",
        "Replay takes back entries of a ledger, then its removal, and flushes them all the same.",
        (
            Edit(
                SHARD,
                "Shard._take_back",
                '            self.cache.discard(int.from_bytes(record.body, "little"))',
                "            pass",
            ),
        ),
    ),
    Mutant(
        # Nothing untrue is said: a liveness fault.
        "indexed-limbo-not-repaired",
        "MAINTENANCE.md: ending limbo",
        "After a restart nobody looks at what is in limbo.",
        (
            Edit(
                STATE,
                "LedgerStates.load",
                "            if state.limbo:\n",
                "            if state.limbo and not state.fenced:\n",
            ),
        ),
    ),
)

JOURNAL_LET_GO_OF = (
    Mutant(
        # A crash before the next flush loses records that were read and not taken back yet.
        "replay-flushes-ahead",
        "STORAGE.md: checkpoint",
        "A flush in the middle of a replay says how far the journal was read, not how far it was "
        "taken back.",
        (
            Edit(
                "fencelog.bookie.engine.opening",
                "replay_journal",
                "                    await flush(end)\n",
                "                    await flush(replay.position)\n",
            ),
        ),
    ),
    Mutant(
        "flush-says-too-much",
        "STORAGE.md: checkpoint",
        "A flush says where the journal is when it writes, not where it was when it began.",
        (
            Edit(
                FLUSH,
                "Flusher._carry_out",
                "            await self._io_thread.run(lambda: self._storage.store(flushed))\n",
                "            flushed = FlushedState(\n"
                "                flushed.runs, flushed.states, flushed.removed,"
                " self._journal.position\n"
                "            )\n"
                "            await self._journal.settle(sync=True)\n"
                "            await self._io_thread.run(lambda: self._storage.store(flushed))\n",
            ),
        ),
    ),
)

BOOT = (
    Mutant(
        # The spare bookie that a recovery has put in the place of another has to lose its disk, and
        # come back, between the last add and the close: one history in thousands.
        "boot-forgets-recoveries",
        "PROTOCOL.md rules 7 and 10",
        "A bookie that lost its disk knows nothing of a recovery that had written to it.",
        (
            Edit(
                "fencelog.bookie.engine.boot",
                "fence_before_serving",
                " or metadata.state is LedgerState.IN_RECOVERY",
                "",
            ),
        ),
    ),
)

MUTANTS = (*FOUND_BY_REPLAY, *JOURNAL_LET_GO_OF)
