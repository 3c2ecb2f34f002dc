"""Wrong owners: who owns a partition, and whether an owner still is one."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

FORWARDS = "fencelog.broker.partition.forwards"
NODE = "fencelog.broker.partition.owner_node"
OWNERSHIP = "fencelog.broker.partition.ownership"
CHECK = "fencelog.broker.partition.ownership_check"
QUIET = "fencelog.broker.partition.quiet_check"
UNLOADING = "fencelog.broker.background.unloading"

_FAILS = "SEMANTICS.md, when a broker fails"
_READERS = "SEMANTICS.md, readers"
_PRODUCERS = "SEMANTICS.md, producers"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "node-of-an-earlier-session",
        _FAILS,
        "An owner takes the node of its earlier session for its own, and does not restore it.",
        (
            Edit(
                OWNERSHIP,
                "Ownership.is_ours",
                "return owner.session_id == self._store.session_id",
                "return self.is_this_broker(owner)",
            ),
        ),
    ),
    Mutant(
        "living-owner-is-replaced",
        _FAILS,
        "The node of a broker that nobody has found dead is replaced.",
        (
            Edit(
                OWNERSHIP,
                "Ownership.claiming",
                "if not self.is_this_broker(previous) and not self._is_dead(previous.session_id):",
                "if self.is_ours(previous):",
            ),
        ),
    ),
    Mutant(
        "dead-for-good",
        _FAILS,
        "A broker that was found dead once loses its partitions whenever they are asked for.",
        (
            Edit(
                OWNERSHIP,
                "Ownership._is_dead",
                "return asyncio.get_running_loop().time() < until",
                "return session_id in self._dead",
            ),
        ),
    ),
    Mutant(
        "successor-taken-for-the-dead",
        _FAILS,
        "A broker that finds an owner dead removes the node of whoever follows it.",
        (
            Edit(
                OWNERSHIP,
                "Ownership.remove_dead",
                "owner.url == url and not",
                "not",
            ),
        ),
    ),
    Mutant(
        "owner-takes-itself-for-dead",
        _FAILS,
        "A broker that finds nobody at its own address removes its node.",
        (
            Edit(
                OWNERSHIP,
                "Ownership.remove_dead",
                "owner.url == url and not self.is_ours(owner):",
                "owner.url == url:",
            ),
        ),
    ),
    Mutant(
        "gives-up-what-others-own",
        _FAILS,
        "A broker that gives a partition up removes the node of its next owner.",
        (
            Edit(
                OWNERSHIP,
                "Ownership.release",
                "if owner is not None and self.is_ours(owner):",
                "if owner is not None:",
            ),
        ),
    ),
    Mutant(
        "lost-claim-counts-as-made",
        _FAILS,
        "A claim whose outcome was lost, or that another broker forestalled, counts as made.",
        (
            Edit(
                OWNERSHIP,
                "Ownership.claim",
                "                if error.code not in _FASTER_OR_UNKNOWN:\n"
                "                    raise\n",
                "                if error.code not in _FASTER_OR_UNKNOWN:\n"
                "                    raise\n"
                "                return None\n",
            ),
        ),
    ),
    Mutant(
        "owner-seen-once",
        _FAILS,
        "A broker does not watch who owns a partition that it was refused.",
        (Edit(NODE, "OwnerNode._check", "        self._keep_watch()\n", ""),),
    ),
    Mutant(
        "restored-without-a-look",
        _FAILS,
        "An owner that restores its node does not look whether another broker had the log.",
        (
            Edit(
                NODE,
                "OwnerNode._reclaim",
                "                    await self._holder.check_log()\n",
                "",
            ),
        ),
    ),
    Mutant(
        "not-restored-after-a-failure",
        _FAILS,
        "An owner whose node could not be restored at once leaves it so.",
        (
            Edit(
                NODE,
                "OwnerNode._reclaim",
                "                    self._is_missing = True\n",
                "",
            ),
        ),
    ),
    Mutant(
        "vanished-while-it-opened",
        _FAILS,
        "A node that vanishes while its log is opened is not restored.",
        (Edit(NODE, "OwnerNode.keep", "if self._is_missing:", "if False:"),),
    ),
    Mutant(
        "vanished-before-it-was-seen",
        _FAILS,
        "A node that vanishes before the watch has seen it created is not restored.",
        (
            Edit(
                NODE,
                "OwnerNode._watch_anew",
                "        self.close()\n",
                "",
            ),
        ),
    ),
    Mutant(
        "sent-to-the-former-owner",
        _FAILS,
        "A broker that owns a partition sends requests to its former owner.",
        (
            Edit(
                NODE,
                "OwnerNode.claimed",
                "        self._set_other(None)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "not-ours-as-nobody-knows",
        _FAILS,
        "An owner that cannot read its node counts as replaced.",
        (
            Edit(
                NODE,
                "OwnerNode.is_ours_as_far_as_known",
                "            return True\n",
                "            return False\n",
            ),
        ),
    ),
    Mutant(
        "released-what-was-released",
        _FAILS,
        "A broker releases a partition whose node was given up with the log.",
        (
            Edit(
                NODE,
                "OwnerNode.release",
                "if may_own and not is_done:",
                "if may_own:",
            ),
        ),
    ),
    Mutant(
        "answered-by-an-earlier-look",
        _PRODUCERS,
        "A look at the ledger list that has begun already answers whoever asks for one.",
        (
            Edit(
                CHECK,
                "OwnershipCheck._run",
                "asked, self._asked = self._asked, []",
                "asked = self._asked",
            ),
            Edit(
                CHECK,
                "OwnershipCheck._run",
                "                    self._answer(asked, is_ours=is_ours)\n",
                "                    self._answer(asked, is_ours=is_ours)\n"
                "                    self._asked = []\n",
            ),
        ),
    ),
    Mutant(
        "ours-when-nothing-answers",
        _PRODUCERS,
        "An owner that gets no answer in time counts as the present one.",
        (
            Edit(
                CHECK,
                "OwnershipCheck._is_ours",
                '            log.warning("%s: cannot tell whether it is still ours: no answer", '
                "self._node.path)\n",
                "            return True\n",
            ),
        ),
    ),
    Mutant(
        "ours-at-the-end",
        _PRODUCERS,
        "A log that ends says that it is still its owner's.",
        (
            Edit(
                CHECK,
                "OwnershipCheck.close",
                "self._answer(self._asked, is_ours=False)",
                "self._answer(self._asked, is_ours=True)",
            ),
        ),
    ),
    Mutant(
        "asked-during-the-look",
        _READERS,
        "A request that comes while an owner looks at the ledger list does not have it look again.",
        (
            Edit(
                QUIET,
                "QuietCheck.check",
                "        self._reader.was_asked = False\n        self._restart()\n        try:\n"
                "            await self._node.check_epoch()\n",
                "        self._restart()\n        try:\n"
                "            await self._node.check_epoch()\n"
                "            self._reader.was_asked = False\n",
            ),
        ),
    ),
    Mutant(
        "quiet-owner-is-never-due",
        _READERS,
        "An owner that is asked for messages alone is never due for a look.",
        (
            Edit(
                QUIET,
                "QuietCheck.is_due",
                "return self._reader.was_asked and waited_s",
                "return not self._reader.was_asked and waited_s",
            ),
        ),
    ),
    Mutant(
        "replaced-and-silent",
        _READERS,
        "An owner that finds itself replaced goes on.",
        (
            Edit(
                QUIET,
                "QuietCheck.check",
                "            await self._node.check_epoch()\n        except LedgerListLost:\n"
                "            raise\n",
                "            await asyncio.sleep(0)\n        except LedgerListLost:\n"
                "            raise\n",
            ),
        ),
    ),
    Mutant(
        "single-messages-wait-for-ever",
        _PRODUCERS,
        "A single message that went to an owner which was replaced is waited for.",
        (
            Edit(
                FORWARDS,
                "Forwards.appends",
                "            self._limits[found] = owner_url\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "lost-message-is-a-refusal",
        _PRODUCERS,
        "A single message that an owner had not answered when it was replaced is sent to the next.",
        (
            Edit(
                FORWARDS,
                "ForwardedAppends._end",
                "FencelogError(ErrorCode.APPEND_UNKNOWN, why)",
                "FencelogError(ErrorCode.NO_OWNER, why)",
            ),
        ),
    ),
    Mutant(
        "drained-once-for-all",
        _FAILS,
        "A drain whose time is over is not continued: what it has left is closed, not handed over.",
        (
            Edit(
                UNLOADING,
                "Unloading._has_left",
                "return bool(self._here() or drained.result().still_open)",
                "return False",
            ),
        ),
    ),
    Mutant(
        "not-drained-is-not-taken",
        _FAILS,
        "A drain says of partitions that it has left open that any broker may have them.",
        (
            Edit(
                UNLOADING,
                "Unloading._transfer_all",
                "DrainResult(len(not_taken - still_open), len(still_open))",
                "DrainResult(len(still_open))",
            ),
        ),
    ),
)
