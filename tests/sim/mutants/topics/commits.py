"""Wrong owners: batches in the log twice or torn, ledgers deleted that a list names."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

COMMITS = "fencelog.broker.commits.commits"
PENDING = "fencelog.broker.commits.pending_core"
LEDGER_LIST = "fencelog.broker.ledger_list.ledger_list"
PIPELINE = "fencelog.broker.append.pipeline"
LOG_READER = "fencelog.broker.read.log_reader"
SEGMENT_READER = "fencelog.broker.read.segment_reader"
ROUTES = "fencelog.api.produce.commits"
SEGMENTS = "fencelog.spark_connector.write.segments"

RULE = "SEMANTICS.md: Commits of ledgers"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "batch-committed-again",
        RULE,
        "A batch that comes again is added again.",
        (
            Edit(COMMITS, "Commits._found", "last.batch >= batch", "last.batch > batch"),
            Edit(
                LEDGER_LIST,
                "LedgerList.with_commit",
                "before is None or before.batch < commit.batch",
                "True",
            ),
        ),
    ),
    Mutant(
        "abort-without-the-marker",
        RULE,
        "An abort does not look whether the batch is committed.",
        (
            Edit(
                COMMITS,
                "Commits._abort",
                "if done is not None:",
                "if False:",
            ),
            Edit(
                COMMITS,
                "Commits._abort",
                "if ledger_id in self._node.ledger_list.ledgers:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "segments-behind-the-pipelines-back",
        RULE,
        "What is appended after a commit gets the offsets of its messages.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline.adopt",
                "self.tail_offset += messages",
                "pass",
            ),
        ),
    ),
    Mutant(
        "appends-not-held-for-a-commit",
        RULE,
        "Appends are admitted for offsets that the segments then take.",
        (
            Edit(
                COMMITS,
                "Commits._adopt",
                "async with self._access.held():",
                "if True:",
            ),
        ),
    ),
    Mutant(
        "publish-time-of-the-writer",
        RULE,
        "Messages of a commit have the time at which their writer wrote them.",
        (
            Edit(
                SEGMENT_READER,
                "SegmentReader._batches_of",
                "self.last_publish_us if self._is_adopted else header.publish_time_us",
                "header.publish_time_us",
            ),
        ),
    ),
    Mutant(
        "tail-cache-across-a-commit",
        RULE,
        "Readers get the messages around a commit from memory, and not those of it.",
        (Edit(LOG_READER, "LogReader.adopt", "self._cache.clear()", "pass"),),
    ),
    Mutant(
        "commits-forgotten-at-a-takeover",
        RULE,
        "The next owner does not know what was committed.",
        (
            Edit(
                LEDGER_LIST,
                "LedgerList.taken_over",
                "                owner=owner,\n",
                "                owner=owner,\n                commits={},\n",
            ),
        ),
    ),
    Mutant(
        "silent-committer-forgotten",
        RULE,
        "A partition with too many committers forgets one that may repeat its last batch.",
        (
            Edit(
                LEDGER_LIST,
                "_forgettable",
                "if commits[name].ends or",
                "if True or",
            ),
        ),
    ),
    Mutant(
        "ledger-left-out-by-a-commit",
        RULE,
        "A commit leaves the ledger before its own out of the list, whatever is in it.",
        (
            Edit(
                LEDGER_LIST,
                "LedgerList.with_adopted",
                "kept[-1].sealed.entries == 0",
                "True",
            ),
        ),
    ),
    Mutant(
        "commit-at-the-old-tail-only",
        RULE,
        "Readers are not told of the messages of a commit; they see the next append in their "
        "place.",
        (
            Edit(
                LOG_READER,
                "LogReader.adopt",
                "self.tail_offset += segment.sealed.messages",
                "pass",
            ),
        ),
    ),
    Mutant(
        "time-of-a-commit-forgotten",
        RULE,
        "What follows the messages of a commit is published before them if the clock is behind.",
        (
            Edit(
                PIPELINE,
                "AppendPipeline.adopt",
                "        self.last_publish_us = self.settled_publish_us = publish_time_us\n",
                "",
            ),
        ),
    ),
    Mutant(
        "no-place-for-a-commit-at-who-was-replaced",
        RULE,
        "A replaced owner counts committers and ledgers that its successor has forgotten.",
        (
            Edit(
                COMMITS,
                "Commits._commit",
                "self._reader.refusing_as_owner(*_BY_OWNER)",
                "self._reader.refusing_as_owner()",
            ),
        ),
    ),
)

STALE: tuple[Mutant, ...] = (
    Mutant(
        "appended-batch-takes-ledgers",
        RULE,
        "Ledgers are committed as a batch that their committer appends.",
        (
            Edit(
                COMMITS,
                "Commits._found",
                "last.batch >= batch",
                "last.batch >= batch and not last.by_appends",
            ),
            Edit(
                LEDGER_LIST,
                "LedgerList.with_commit",
                "before is None or before.batch < commit.batch",
                "True",
            ),
        ),
    ),
    Mutant(
        "abort-by-what-is-remembered",
        RULE,
        "An owner that was replaced withdraws what it has listed itself without learning of it.",
        (Edit(COMMITS, "Commits._abort", "await self._node.check_unchanged()", "pass"),),
    ),
    Mutant(
        "claim-of-a-later-owner-ignored",
        RULE,
        "An owner that was replaced withdraws what the next one is about to list.",
        (
            Edit(COMMITS, "Commits._abort", "await self._node.check_unchanged()", "pass"),
            Edit(
                PENDING,
                "_check_epoch",
                'int(metadata.properties.get("epoch", -1)) > epoch',
                "False",
            ),
        ),
    ),
)
"""An owner that does not know that it was replaced has to be asked to abort at the very moment."""

ROUTED: tuple[Mutant, ...] = (
    Mutant(
        "lost-commit-is-a-refusal",
        RULE,
        "A commit whose answer was lost on the way from the owner is reported as refused.",
        (
            Edit(
                ROUTES,
                "CommitRoutes._at_owner",
                'exchange.path, b"", body, lost=unknown)',
                'exchange.path, b"", body, lost=ErrorCode.NO_OWNER)',
            ),
        ),
    ),
    Mutant(
        "harmless-and-refused-in-the-end",
        RULE,
        "A request that may be repeated had no effect, as its last attempt was refused.",
        (
            Edit(
                "fencelog.api.client.retry",
                "retry_idempotent",
                "                unknown = error\n",
                "                pass\n",
            ),
        ),
    ),
    Mutant(
        "last-commit-of-who-was-replaced",
        RULE,
        "An owner that was replaced says which batch of a committer is the last one.",
        (
            Edit(
                ROUTES,
                "CommitRoutes.get.local",
                "await log.check_owner()",
                "pass",
            ),
        ),
    ),
    Mutant(
        "commit-passed-on-twice",
        RULE,
        "A commit or an abort is passed on once more where the answer of its owner was lost.",
        (
            Edit(
                ROUTES,
                "CommitRoutes._at_owner",
                "            return await self._forwarder.ask(",
                "            try:\n"
                "                return await self._forwarder.ask(\n"
                '                    "POST", url, exchange.path, b"", body, lost=unknown\n'
                "                )\n"
                "            except FencelogError as error:\n"
                "                if error.code is not unknown:\n"
                "                    raise\n"
                "            return await self._forwarder.ask(",
            ),
        ),
    ),
    Mutant(
        "abort-answered-elsewhere",
        RULE,
        "A broker answers an abort itself where the owner does not: nothing of it was committed.",
        (
            Edit(
                ROUTES,
                "CommitRoutes._at_owner",
                "        except FencelogError as error:\n",
                "        except FencelogError as error:\n"
                '            if exchange.path.endswith(":abort") and error.code.retryable:\n'
                "                return _encoded(None)\n",
            ),
        ),
    ),
    Mutant(
        "doubt-is-committed",
        "SPARK.md: Batches that are written again",
        "A driver takes a batch for committed of which nobody has said so in time.",
        (
            Edit(
                SEGMENTS,
                "commit",
                "        for first in in_order[:1]:\n            await commit_one(first)\n",
                "        for first in in_order[:1]:\n"
                "            try:\n"
                "                await commit_one(first)\n"
                "            except FencelogError as error:\n"
                "                if error.code is not ErrorCode.METADATA_UNKNOWN:\n"
                "                    raise\n",
            ),
        ),
    ),
)
"""The way of a committer's requests, and what it makes of the answers."""
