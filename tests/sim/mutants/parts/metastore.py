"""Wrong parts that all metadata stores share: commits, watches, registrations."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

PATHS = "fencelog.ledgers.metastore.paths"
REGISTRATION = "fencelog.ledgers.metastore.registration"
WATCH = "fencelog.ledgers.metastore.watch"

_STORE = "PROTOCOL.md: the metadata store"

COMMITS: tuple[Mutant, ...] = (
    Mutant(
        "commit-of-any-size",
        _STORE,
        "Changes that ZooKeeper takes for no packet are sent to it.",
        (Edit(PATHS, "check_commit", "if size > MAX_COMMIT_BYTES:", "if False:"),),
    ),
)

WATCHES: tuple[Mutant, ...] = (
    Mutant(
        "changed-during-a-read",
        _STORE,
        "A change during the read of a watch is taken for what the read shows.",
        (
            Edit(
                WATCH,
                "RefreshingWatch.refresh",
                "self._stale = self._task is not None",
                "self._stale = False",
            ),
        ),
    ),
    Mutant(
        "told-of-no-change",
        _STORE,
        "A watch delivers what it has delivered before.",
        (
            Edit(
                WATCH,
                "RefreshingWatch._on_read",
                "if task.result() != self._delivered:",
                "if task.result() is not None:",
            ),
        ),
    ),
    Mutant(
        "told-after-its-close",
        _STORE,
        "A watch that was closed delivers what it had read.",
        (
            Edit(
                WATCH,
                "RefreshingWatch._on_read",
                "if self._closed or task.cancelled():",
                "if task.cancelled():",
            ),
        ),
    ),
    Mutant(
        "children-are-not-told",
        _STORE,
        "A node that is created or deleted is not reported to those who watch the children.",
        (
            Edit(
                WATCH,
                "WatchTable.node_changed",
                "(*self._at(path), *self._children.at(parent_of(path)))",
                "self._at(path)",
            ),
        ),
    ),
    Mutant(
        "unread-value-is-absent",
        _STORE,
        "A node that cannot be read is reported as absent.",
        (
            Edit(
                WATCH,
                "value_or_none",
                "if error.code is ErrorCode.METADATA_NOT_FOUND:",
                "if error.code is not None:",
            ),
        ),
    ),
    Mutant(
        "unread-names-are-none",
        _STORE,
        "A node that cannot be listed is reported as one without children.",
        (
            Edit(
                WATCH,
                "names_or_empty",
                "if error.code is ErrorCode.METADATA_NOT_FOUND:",
                "if error.code is not None:",
            ),
        ),
    ),
    Mutant(
        "all-watches-read-at-once",
        _STORE,
        "After a lost connection all watches are read at once, before any other request.",
        (
            Edit(
                WATCH,
                "WatchTable._refresh_due",
                "while self._due and self._refreshing < REFRESHES_AT_ONCE:",
                "while self._due:",
            ),
        ),
    ),
    Mutant(
        "the-first-watches-alone-are-read",
        _STORE,
        "After a lost connection only so many watches are read as may be at once.",
        (
            Edit(
                WATCH,
                "WatchTable._on_refreshed",
                "        self._refresh_due()",
                "        pass",
            ),
        ),
    ),
    Mutant(
        "refused-until-the-next-connection",
        _STORE,
        "A watch that an access list refuses is not read again when access is granted.",
        (
            Edit(
                WATCH,
                "RefreshingWatch._on_read",
                "                self._of.refused(self)",
                "                pass",
            ),
        ),
    ),
    Mutant(
        "refused-all-the-time",
        _STORE,
        "A watch that an access list refuses is read again every second.",
        (
            Edit(
                WATCH,
                "_Watches.refused",
                "delay_s = min(2 * before.delay_s, REFUSED_RETRY_MAX_S)",
                "delay_s = before.delay_s",
            ),
        ),
    ),
    Mutant(
        "refused-for-ever-longer",
        _STORE,
        "A watch that an access list has refused for a day is read again after another day.",
        (
            Edit(
                WATCH,
                "_Watches.refused",
                "min(2 * before.delay_s, REFUSED_RETRY_MAX_S)",
                "2 * before.delay_s",
            ),
        ),
    ),
    Mutant(
        "closed-and-asked-for-again",
        _STORE,
        "A refused watch is read again after it was closed.",
        (Edit(WATCH, "_Watches.forget", "        self.admitted(watch)\n", ""),),
    ),
    Mutant(
        "session-told-after-the-close",
        _STORE,
        "A listener that was closed is told of the session.",
        (
            Edit(
                WATCH,
                "SessionListeners.notify",
                "for listener in list(self._callbacks):\n"
                "            loop.call_soon(self._call, listener, state)",
                "for callback in self._callbacks.values():\n"
                "            loop.call_soon(callback, state)",
            ),
        ),
    ),
)

REGISTRATIONS: tuple[Mutant, ...] = (
    Mutant(
        "names-fought-for",
        "registration: two processes with one name",
        "A registration that was replaced takes its path back at once.",
        (
            Edit(
                REGISTRATION,
                "Registration._keep",
                "self._register(take_over=False)",
                "self._register(take_over=True)",
            ),
        ),
    ),
    Mutant(
        "previous-session-is-another-process",
        "registration: until it is closed",
        "The node of its own previous session makes a registration stand by.",
        (
            Edit(
                REGISTRATION,
                "Registration._register",
                "if not take_over and node.ephemeral_owner not in self._own_sessions:",
                "if not take_over:",
            ),
        ),
    ),
    Mutant(
        "registered-by-another-process",
        "registration: two processes with one name",
        "A process counts as registered while another one has its path.",
        (
            Edit(
                REGISTRATION,
                "Registration._on_value",
                "node is not None and node.ephemeral_owner == self._store.session_id",
                "node is not None",
            ),
        ),
    ),
    Mutant(
        "node-of-another-process-removed",
        "registration: two processes with one name",
        "A registration that ends removes the node of the one that has replaced it.",
        (
            Edit(
                REGISTRATION,
                "Registration.close",
                "if node.ephemeral_owner == self._store.session_id:",
                "if node.ephemeral_owner:",
            ),
        ),
    ),
    Mutant(
        "not-tried-again",
        "registration: until it is closed",
        "A registration that the store refuses once is given up.",
        (
            Edit(
                REGISTRATION,
                "Registration._keep",
                "RETRY_MS / 1000)\n            self._changed.set()",
                "RETRY_MS / 1000)",
            ),
        ),
    ),
    Mutant(
        "gone-before-it-was-seen",
        "registration: until it is closed",
        "A node that is gone again before the watch has seen it is taken for registered.",
        (Edit(REGISTRATION, "Registration._keep", "if self._is_seen:", "if self._task:"),),
    ),
    Mutant(
        "lost-update-is-written",
        "registration: until it is closed",
        "An update of unknown outcome counts as written.",
        (
            Edit(
                REGISTRATION,
                "Registration._rewrite",
                "                raise\n            return False\n",
                "                raise\n            return error.code not in gone\n",
            ),
        ),
    ),
    Mutant(
        "complete-before-its-values",
        "registration: live tables",
        "A table is complete once the names are there.",
        (
            Edit(
                REGISTRATION,
                "ChildrenValues._check_complete",
                "if self._listed and not self._awaited:",
                "if self._listed:",
            ),
        ),
    ),
    Mutant(
        "awaited-though-it-is-gone",
        "registration: live tables",
        "A table waits for the value of a child that is gone.",
        (
            Edit(
                REGISTRATION,
                "ChildrenValues._on_children",
                "            self._awaited.discard(name)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "gone-and-still-in-the-table",
        "registration: live tables",
        "A child that is gone stays in the table.",
        (
            Edit(
                REGISTRATION,
                "ChildrenValues._on_children",
                "            self._put(name, None)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "changed-after-its-close",
        "registration: live tables",
        "A table that was closed goes on to change.",
        (
            Edit(
                REGISTRATION,
                "ChildrenValues.close",
                "            watch.close()\n        self._children.clear()",
                "            pass\n        self._children.clear()",
            ),
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*COMMITS, *WATCHES, *REGISTRATIONS)
