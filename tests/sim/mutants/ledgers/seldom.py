"""Wrong bookies that one history in thousands shows, or none: unit tests detect them."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ADDS = "fencelog.bookie.engine.adds"
ANSWERS = "fencelog.bookie.server.read_requests"
BOOT = "fencelog.bookie.engine.boot"
CLAIM = "fencelog.bookie.identity.claim"
DEDUP = "fencelog.bookie.engine.recovery_add_dedup"
FENCES = "fencelog.bookie.engine.fences"
FINDING = "fencelog.ledgers.recovery.recovery"
GARBAGE = "fencelog.bookie.gc.files"
LAC_ANSWERS = "fencelog.bookie.server.lac_answers"
LACS = "fencelog.bookie.engine.lacs"
READS = "fencelog.bookie.engine.reads"
TRANSITIONS = "fencelog.ledgers.ledger_metadata.transitions"

RARE: tuple[Mutant, ...] = (
    Mutant(
        # A group of adds has to be cut into two by the journal, and a crash to come between them.
        "lac-of-another-record",
        "PROTOCOL.md: LACs",
        "A LAC counts as durable with the first record of the adds that came together.",
        (Edit(ADDS, "Adds.add_many", "sequence + len(stored)", "sequence"),),
    ),
    Mutant(
        "lac-of-another-ledgers-record",
        "PROTOCOL.md: LACs",
        "A LAC counts as durable with the first record of the LACs that came together.",
        (Edit(LACS, "Lacs.write", "sequence + len(bodies)", "sequence"),),
    ),
    Mutant(
        "known-lac-is-durable",
        "PROTOCOL.md: LACs",
        "An explicit LAC that a bookie knows already is confirmed before it is durable.",
        (
            Edit(
                LACS,
                "Lacs.write",
                "self._journal.sync(partial(on_replies, known))",
                "self._loop.call_soon(on_replies, known, None)",
            ),
        ),
    ),
    Mutant(
        "lacs-answered-with-the-first",
        "PROTOCOL.md: WRITE_LACS",
        "The LACs of a request are confirmed when the first of them has its answer.",
        (
            Edit(
                LAC_ANSWERS, "LacAnswers.take", "self._missing -= len(places)", "self._missing = 0"
            ),
        ),
    ),
    Mutant(
        # Without a synced journal, a recovery has to write to a bookie that fenced the ledger, and
        # its power has to fail.
        "limbo-not-set-where-fenced",
        "PROTOCOL.md rule 10; BP-46",
        "A ledger that a bookie knows to be fenced does not enter limbo.",
        (
            Edit(
                FENCES,
                "Fences.put_in_limbo",
                "if known is not None and known.deleted:",
                "if known is not None and known.fenced:",
            ),
        ),
    ),
    Mutant(
        # Ledgers that are fenced together are rarely such that a bookie cannot answer for one.
        "fence-answers-in-another-order",
        "PROTOCOL.md rule 4",
        "A ledger for which there is an error gets the answer of another one, and that its error.",
        (
            Edit(
                ANSWERS,
                "_fence",
                "            answers.append(error)\n",
                "            answers.insert(0, error)\n",
            ),
        ),
    ),
    Mutant(
        # A recoverer has to begin with fragments that its server of metadata shows too late, and
        # find entries that it has to write again.
        "announced-over-a-change",
        "PROTOCOL.md rules 2 and 5",
        "A recovery that is announced late closes the ledger with the fragments it began with.",
        (
            Edit(
                FINDING,
                "find_end.announce",
                "if base.is_closed or base.fragments != snapshot.fragments:",
                "if base.is_closed:",
            ),
            Edit(
                TRANSITIONS,
                "closed_by_recoverer",
                "if base.fragments != snapshot.fragments:",
                "if base.ledger_id != snapshot.ledger_id:",
            ),
        ),
    ),
    Mutant(
        # The whole of a repair has to fall within one look at the index.
        "limbo-looked-at-last",
        "PROTOCOL.md rules 7 and 10",
        "A read that began in limbo says no, since the ledger was repaired meanwhile.",
        (
            Edit(
                READS,
                "Reads.read",
                "if in_limbo or state.limbo or state.removals != removals:",
                "if state.limbo:",
            ),
        ),
    ),
    Mutant(
        # The power has to fail, and a reader to ask, within the sync of one record.
        "explicit-lac-told-early",
        "a bookie's LAC never goes back",
        "An explicit LAC is told when the record before it is durable.",
        (
            Edit(
                LACS,
                "Lacs.write",
                "sequence = self._journal.position.sequence",
                "sequence = self._journal.position.sequence - 1",
            ),
        ),
    ),
    Mutant(
        "lac-of-an-add-told-early",
        "a bookie's LAC never goes back",
        "The LAC that an add carries is told before the add is durable.",
        (
            Edit(
                ADDS,
                "Adds.remember",
                "sequence = self._journal.position.sequence if self._journal_runs else 0",
                "sequence = 0",
            ),
        ),
    ),
    Mutant(
        # A ledger has to be copied back to a bookie within the flush that removes it there.
        "added-amid-a-removal",
        "MAINTENANCE.md: garbage collection",
        "An add is taken, and goes with the flush that removes its ledger.",
        (
            Edit(
                ADDS,
                "Adds._admit",
                "if state is not None and state.removing:",
                "if state is not None and state.removing and ledger_id < 0:",
            ),
        ),
    ),
    Mutant(
        "looked-up-across-a-flush",
        "STORAGE.md: overlaps",
        "An entry that a flush moves during the look-up is found nowhere, and stored again.",
        (
            Edit(
                DEDUP,
                "RecoveryAddDedup._missing",
                "if self._generation() == before:",
                "if self._generation() >= before:",
            ),
        ),
    ),
    Mutant(
        # Several pieces of one add have to be in different groups of the journal.
        "first-piece-answers-for-all",
        "STORAGE.md: overlaps",
        "An add of which several pieces are missing is answered when the first one is durable.",
        (
            Edit(
                DEDUP,
                "RecoveryAddDedup._store_missing",
                "== missing[-1]",
                "== missing[0]",
            ),
        ),
    ),
    Mutant(
        # The flush that removes a ledger has to fail while garbage is collected.
        "removed-though-the-index-failed",
        "MAINTENANCE.md: compaction",
        "Entry logs go for what the index shows, although it is not on the disk.",
        (
            Edit(
                GARBAGE,
                "FileGarbage._remove",
                "            await self._shard.write_io_thread.run(self._index.check_durable)\n",
                "",
            ),
        ),
    ),
    Mutant(
        # A bookie that lost its disk has to lose its session too, between its listings.
        "marks-of-another-session",
        "PROTOCOL.md rule 10; BP-46",
        "A bookie that may have forgotten serves, although its session ended between the instance "
        "and the listings.",
        (
            Edit(
                BOOT,
                "fence_before_serving",
                '    check_session(store, session_id, "read all ledgers")\n',
                "",
            ),
        ),
    ),
    Mutant(
        # A start after an unclean stop has to die between two effects on its disk.
        "unmarked-before-it-is-said",
        "STORAGE.md: cookies",
        "The mark of an unclean stop goes before the identity has a new incarnation.",
        (
            Edit(
                CLAIM,
                "claim_directories",
                "    identity = decision.identity\n    if isinstance",
                "    identity = decision.identity\n"
                "    if found.is_unsynced:\n"
                "        await io_thread.run(directory.unmark_unsynced)\n"
                "    if isinstance",
            ),
            Edit(
                CLAIM,
                "claim_directories",
                "    if found.is_unsynced:\n"
                "        await io_thread.run(directory.unmark_unsynced)\n"
                "    if registry and",
                "    if registry and",
            ),
        ),
    ),
    Mutant(
        # A ledger has to leave limbo while ranges of it are read.
        "ranges-denied-after-limbo",
        "PROTOCOL.md rule 10; BP-46",
        "A read of ranges denies what it looked for while the ledger was still in limbo.",
        (
            Edit(
                READS,
                "Reads.read_ranges",
                "if in_limbo or state.limbo or state.removals != removals:",
                "if state.limbo:",
            ),
        ),
    ),
)
