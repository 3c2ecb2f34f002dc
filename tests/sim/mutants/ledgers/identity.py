"""Wrong ways to know a bookie and to repair its data: identity, registration, what an operator is
told, repairs, scrubbing. Tests of these parts detect them."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ADMIN = "fencelog.bookie.engine.admin"
BACKOFF = "fencelog.bookie.repair.backoff"
BOOKIE = "fencelog.bookie.engine.bookie"
COLLECTOR = "fencelog.bookie.gc.collector"
COOKIES = "fencelog.bookie.identity.cookies"
CORE = "fencelog.bookie.repair.core"
DECISIONS = "fencelog.bookie.identity.cookies_core"
DIRECTORY = "fencelog.bookie.identity.data_directory"
INTEGRITY = "fencelog.bookie.repair.integrity"
REGISTRY = "fencelog.bookie.identity.cookie_registry"
SCRUBBER = "fencelog.bookie.repair.scrubber"

IDENTITY: tuple[Mutant, ...] = (
    Mutant(
        "remade-under-the-old-incarnation",
        "PROTOCOL.md rule 10",
        "A bookie whose directories are made again keeps its incarnation.",
        (
            Edit(
                COOKIES,
                "Cookie.remade",
                "            incarnation=incarnation,\n",
                "            incarnation=self.incarnation,\n",
            ),
        ),
    ),
    Mutant(
        "half-made-is-whole",
        "STORAGE.md: cookies",
        "A directory whose making was not finished counts as whole.",
        (
            Edit(
                DECISIONS,
                "_lost",
                "mark.made_in if mark is not None and mark.is_made else None",
                "mark.made_in if mark is not None else None",
            ),
        ),
    ),
    Mutant(
        "directories-in-another-order",
        "STORAGE.md: directories and shards",
        "Ledger directories may be given in another order: ledgers are looked for where they are "
        "not.",
        (
            Edit(
                DECISIONS,
                "_of_directories",
                "elif mark.place != directory.place:",
                "elif mark.place[0] is not directory.place[0]:",
            ),
        ),
    ),
    Mutant(
        "repaired-under-a-running-bookie",
        "STORAGE.md: cookies",
        "Lost directories are made again while a process serves under the id.",
        (
            Edit(
                DECISIONS,
                "decide",
                "    if registered.is_serving:\n"
                "        return _in_use(found, request, lost)\n"
                "    state",
                "    state",
            ),
        ),
    ),
    Mutant(
        "directory-given-twice",
        "STORAGE.md: directories and shards",
        "A directory that was given under two names is made for both.",
        (Edit(DIRECTORY, "DataDirectory.make", "        self._check_apart(given)\n", ""),),
    ),
    Mutant(
        "registered-over-another",
        "STORAGE.md: cookies",
        "Of two processes that start at once under one id, the slower one replaces the cookie of "
        "the other.",
        (
            Edit(
                REGISTRY,
                "CookieRegistry.register",
                "                if now.version != held.version:\n",
                "                held = now\n                if attempt > _ATTEMPTS:\n",
            ),
        ),
    ),
    Mutant(
        "unknown-registration-is-refused",
        "unknown is not no",
        "A registration whose answer was lost is refused when it cannot be looked at.",
        (
            Edit(
                REGISTRY,
                "CookieRegistry.register",
                "                    if unknown is None:\n                        raise\n"
                "                    raise unknown from refusal\n",
                "                    raise refusal\n",
            ),
        ),
    ),
    Mutant(
        "one-reason-gone-is-writable",
        "MAINTENANCE.md: full disks",
        "An operator who takes back his own reason to be read-only has a full disk take adds.",
        (
            Edit(
                BOOKIE,
                "Bookie.set_read_only",
                "shard.adds.is_read_only = self.is_read_only",
                "shard.adds.is_read_only = on",
            ),
        ),
    ),
    Mutant(
        "told-what-was-asked-for",
        "MAINTENANCE.md: full disks",
        "An operator is told that a bookie takes adds again, whatever other reasons there are.",
        (
            Edit(
                ADMIN,
                "own_verbs.read_only",
                '"read_only": bookie.is_read_only,',
                '"read_only": given["on"],',
            ),
        ),
    ),
    Mutant(
        "space-of-the-first-disk",
        "MAINTENANCE.md: full disks",
        "An operator is told the space of one disk, not that of the fullest.",
        (
            Edit(
                ADMIN,
                "own_verbs.status",
                "fullest(spaces).free_bytes",
                "spaces[0].space.free_bytes",
            ),
        ),
    ),
    Mutant(
        "journals-disk-unwatched",
        "MAINTENANCE.md: full disks",
        "The space of the disk that has the journal is not looked at.",
        (
            Edit(
                DIRECTORY,
                "DataDirectory.spaces",
                '            holds.setdefault(shard.paths.journal, set()).add("journal")\n',
                "",
            ),
        ),
    ),
    Mutant(
        "suspended-all-the-same",
        "MAINTENANCE.md: compaction",
        "Compaction goes on although an operator has suspended it.",
        (
            Edit(
                COLLECTOR,
                "Garbage.collect",
                "await files.collect(0.0 if self._is_suspended else below)",
                "await files.collect(below)",
            ),
            Edit(
                COLLECTOR,
                "Garbage.__init__",
                "must_stop=lambda: self._is_suspended,",
                "must_stop=lambda: False,",
            ),
        ),
    ),
    Mutant(
        "no-grace-from-then-on",
        "MAINTENANCE.md: garbage collection",
        "Once an operator has asked for a pass without the grace time, no pass has one.",
        (
            Edit(
                COLLECTOR,
                "Garbage.collect",
                "without_grace, self._is_asked_without_grace = self._is_asked_without_grace, False",
                "without_grace = self._is_asked_without_grace",
            ),
        ),
    ),
    Mutant(
        "space-of-one-bookie-spared",
        "MAINTENANCE.md: compaction",
        "Compaction leaves free what one bookie needs, on a disk that several share.",
        (
            Edit(
                COLLECTOR,
                "Garbage._spare_bytes",
                "return own * self._sharers",
                "return own",
            ),
        ),
    ),
)

REPAIRS: tuple[Mutant, ...] = (
    Mutant(
        "limbo-of-one-is-of-all",
        "MAINTENANCE.md: ending limbo",
        "An entry whose holders are in limbo or not reached is called beyond repair.",
        (
            Edit(
                CORE,
                "missing_reason",
                "all(code is ErrorCode.LEDGER_IN_LIMBO for code in codes)",
                "any(code is ErrorCode.LEDGER_IN_LIMBO for code in codes)",
            ),
        ),
    ),
    Mutant(
        "one-no-is-lost",
        "unknown is not no",
        "An entry is called lost although a bookie that may have it was not reached.",
        (
            Edit(
                CORE,
                "missing_reason",
                "if not codes:",
                "if len(codes) < len(failed) or not failed:",
            ),
        ),
    ),
    Mutant(
        "share-without-its-first-entry",
        "PROTOCOL.md rule 1",
        "A bookie does not count the first of each row of entries as its own.",
        (Edit(CORE, "_share", "yield max(start, low)", "yield max(start + 1, low)"),),
    ),
    Mutant(
        "more-ranges-than-a-read-takes",
        "PROTOCOL.md: READ_RANGES",
        "A copier asks for more ranges at a time than a bookie answers.",
        (
            Edit(
                CORE,
                "batches",
                "(count + entries > most_entries or len(batch) == MAX_READ_RANGES)",
                "count + entries > most_entries",
            ),
        ),
    ),
    Mutant(
        "wanted-behind-the-end",
        "MAINTENANCE.md: ending limbo",
        "A repair waits for entries behind the end of a closed ledger.",
        (
            Edit(
                CORE,
                "wanted_ranges",
                "        last = min(last, metadata.last_entry_id)\n",
                "        last = min(last, metadata.last_entry_id + 1)\n",
            ),
        ),
    ),
    Mutant(
        "some-in-limbo-is-all",
        "MAINTENANCE.md: ending limbo",
        "A recovery that lacks bookies that do not answer is said to lack those in limbo alone.",
        (
            Edit(
                BACKOFF,
                "PostponedLedger.for_reason",
                'if bookies and list(bookies) == error.extra["missing_bookies"]:',
                "if bookies:",
            ),
        ),
    ),
    Mutant(
        "only-shown-ledgers-are-lost",
        "MAINTENANCE.md: ending limbo",
        "Of the ledgers with lost entries, an operator is told the number of those that are shown.",
        (
            Edit(
                BACKOFF,
                "WaitingLedgers.status",
                "for _, put_off in waiting]",
                "for _, put_off in waiting[:_SHOWN]]",
            ),
        ),
    ),
    Mutant(
        "only-shown-entries-are-lost",
        "MAINTENANCE.md: ending limbo",
        "Of the entries without a copy, an operator is told the number of those that are shown.",
        (
            Edit(
                BACKOFF,
                "_entries",
                "for first, last in waiting.entries)",
                "for first, last in waiting.entries[:_SHOWN_RANGES])",
            ),
        ),
    ),
    Mutant(
        "attempts-of-an-earlier-repair",
        "MAINTENANCE.md: re-replication",
        "The attempts of a repair that has ended count for the next one of the ledger.",
        (
            Edit(
                BACKOFF,
                "WaitingLedgers.done",
                "        self._counted.pop((what, ledger_id), None)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "changed-during-the-repair",
        "PROTOCOL.md rule 10; BP-46",
        "A ledger leaves limbo although its metadata was changed while its entries were copied.",
        (
            Edit(
                INTEGRITY,
                "Integrity._end_limbo",
                "            if await self._ledgers.get_latest(ledger_id) != (metadata, version):\n"
                "                continue\n",
                "            await self._ledgers.get_latest(ledger_id)\n",
            ),
        ),
    ),
    Mutant(
        "removed-during-the-repair",
        "PROTOCOL.md rule 10; BP-46",
        "A ledger leaves limbo although its entries were removed while they were copied.",
        (
            Edit(
                INTEGRITY,
                "Integrity._end_limbo",
                "if state.removals == removals:",
                "if state.removals >= removals:",
            ),
        ),
    ),
    Mutant(
        "marked-is-a-stranger",
        "MAINTENANCE.md: ending limbo",
        "A ledger that a replication worker may give to this bookie yet counts as one that it need "
        "not have.",
        (
            Edit(
                INTEGRITY,
                "Integrity._is_stranger",
                "not metadata.is_closed or await self._ledgers.is_marked(ledger_id)",
                "not metadata.is_closed",
            ),
        ),
    ),
    Mutant(
        "scrubbed-up-to-the-first-damage",
        "MAINTENANCE.md: scrubbing",
        "Of the runs that are read together, those behind a damaged one are not looked at.",
        (
            Edit(
                SCRUBBER,
                "Scrubber._unreadable.work",
                "                        found.append((stored, error))\n",
                "                        found.append((stored, error))\n"
                "                        break\n",
            ),
        ),
    ),
)

MUTANTS = (*IDENTITY, *REPAIRS)
