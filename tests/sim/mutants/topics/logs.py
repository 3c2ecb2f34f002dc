"""Wrong brokers: logs taken over, rolled and repaired against the rules of broker/SEMANTICS.md."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant
from tests.sim.mutants.topics.log_core import CLOSED_AND_THEN_SEALED

LEDGER_LIST = "fencelog.broker.ledger_list.ledger_list"
NODE = "fencelog.broker.ledger_list.store"
MEMORY = "fencelog.ledgers.metastore.memory"
OPEN_LEDGER = "fencelog.broker.ledger_list.open_ledger"
PIPELINE = "fencelog.broker.append.pipeline"
RUNNER = "fencelog.broker.log.step_runner"
STEPS = "fencelog.broker.log.steps_core"
TAKEOVER = "fencelog.broker.partition.takeover"

_UNFENCED = (
    "            reader = await factory.ledgers.open(ledger_id)\n"
    "            last = await reader.read_lac()\n"
    "            closed = reader.metadata.state.CLOSED\n"
    '            replace = __import__("dataclasses").replace\n'
    "            end = FoundEnd(\n"
    "                replace(reader.metadata, state=closed, last_entry_id=last, length=0)\n"
    "            )\n"
)

TAKING_OVER = (
    Mutant(
        "one-ledger-fenced",
        "SEMANTICS.md, list of ledgers 2; I2",
        "A takeover fences the last ledger; the one before it, it only reads.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._find_end",
                "        end = await factory.ledgers.find_end(ledger_id)\n",
                "        if ledger_id == self._loaded.segments[-1].ledger_id:\n"
                "            end = await factory.ledgers.find_end(ledger_id)\n"
                "        else:\n" + _UNFENCED,
            ),
        ),
    ),
    Mutant(
        "owner-by-lock-alone",
        "SEMANTICS.md, list of ledgers 2; I12",
        "Who holds the owner node need not fence anybody.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._find_end",
                "        end = await factory.ledgers.find_end(ledger_id)\n",
                "        if True:\n" + _UNFENCED,
            ),
        ),
    ),
    Mutant(
        "served-before-the-cas",
        "SEMANTICS.md, list of ledgers 2; I1",
        "A change of the list counts as soon as it is sent.",
        (
            Edit(
                NODE,
                "LedgerListStore.change",
                "            await asyncio.wait((changing,))\n",
                "            self.ledger_list = ledger_list\n            return\n",
            ),
        ),
    ),
    Mutant(
        "empty-because-not-found",
        "SEMANTICS.md, list of ledgers 5; I13; apache/pulsar#26074",
        "A ledger that cannot be recovered counts as empty, and is dropped.",
        (
            Edit(
                TAKEOVER,
                "_Takeover._recover",
                "        end, sealed = await self._ends[ledger_id]\n        self._note(end)\n",
                "        try:\n"
                "            end, sealed = await self._ends[ledger_id]\n"
                "            self._note(end)\n"
                "        except FencelogError:\n"
                "            sealed = Sealed(0, 0, 0, 0, 0)\n"
                '            simple = __import__("types").SimpleNamespace\n'
                "            end = simple(metadata=simple(last_entry_id=-1))\n",
            ),
        ),
    ),
    Mutant(
        "two-takeovers-of-one-version",
        "SEMANTICS.md, list of ledgers 2; I2",
        "The list is changed at whatever version it has now, not at the one whose ledgers were "
        "recovered.",
        (
            Edit(
                NODE,
                "LedgerListStore._set",
                "                own = Set(self.path, value, self._version)\n",
                "                self._version = (await self._store.get(self.path)).version\n"
                "                own = Set(self.path, value, self._version)\n",
            ),
        ),
    ),
)

AMBIGUOUS = (
    Mutant(
        "a-lost-log-goes-on",
        "SEMANTICS.md, list of ledgers 4; I3",
        "An instance that has lost the list goes on changing it.",
        (
            Edit(
                NODE,
                "LedgerListStore.check_held",
                "        if self.lost is not None:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "conflict-not-read-back",
        "SEMANTICS.md, list of ledgers 4; I3, I4; pravega#4721",
        "A conflict means that the change did not land: the new ledger is deleted.",
        (
            Edit(
                NODE,
                "LedgerListStore._set",
                "                    found, version = await read()\n"
                "                    if found is not None and found.token == token:\n"
                "                        return version, None\n",
                "                    found, version = self.ledger_list, NO_VERSION\n",
            ),
        ),
    ),
    Mutant(
        "foreign-change-taken-for-own",
        "SEMANTICS.md, list of ledgers 4; I3",
        "After a conflict whatever stands there counts as our own change.",
        (
            Edit(
                NODE,
                "LedgerListStore._set",
                "                    if found is not None and found.token == token:\n",
                "                    if found is not None:\n",
            ),
        ),
    ),
    Mutant(
        "unlisted-ledger-deleted-unread",
        "SEMANTICS.md, list of ledgers 5; I4",
        "A ledger whose listing was refused is deleted, whatever the list says.",
        (
            Edit(
                NODE,
                "LedgerListStore._set",
                "                    if found is not None and found.token == token:\n"
                "                        return version, None\n",
                "",
            ),
            Edit(
                OPEN_LEDGER,
                "LedgerFactory.discard",
                "        if lost.ledger_list is None or "
                "ledger.ledger_id not in lost.ledger_list.ledgers:\n",
                "        if True:\n",
            ),
        ),
    ),
)

ROLLING = (
    Mutant(
        "second-roll-early",
        "SEMANTICS.md, list of ledgers 3; I2b",
        "The next roll begins before the previous ledger is closed and marked sealed.",
        (
            CLOSED_AND_THEN_SEALED,
            Edit(
                RUNNER,
                "StepRunner.carry_out",
                "                await self._close(self.ledgers[ledger_id])\n"
                "                return core.closed()\n",
                "                old = self.ledgers[ledger_id]\n"
                "                async def close():\n"
                "                    await self._close(old)\n"
                "                    await self._node.change(\n"
                "                        lambda now: now.with_sealed(old.ledger_id, old.facts)\n"
                "                    )\n"
                "                if core.state is core.state.ROLLING:\n"
                "                    asyncio.get_running_loop().create_task(close())\n"
                "                else:\n"
                "                    await self._close(old)\n"
                "                return core.closed()\n",
            ),
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
        "no-hold-at-the-roll",
        "SEMANTICS.md, list of ledgers 3; I5",
        "The log goes on in the new ledger while appends are outstanding in the old one.",
        (
            Edit(
                RUNNER,
                "StepRunner._drain",
                "        while ledger.failure is None and not self._pipeline.is_drained:\n",
                "        while (\n"
                "            self._core.state is not self._core.state.ROLLING\n"
                "            and ledger.failure is None and not self._pipeline.is_drained\n"
                "        ):\n",
            ),
            Edit(
                PIPELINE,
                "AppendPipeline.start_ledger",
                '        check(self.is_drained, "a new ledger before the old one is drained")\n',
                "",
            ),
        ),
    ),
    Mutant(
        "used-before-it-is-listed",
        "SEMANTICS.md, list of ledgers 3; I1",
        "A roll goes on in the new ledger while the list is still being changed.",
        (
            Edit(
                RUNNER,
                "StepRunner.carry_out",
                "                await self._list(self.ledgers[ledger_id], seals, adoption)\n",
                "                listing = self._list(self.ledgers[ledger_id], seals, adoption)\n"
                "                if seals is None:\n"
                "                    asyncio.get_running_loop().create_task(listing)\n"
                "                else:\n"
                "                    await listing\n",
            ),
        ),
    ),
    Mutant(
        "base-of-an-unsealed-ledger",
        "SEMANTICS.md, list of ledgers 6; I8",
        "The offsets of a new ledger are fixed while the one before it is written.",
        (
            Edit(
                LEDGER_LIST,
                "Segment.end_offset",
                "        if self.sealed is None or self.base_offset is None:\n"
                "            return None\n",
                "        if self.base_offset is None:\n"
                "            return None\n"
                "        if self.sealed is None:\n"
                "            return self.base_offset\n",
            ),
        ),
    ),
)

REPAIRING = (
    Mutant(
        "resent-without-learning-the-end",
        "SEMANTICS.md, when bookies fail; I6",
        "What a failed ledger had not acknowledged is sent to the next one, found there or not.",
        (
            Edit(
                RUNNER,
                "StepRunner._settle",
                "        failed.last_confirmed = last_entry_id\n"
                "        self._pipeline.resolve(last_entry_id)\n",
                "        self._pipeline.resolve(failed.last_confirmed)\n",
            ),
        ),
    ),
    Mutant(
        "acknowledged-above-recovery",
        "SEMANTICS.md, when bookies fail; I6",
        "All that was in flight in a failed ledger is acknowledged, whatever recovery found.",
        (
            Edit(
                RUNNER,
                "StepRunner._settle",
                "        self._pipeline.resolve(last_entry_id)\n",
                "        self._pipeline.resolve(1 << 40)\n",
            ),
        ),
    ),
    Mutant(
        "fenced-is-a-refusal",
        "SEMANTICS.md, for producers; I15",
        "An append that met a fence is told to be not in the log.",
        (
            Edit(
                STEPS,
                "unknown",
                "        ErrorCode.APPEND_UNKNOWN,\n",
                "        ErrorCode.NO_OWNER,\n",
            ),
        ),
    ),
    Mutant(
        "publish-time-goes-back",
        "SEMANTICS.md, for producers",
        "The publish time is the clock's, wherever that has jumped to.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline._push",
                "            self.last_publish_us = max(now_us, self.last_publish_us)\n",
                "            self.last_publish_us = now_us\n",
            ),
        ),
    ),
)

OWNER_NODES = (
    Mutant(
        "refused-by-who-was-replaced",
        "SEMANTICS.md, producers",
        "An append that builds on others which the owner does not know of is refused without a "
        "look at the list of ledgers.",
        (
            Edit(
                "fencelog.broker.append.conditional_appends",
                "ConditionalAppends._decide",
                "            if self._check_owner is not None and _may_be_outdated(conditions, "
                "error):\n",
                "            if False:\n",
            ),
        ),
    ),
    Mutant(
        "looked-at-a-server-that-lags",
        "SEMANTICS.md, producers",
        "An owner that looks whether the log is still its own reads the list as its server has it.",
        (
            Edit(
                NODE,
                "LedgerListStore._latest_node_at",
                "                session_id = await catch_up(self._store)\n",
                "                session_id = self._store.session_id\n",
            ),
        ),
    ),
)

INCARNATIONS = (
    Mutant(
        "versions-begin-anew",
        "PROTOCOL.md, the metadata store",
        "A node that was deleted and created again has the versions of the one before it.",
        tuple(
            Edit(
                MEMORY,
                f"MemoryCluster.{change}",
                "        if version != node.version:\n",
                "        if version.number != node.version.number:\n",
            )
            for change in ("set", "delete")
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *TAKING_OVER,
    *AMBIGUOUS,
    *ROLLING,
    *REPAIRING,
    *OWNER_NODES,
    *INCARNATIONS,
)
