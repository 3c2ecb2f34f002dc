"""Wrong checks, elections, marks and settings of the auditor, and wrong watches over disks."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

AUDITOR = "fencelog.bookie.auditor.auditor"
AUDITS = "fencelog.bookie.auditor.audit_store"
BALANCER = "fencelog.bookie.balance.balancer"
CORE = "fencelog.bookie.auditor.check_core"
DECOMMISSION = "fencelog.bookie.auditor.decommission_core"
DISKS = "fencelog.bookie.maintenance.disk_watch"
ELECTION = "fencelog.bookie.auditor.election"
LEDGERS = "fencelog.bookie.auditor.ledger_check"
SERVICES = "fencelog.bookie.maintenance.maintenance"
SETTINGS = "fencelog.bookie.replication.settings"
STORE = "fencelog.bookie.replication.store"

_AUDITOR = "MAINTENANCE.md: the auditor"
_BALANCE = "MAINTENANCE.md: balance"
_CHECKER = "MAINTENANCE.md: the cluster metadata checker"
_DISKS = "MAINTENANCE.md: disks"
_REMOVAL = "MAINTENANCE.md: taking a bookie out"

COMPARED: tuple[Mutant, ...] = (
    Mutant(
        "unknown-copies-are-lost",
        "unknown is not no",
        "Entries are called lost although bookies that cannot tell may have them.",
        (
            Edit(
                CORE,
                "verdict",
                "len(shortfall.present) + len(shortfall.unknown)",
                "len(shortfall.present)",
            ),
        ),
    ),
    Mutant(
        "unknown-copies-are-missing",
        "unknown is not no",
        "A ledger that lacks copies is marked with the bookies that could not tell, too.",
        (
            Edit(
                CORE,
                "DurabilityFindings.add",
                "for bookie in shortfall.absent:",
                "for bookie in (*shortfall.absent, *shortfall.unknown):",
            ),
        ),
    ),
    Mutant(
        "compared-beyond-its-fragment",
        _CHECKER,
        "The first entry of a fragment is looked for on the bookies of the one before.",
        (
            Edit(
                CORE,
                "shortfalls",
                "f.first_entry_id - 1 for f in following",
                "f.first_entry_id for f in following",
            ),
        ),
    ),
    Mutant(
        "violations-beyond-the-limit-uncounted",
        _CHECKER,
        "The violations of a ledger that are not described are not counted either.",
        (Edit(CORE, "DurabilityFindings.add", "                self._further[kind] += 1\n", ""),),
    ),
    Mutant(
        "undescribed-violations-uncounted",
        _CHECKER,
        "A report counts the violations that it describes.",
        (
            Edit(
                "fencelog.bookie.auditor.check_report",
                "CheckReport.add",
                "        self.counts[violation.kind] += 1\n"
                "        if len(self.violations) < MAX_REPORTED_VIOLATIONS:\n",
                "        if len(self.violations) < MAX_REPORTED_VIOLATIONS:\n"
                "            self.counts[violation.kind] += 1\n",
            ),
        ),
    ),
    Mutant(
        "last-fragment-checked-while-it-is-written",
        _AUDITOR,
        "The first entry of an open ledger's last fragment counts as one that cannot change.",
        (
            Edit(
                LEDGERS,
                "closed_part",
                "metadata.last_fragment.first_entry_id - 1",
                "metadata.last_fragment.first_entry_id",
            ),
        ),
    ),
    Mutant(
        "failed-sample-is-missing",
        "unknown is not no",
        "A bookie that does not answer a read of samples is marked.",
        (Edit(LEDGERS, "LedgerCheck._sample", "elif error.code.is_negative:", "else:"),),
    ),
    Mutant(
        "read-as-far-as-one-answer",
        _AUDITOR,
        "Of the entries that are to be read from a bookie those behind its first answer are not.",
        (Edit(LEDGERS, "LedgerCheck._read", "while entry_id <= last:", "if entry_id <= last:"),),
    ),
    Mutant(
        "unverifiable-is-damaged",
        _AUDITOR,
        "Entries whose key is not known here are called damaged.",
        (Edit(LEDGERS, "LedgerCheck._can_verify", "return False", "return True"),),
    ),
)

DECIDED: tuple[Mutant, ...] = (
    Mutant(
        "last-ledger-sets-the-demand",
        _REMOVAL,
        "A bookie may leave if the ledger that is read last could do without it.",
        (
            Edit(
                DECOMMISSION,
                "Demand.add",
                "max(self.ensemble_size, metadata.ensemble_size)",
                "metadata.ensemble_size",
            ),
        ),
    ),
    Mutant(
        "old-fragments-need-no-place",
        _REMOVAL,
        "A bookie may leave although nobody could take its copies of an earlier fragment.",
        (
            Edit(
                DECOMMISSION,
                "Demand.add",
                "for fragment in metadata.fragments:",
                "for fragment in metadata.fragments[-1:]:",
            ),
        ),
    ),
    Mutant(
        "old-fragments-do-not-remain",
        _REMOVAL,
        "A bookie has left when no last fragment names it.",
        (
            Edit(
                DECOMMISSION,
                "Remainder.with_ledger",
                "for fragment in metadata.fragments",
                "for fragment in metadata.fragments[-1:]",
            ),
        ),
    ),
    Mutant(
        "ousted-auditor-goes-on",
        _AUDITOR,
        "An auditor goes on when another one holds the office.",
        (Edit(ELECTION, "Election._until_lost", "if node.version != version:", "if not node:"),),
    ),
    Mutant(
        "failed-auditor-keeps-the-office",
        _AUDITOR,
        "No other process becomes the auditor when the auditor has failed.",
        (Edit(ELECTION, "Election._lead", "            await self._resign(version)\n", ""),),
    ),
    Mutant(
        "unread-office-is-vacant",
        "unknown is not no",
        "There is no auditor where the metadata store cannot be asked.",
        (
            Edit(
                ELECTION,
                "who_is_auditor",
                "if error.code is ErrorCode.METADATA_NOT_FOUND:",
                "if error.code is not ErrorCode.CORRUPT:",
            ),
        ),
    ),
    Mutant(
        "clocks-outlive-a-broken-connection",
        _AUDITOR,
        "A bookie that was back while the auditor saw nothing is lost all the same.",
        (
            Edit(
                AUDITOR,
                "Auditor._on_session",
                "state is not SessionState.CONNECTED",
                "state is SessionState.EXPIRED",
            ),
        ),
    ),
    Mutant(
        "lost-during-a-scan-is-marked",
        _AUDITOR,
        "A bookie that is lost while ledgers are marked counts as one whose ledgers are.",
        (Edit(AUDITOR, "Auditor._check_bookies", "found.lost & self._lost()", "self._lost()"),),
    ),
    Mutant(
        "marked-while-it-is-off",
        _AUDITOR,
        "The ledger check marks while self-healing is off.",
        (
            Edit(
                AUDITOR,
                "Auditor._is_held",
                "name is not CheckName.CLUSTER",
                "name is CheckName.BOOKIES",
            ),
        ),
    ),
    Mutant(
        "marks-go-on-when-turned-off",
        _AUDITOR,
        "A check that is marking as self-healing is turned off goes on to its end.",
        (
            Edit(
                AUDITOR,
                "Auditor._on_settings",
                "            self._marking.cancel()\n",
                "            self._look.set()\n",
            ),
        ),
    ),
    Mutant(
        "skipped-check-was-made",
        _AUDITOR,
        "A check that was skipped is not due for another week.",
        (Edit(AUDITOR, "Auditor._check_forever", ' and "skipped" not in result', ""),),
    ),
    Mutant(
        "newer-request-removed",
        _AUDITOR,
        "Checks that are asked for while others are made are forgotten.",
        (
            Edit(
                AUDITS,
                "AuditStore.done",
                "await self._store.delete(REQUEST_PATH, request.version)",
                "now = await self._store.get(REQUEST_PATH)\n"
                "                await self._store.delete(REQUEST_PATH, now.version)",
            ),
        ),
    ),
    Mutant(
        "request-replaces-another",
        _AUDITOR,
        "A request for a check forgets the one that waits.",
        (
            Edit(
                AUDITS,
                "AuditStore.request",
                "{*checks, *(before.checks if before else ())}",
                "{*checks}",
            ),
        ),
    ),
    Mutant(
        "skipped-check-is-complete",
        _AUDITOR,
        "A check that was skipped says that everything was checked just now.",
        (Edit(AUDITS, "_is_complete", ' and "skipped" not in result', ""),),
    ),
)

MARKED: tuple[Mutant, ...] = (
    Mutant(
        "known-mark-not-renewed",
        "PROTOCOL.md rule 11",
        "A mark that says nothing new is not written, and a worker that had looked removes it.",
        (
            Edit(
                STORE,
                "UnderReplicatedLedgers._add",
                "                missing = _merged(old.missing, causes)\n",
                "                missing = _merged(old.missing, causes)\n"
                "                if missing == old.missing:\n"
                "                    return True\n",
            ),
        ),
    ),
    Mutant(
        "marked-since-the-last-mark",
        _CHECKER,
        "A ledger that is marked again and again never lacks copies for too long.",
        (Edit(STORE, "UnderReplicatedLedgers._add", "min(old.since_us, now_us)", "now_us"),),
    ),
    Mutant(
        "withdrawn-with-all-causes",
        _REMOVAL,
        "A cancelled decommission takes back that the bookie's copies are damaged, too.",
        (
            Edit(
                STORE,
                "UnderReplicatedLedgers._remove",
                "old.missing[bookie_id] - {why}",
                "frozenset[Cause]()",
            ),
        ),
    ),
    Mutant(
        "unreadable-settings-are-the-defaults",
        _AUDITOR,
        "Self-healing goes on where it is not known whether it was turned off.",
        (
            Edit(
                SETTINGS,
                "_decoded_or_off",
                "AutorecoverySettings(is_disabled=True)",
                "DEFAULTS",
            ),
        ),
    ),
    Mutant(
        "settings-forget-one-another",
        _AUDITOR,
        "A change of one setting turns self-healing on again.",
        (
            Edit(
                SETTINGS, "change_settings.change", "replace(_decode(node), ", "replace(DEFAULTS, "
            ),
        ),
    ),
    Mutant(
        "balanced-at-any-rate",
        _BALANCE,
        "A rate of balancing may be 0, or less.",
        (Edit(SETTINGS, "_validate", ', "balance_bytes_per_s"', ""),),
    ),
    Mutant(
        "unreadable-mark-lacks-nothing",
        _BALANCE,
        "Copies are moved although a mark that cannot be read may be one of lost copies.",
        (
            Edit(
                BALANCER,
                "BookieBalancer._marked_phase",
                "return BalancePhase.WAITING if unreadable else phase",
                "return phase",
            ),
        ),
    ),
    Mutant(
        "balanced-while-it-is-off",
        _BALANCE,
        "Copies are moved while self-healing is off.",
        (
            Edit(
                BALANCER,
                "BookieBalancer._step",
                "if rate is None or self._settings.is_disabled:",
                "if rate is None:",
            ),
        ),
    ),
)

WATCHED: tuple[Mutant, ...] = (
    Mutant(
        "recoveries-end-with-adds",
        _DISKS,
        "A bookie that is read-only takes no recovery adds, for which its reserve is.",
        (
            Edit(
                DISKS,
                "DiskWatch.check",
                "set_out_of_space(not now.for_recovery)",
                "set_out_of_space(not now.for_adds)",
            ),
        ),
    ),
    Mutant(
        "looks-as-the-emptiest-disk-allows",
        _DISKS,
        "The disk that has least is full before it is looked at again.",
        (
            Edit(
                DISKS,
                "DiskWatch._look_ahead",
                "min(until_full), min(left)",
                "max(until_full), min(left)",
            ),
        ),
    ),
    Mutant(
        "full-when-the-last-disk-is",
        _DISKS,
        "An operator is told when the last disk is full, not the first.",
        (Edit(DISKS, "DiskWatch.status", "min((s for s in foretold", "max((s for s in foretold"),),
    ),
    Mutant(
        "services-outlive-their-bookie",
        "no service runs after its bookie has closed",
        "A service that tidies up still writes when the bookie's files are closed.",
        (
            Edit(
                SERVICES, "running", "await asyncio.gather(*tasks, return_exceptions=True)", "pass"
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*COMPARED, *DECIDED, *MARKED, *WATCHED)
