"""Wrong writers and wrong metadata: entries acknowledged that are not where metadata says."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CORE = "fencelog.ledgers.writer.core"
EXPLICIT = "fencelog.ledgers.writer.explicit_lac"
IDS = "fencelog.ledgers.ledger_metadata.ids"
STORE = "fencelog.ledgers.ledger_metadata.store"
TRANSITIONS = "fencelog.ledgers.ledger_metadata.transitions"
UPDATE = "fencelog.ledgers.ledger_metadata.update"
WRITER = "fencelog.ledgers.writer.writer"

ACKNOWLEDGING = (
    Mutant(
        "acknowledged-below-qa",
        "PROTOCOL.md rule 1",
        "An entry is acknowledged with Qa - 1 copies.",
        (Edit(CORE, "WriterCore._drain", ">= quorum:", ">= quorum - 1:"),),
    ),
    Mutant(
        "lac-over-a-hole",
        "PROTOCOL.md rule 1",
        "Entries are acknowledged as they have Qa copies, also past one that has not.",
        (
            Edit(
                CORE,
                "WriterCore._drain",
                "        while pending and len(pending[0].acks) >= quorum:\n"
                "            run = pending.pop(0)\n",
                "        for run in [run for run in pending if len(run.acks) >= quorum]:\n"
                "            pending.remove(run)\n",
            ),
        ),
    ),
    Mutant(
        "write-set-off-by-one",
        "PROTOCOL.md rule 1",
        "The writer of a striped ledger sends an entry to the write set of the next one.",
        (
            Edit(
                CORE,
                "WriterCore.members_of",
                "            first_entry_id,\n",
                "            first_entry_id + 1,\n",
            ),
        ),
    ),
    Mutant(
        "timeout-is-an-ack",
        "PROTOCOL.md rule 3; unknown is not yes",
        "An add that was sent and not answered counts as stored.",
        (
            Edit(
                CORE,
                "WriterCore.reply",
                "        if error is None:\n",
                "        if error is None or error.code is ErrorCode.REQUEST_TIMEOUT:\n",
            ),
        ),
    ),
)

ENSEMBLE_CHANGES = (
    Mutant(
        "acks-of-replaced-bookies-kept",
        "PROTOCOL.md rule 2; BK#4097",
        "What a replaced bookie acknowledged counts for the one in its place.",
        (Edit(CORE, "WriterCore.ensemble_changed", "            run.acks -= replaced\n", ""),),
    ),
    Mutant(
        # Upstream's own order. Only striped ledgers have runs that a change leaves as they are.
        "drained-while-resending",
        "PROTOCOL.md rule 2; BK#3005",
        "Runs are acknowledged while the acks of replaced bookies are dropped from those before.",
        (
            Edit(
                CORE,
                "WriterCore.ensemble_changed",
                "        for run in self._pending:\n"
                "            run.acks -= replaced\n"
                "            run.failed -= replaced\n"
                "        effects: list[Effect] = [\n"
                "            Send(run, i, after[i])"
                " for run in self._pending for i in run.members if i in replaced\n"
                "        ]\n"
                "        self.changing = False\n",
                "        self.changing = False\n"
                "        effects: list[Effect] = []\n"
                "        for run in list(self._pending):\n"
                "            if not replaced.intersection(run.members):\n"
                "                effects += self._drain()\n"
                "            run.acks -= replaced\n"
                "            run.failed -= replaced\n"
                "            effects += [Send(run, i, after[i])"
                " for i in run.members if i in replaced]\n",
            ),
        ),
    ),
    Mutant(
        # Nothing is lost: a writer that waits for ever.
        "not-drained-after-a-change",
        "PROTOCOL.md rule 2; BK#4261",
        "Runs that became complete during an ensemble change wait for another answer.",
        (
            Edit(
                CORE,
                "WriterCore._go_on",
                "effects = self._drain()",
                "effects: list[Effect] = []",
            ),
        ),
    ),
    Mutant(
        "acknowledged-while-changing",
        "PROTOCOL.md rule 2",
        "Acknowledgements are not frozen while an ensemble change is under way.",
        (
            Edit(
                CORE,
                "WriterCore.reply",
                "            if self.changing:\n                return []\n",
                "",
            ),
        ),
    ),
    Mutant(
        "late-replies-counted",
        "PROTOCOL.md rule 2",
        "A late answer of a replaced bookie counts for the one in its place.",
        (
            Edit(
                CORE,
                "WriterCore.reply",
                " or self.ensemble[index] != bookie_id:",
                ":",
            ),
        ),
    ),
    Mutant(
        "bookie-twice-in-an-ensemble",
        "PROTOCOL.md rule 1",
        "A failed member is replaced by one that is in the ensemble already, and nobody looks.",
        (
            Edit(
                "fencelog.ledgers.placement.placement",
                "Placement.replace",
                "self._available({*ensemble, *exclude})",
                "self._available(exclude)",
            ),
            Edit(
                "fencelog.ledgers.ledger_metadata.model",
                "LedgerMetadata.with_ensemble",
                "check(len(set(bookies)) == len(bookies),",
                "check(len(set(bookies)) <= len(bookies),",
            ),
            Edit(
                "fencelog.ledgers.ledger_metadata.model",
                "_check_fragments",
                "if len(set(fragment.bookies)) != metadata.ensemble_size:",
                "if len(fragment.bookies) != metadata.ensemble_size:",
            ),
        ),
    ),
    Mutant(
        "fragment-at-lac",
        "PROTOCOL.md rule 2",
        "A new fragment begins at LAC, with an entry whose copies lie in the previous one.",
        (Edit(CORE, "WriterCore._change", "self.lac + 1)", "max(self.lac, 0))"),),
    ),
)

LAC = (
    Mutant(
        "entries-carry-a-lac-too-high",
        "PROTOCOL.md rules 1 and 4",
        "Entries carry the entry before them as LAC, acknowledged or not.",
        (Edit(WRITER, "LedgerWriter._flush", "+ 1, core.lac", "+ 1, core.last_add_pushed"),),
    ),
    Mutant(
        "explicit-lac-too-high",
        "PROTOCOL.md rule 1",
        "An idle writer tells its bookies the last entry that it has sent.",
        (
            Edit(
                EXPLICIT,
                "ExplicitLac._time_is_over",
                "        if core.has_pending:\n"
                "            return  # its acknowledgement begins anew\n"
                "        if core.last_add_pushed != self._last_add_pushed:\n"
                "            self._wait()\n"
                "        else:\n"
                "            self._tell(core.lac)",
                "        self._tell(core.last_add_pushed)",
            ),
        ),
    ),
)

CLOSING = (
    Mutant(
        # What comes in while the close is under way, or after it, is acknowledged all the same.
        "close-does-not-wait",
        "PROTOCOL.md rule 8",
        "The ledger is closed at LAC while entries are pending.",
        (
            Edit(
                WRITER,
                "LedgerWriter._finish",
                "(self._core.has_pending or self._change is not None)",
                "self._change is not None",
            ),
            Edit(
                CORE,
                "WriterCore.seal",
                "        check(not self._pending and not self.changing,"
                ' "closing before all is acknowledged")\n'
                "        self._sealed = True\n",
                "",
            ),
        ),
    ),
    Mutant(
        "writer-closes-over-closed",
        "PROTOCOL.md rules 3 and 8",
        "A fenced writer closes its ledger all the same, over the end that its recoverer found.",
        (
            Edit(
                WRITER,
                "LedgerWriter._finish",
                "        if self._core.finished is not None:\n"
                "            raise self._core.finished\n"
                "        self._core.seal()\n",
                "",
            ),
            Edit(
                TRANSITIONS,
                "closed_by_writer",
                "    if base.state is LedgerState.OPEN:\n",
                "    if base.last_entry_id != last_entry_id or not base.is_closed:\n"
                "        base = replace(base, state=LedgerState.OPEN)\n",
            ),
        ),
    ),
)

METADATA = (
    Mutant(
        "deleted-without-a-fence",
        "a deleted ledger takes no entries",
        "The metadata of a ledger is deleted while its writer goes on.",
        (
            Edit(
                "fencelog.ledgers.client",
                "LedgerClient.delete",
                "await self._fence_for_good(ledger_id)",
                "await self.ledgers.get(ledger_id)",
            ),
        ),
    ),
    Mutant(
        "metadata-without-cas",
        "PROTOCOL.md: Metadata",
        "A change of metadata is written whatever stands there.",
        (
            Edit(
                STORE,
                "LedgerStore.update",
                "set(_path(metadata.ledger_id), value, version)",
                "set(_path(metadata.ledger_id), value, -1)",
            ),
        ),
    ),
    Mutant(
        "lost-reply-is-no",
        "unknown is not no",
        "A change whose answer is lost is taken for one that did not happen.",
        (
            Edit(
                UPDATE,
                "update_metadata",
                "                unknown = error\n",
                "                raise FencelogError(\n"
                "                    ErrorCode.METADATA_UNAVAILABLE, error.detail\n"
                "                ) from error\n",
            ),
        ),
    ),
    Mutant(
        "unknown-change-forgotten",
        "unknown is not no; PROTOCOL.md rule 2",
        "A change of unknown outcome has not happened, where the metadata are away after it.",
        (
            Edit(
                UPDATE,
                "update_metadata",
                "                unknown = error\n",
                "                pass\n",
            ),
        ),
    ),
    Mutant(
        "id-given-twice",
        "ids are never given twice",
        "Ids that another process took first are taken too, and a ledger that exists is our own.",
        (
            Edit(
                IDS,
                "LedgerIds._reserve",
                "                    await self._create_counter()\n",
                "                    await self._create_counter()\n"
                "                elif error.code is ErrorCode.METADATA_CONFLICT:\n"
                "                    return range(last + 1, last + 1 + BLOCK)\n",
            ),
            Edit(
                STORE,
                "LedgerStore.first_version",
                "return version.first if found.token == metadata.token else None",
                "return version.first",
            ),
        ),
    ),
    Mutant(
        # The recoverer's own check of the fragments would stop it from closing; without both, the
        # close throws away what the writer had acknowledged in its new fragment.
        "ensemble-change-in-recovery",
        "PROTOCOL.md rule 2",
        "The writer changes the ensemble also while somebody recovers the ledger.",
        (
            Edit(
                TRANSITIONS,
                "with_new_ensemble",
                "if base.state is not LedgerState.OPEN or",
                "if base.is_closed or",
            ),
            Edit(
                TRANSITIONS,
                "closed_by_recoverer",
                "if base.fragments != snapshot.fragments:",
                "if base.ledger_id != snapshot.ledger_id:",
            ),
        ),
    ),
)

MUTANTS = (*ACKNOWLEDGING, *ENSEMBLE_CHANGES, *LAC, *CLOSING, *METADATA)
