"""Wrong brokers: topics made anew, growing, ending; who may append; what nobody owns any more."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

LEDGER_LIST = "fencelog.broker.ledger_list.ledger_list"
DELETION = "fencelog.broker.registry.topic_deletion"
LIFECYCLE = "fencelog.api.subscriptions.lifecycle"
REGISTRY = "fencelog.broker.registry.subscription_registry"
RETENTION = "fencelog.broker.log.retention"
RETENTION_CORE = "fencelog.broker.log.retention_core"
SLOT = "fencelog.broker.partition.partition_slot"
SWEEP = "fencelog.broker.background.sweep"
SWEEP_CORE = "fencelog.broker.background.sweep_core"
TOPICS = "fencelog.broker.registry.topics"
SUBSCRIPTION_OWNERS = "fencelog.api.subscriptions.owners"
TABLE = "fencelog.broker.subscriptions.table"
RECONCILER = "fencelog.broker.background.cursor_reconciler"
RUNNER = "fencelog.broker.log.step_runner"

LATE_LISTS = (
    Mutant(
        "opened-on-the-word-of-the-list",
        "SEMANTICS.md, delete; broker/registry/topics.py",
        "Whoever finds the list of a partition takes it over, even if another broker has just made "
        "it, for a topic that is gone.",
        (
            Edit(
                TOPICS,
                "TopicRegistry.open_ledger_list",
                "            await node.load()\n        except",
                "            await node.load()\n            return node\n        except",
            ),
        ),
    ),
)
"""A list is created too late, and another broker opens it before it is removed."""

TOPIC = (
    Mutant(
        "opened-without-a-topic",
        "SEMANTICS.md, delete; broker/registry/topic_deletion.py",
        "Whoever makes the list of a partition does not look whether the topic is there still.",
        (
            Edit(
                TOPICS,
                "TopicRegistry.open_ledger_list",
                "if node.ledger_list.epoch == 0 and not await self._is_alive(info):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "deleted-unmarked",
        "SEMANTICS.md, delete",
        "The ledgers of a deleted topic go before its lists are marked.",
        (
            Edit(
                DELETION,
                "TopicDeletion.delete_ledger_list",
                "                if not node.ledger_list.deleted:\n"
                "                    await node.change(LedgerList.as_deleted)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "subscriptions-outlive-the-topic",
        "SEMANTICS.md, delete",
        "Deleting a topic leaves its subscriptions registered.",
        (
            Edit(
                DELETION,
                "TopicDeletion.finish",
                'await self._delete(f"{SUBSCRIPTIONS_PATH}/{topic_id}/{name}", _GONE)',
                "pass",
            ),
        ),
    ),
    Mutant(
        "growth-reuses-a-list",
        "SEMANTICS.md, the list of ledgers",
        "A partition that is added is served from the list of the first one.",
        (
            Edit(
                SLOT,
                "PartitionSlot._take_over",
                "open_ledger_list(self.info, self.partition)",
                "open_ledger_list(self.info, 0)",
            ),
        ),
    ),
    Mutant(
        "update-of-whatever-is-there",
        "SEMANTICS.md, settings",
        "A change of settings is written over what another one has changed meanwhile.",
        (
            Edit(
                TOPICS,
                "TopicRegistry.update",
                "path, value = topic_path(name), encode_topic(changed)\n",
                "path, value = topic_path(name), encode_topic(changed)\n"
                "                found = await self._store.get(path)\n"
                "                info = replace(info, version=found.version)\n",
            ),
        ),
    ),
    Mutant(
        "terminated-unsealed",
        "SEMANTICS.md, terminate",
        "A log is ended without a word of what its last ledger holds.",
        (
            Edit(
                RUNNER,
                "StepRunner.carry_out",
                "ledger_list.with_sealed(ledger_id, sealed).as_terminated()",
                "ledger_list.as_terminated()",
            ),
            Edit(
                LEDGER_LIST,
                "LedgerList.as_terminated",
                '        check(all(s.sealed is not None for s in self.segments), "a ledger is not '
                'sealed yet")\n',
                "",
            ),
        ),
    ),
    Mutant(
        "terminated-until-a-takeover",
        "SEMANTICS.md, terminate",
        "The next owner of a log that has ended begins a ledger.",
        (
            Edit(
                LEDGER_LIST,
                "LedgerList.taken_over",
                "                owner=owner,\n",
                "                owner=owner,\n                terminated=False,\n",
            ),
        ),
    ),
)

SWEPT = (
    Mutant(
        "sweep-reads-the-registry-first",
        "SEMANTICS.md, sweep",
        "What hangs below ids is read after the registry: a topic that came in between is one that "
        "nobody knows.",
        (
            Edit(
                SWEEP,
                "Sweep._all",
                "        ids = {\n",
                "        known = await self._topics.ids()\n        ids = {\n",
            ),
            Edit(
                SWEEP,
                "Sweep._all",
                "sorted(ids - await self._topics.ids())",
                "sorted(ids - known)",
            ),
        ),
    ),
    Mutant(
        "sweep-takes-the-present-epoch",
        "SEMANTICS.md, sweep",
        "A ledger of the present epoch that is on no list, yet, is taken for garbage.",
        (
            Edit(
                SWEEP_CORE,
                "is_garbage",
                "tag.epoch < ledger_list.epoch",
                "tag.epoch <= ledger_list.epoch",
            ),
        ),
    ),
    Mutant(
        "sweep-skips-deleted-topics",
        "SEMANTICS.md, sweep",
        "What a deletion that was broken off has left stays for ever.",
        (
            Edit(
                SWEEP,
                "Sweep._all",
                "for topic_id in sorted(ids - await self._topics.ids()):",
                "for topic_id in ():",
            ),
        ),
    ),
)

SUBSCRIBED = (
    Mutant(
        "dropped-as-a-lagging-server-says",
        "SEMANTICS.md, subscriptions",
        "The reconciler drops a cursor whose subscription a lagging server does not show.",
        (
            Edit(
                RECONCILER,
                "CursorReconciler._drop",
                "latest = await self._registry.list_latest(topic_id)",
                "latest = await self._registry.list(topic_id)",
            ),
        ),
    ),
    Mutant(
        "dropped-from-memory",
        "SEMANTICS.md, subscriptions",
        "The reconciler drops a cursor whose subscription is not what it remembers of the name.",
        (
            Edit(
                RECONCILER,
                "CursorReconciler._drop",
                "latest = await self._registry.list_latest(topic_id)",
                "latest = await self._subscriptions(topic_id)",
            ),
        ),
    ),
    Mutant(
        "delete-of-unknown-outcome-is-done",
        "SEMANTICS.md, subscriptions",
        "A subscription counts as deleted when nobody answered, and its cursors are dropped.",
        (
            Edit(
                REGISTRY,
                "SubscriptionRegistry.delete",
                "if error.code is not ErrorCode.METADATA_UNKNOWN or not await self._is_gone(\n"
                "                topic_id, found.info\n"
                "            ):",
                "if error.code is not ErrorCode.METADATA_UNKNOWN:",
            ),
        ),
    ),
    Mutant(
        "cursors-never-dropped",
        "SEMANTICS.md, subscriptions",
        "The reconciler leaves cursors of subscriptions that were deleted.",
        (
            Edit(
                RECONCILER,
                "CursorReconciler._drop",
                "                    await opened.subscriptions.drop(subscription_id)\n",
                "                    pass\n",
            ),
            Edit(
                LIFECYCLE,
                "SubscriptionLifecycle._delete",
                "        await self._owners.drop_everywhere(Asked(topic, registered), request)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "confirmed-without-cursors",
        "SEMANTICS.md, subscriptions",
        "A subscription is confirmed as soon as it is registered.",
        (
            Edit(
                LIFECYCLE,
                "SubscriptionLifecycle.create",
                "            await self._owners.open_everywhere(Asked(latest, registered))\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "cursor-of-another-creator",
        "SEMANTICS.md, subscriptions",
        "Who finds a cursor that somebody else is opening does not wait until it is durable.",
        (
            Edit(
                SUBSCRIPTION_OWNERS,
                "SubscriptionOwners.open_cursor",
                "        await log.subscriptions.begin(subscription)\n",
                "        if subscription.info.subscription_id not in log.subscriptions.all():\n"
                "            await log.subscriptions.begin(subscription)\n",
            ),
        ),
    ),
    Mutant(
        "later-partitions-from-their-end",
        "SEMANTICS.md, subscriptions: partitions added later",
        "In a partition that the topic got later a subscription begins like any other.",
        (
            Edit(
                TABLE,
                "SubscriptionTable.begin",
                "start = self._reader.earliest_offset  # the partition came later",
                "start = self._reader.tail_offset",
            ),
        ),
    ),
)

GOING = (
    Mutant(
        "trim-past-a-cursor",
        "SEMANTICS.md, trim; I10",
        "A trim by hand does not stop at what a subscription has to see.",
        (
            Edit(
                RETENTION_CORE,
                "start_after_trim",
                "    return min(wanted, tail, unacknowledged)\n",
                "    return min(wanted, tail)\n",
            ),
        ),
    ),
    Mutant(
        "trim-kept-in-memory",
        "SEMANTICS.md, trim",
        "A trim is confirmed that the list does not have, where no ledger goes with it.",
        (
            Edit(
                RETENTION,
                "Retention._let_go.next_of",
                "            trimmed, dropped = started.trimmed(gone), gone\n"
                "            self._reader.trim(trimmed.start_offset)\n",
                "            trimmed, dropped = ledger_list.trimmed(gone), gone\n"
                "            self._reader.trim(started.start_offset)\n",
            ),
        ),
    ),
    Mutant(
        "start-set-back",
        "SEMANTICS.md, trim",
        "Who asks to trim less than what is trimmed already brings some of it back.",
        (
            Edit(
                LEDGER_LIST,
                "LedgerList.with_start",
                "start_offset=max(self.start_offset, offset)",
                "start_offset=offset or self.start_offset",
            ),
        ),
    ),
    Mutant(
        "trimmed-until-a-takeover",
        "SEMANTICS.md, trim",
        "A log begins with its first ledger for the next owner: what was trimmed of it is back.",
        (
            Edit(
                "fencelog.broker.read.log_reader",
                "LogReader.__init__",
                "max(ledger_list.start_offset, first)",
                "first",
            ),
        ),
    ),
    Mutant(
        "start-of-a-ledger-alone",
        "SEMANTICS.md, trim",
        "What is trimmed within a ledger is there again as soon as the ledgers before it go.",
        (
            Edit(
                LEDGER_LIST,
                "LedgerList.trimmed",
                "start_offset=max(self.start_offset, end)",
                "start_offset=end or self.start_offset",
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*TOPIC, *SWEPT, *SUBSCRIBED, *GOING)
"""Seen in histories of administration."""
