"""Wrong endpoints of batches, commits and access: partial writes and unknown ones refused."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ACCESS = "fencelog.api.produce.access"
BATCH = "fencelog.api.produce.batch"
BODIES = "fencelog.api.produce.batch_bodies"
COMMITS = "fencelog.api.produce.commits"
HEADERS = "fencelog.api.produce.append_headers"

_COMMITS = "SEMANTICS.md, commits of ledgers"
_CONDITIONS = "SEMANTICS.md, conditional appends"
_ONCE = "SEMANTICS.md, exactly once"
_PRODUCERS = "SEMANTICS.md, producers"
_WHO = "SEMANTICS.md, who may append"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "unknown-change-of-access-is-an-append",
        _WHO,
        "A change of access whose outcome is unknown is reported as an append.",
        (
            Edit(
                ACCESS,
                "Producers._change",
                "if error.code in (ErrorCode.APPEND_UNKNOWN, ErrorCode.REQUEST_TIMEOUT):",
                "if error.code is unknown:",
            ),
        ),
    ),
    Mutant(
        "no-token-expected-is-any",
        _WHO,
        "A fence that expects no token replaces whichever there is.",
        (
            Edit(
                ACCESS,
                "Producers.fence",
                "expected = None if isinstance(request.expected, UnsetType) else",
                "expected = None if not request.expected else",
            ),
        ),
    ),
    Mutant(
        "release-of-any-epoch",
        _WHO,
        "A release without its epoch is one of epoch 0.",
        (
            Edit(
                ACCESS,
                "Producers.release",
                'query.get("epoch", "")',
                'query.get("epoch", "0")',
            ),
        ),
    ),
    Mutant(
        "condition-given-twice",
        _CONDITIONS,
        "Of a condition that is given twice the last one counts.",
        (
            Edit(
                HEADERS,
                "read_conditions",
                "            if name in given:\n",
                "            if given.get(name) == value:\n",
            ),
        ),
    ),
    Mutant(
        "sequence-of-nobody",
        _ONCE,
        "A sequence without a producer is no condition.",
        (
            Edit(
                HEADERS,
                "_producer",
                "if epoch is not None or sequence is not None:",
                "if epoch is not None:",
            ),
        ),
    ),
    Mutant(
        "sequence-beside-a-key",
        _ONCE,
        "An idempotency key beside a producer is no condition.",
        (Edit(HEADERS, "_producer", "if IDEMPOTENCY_KEY in given:", "if False:"),),
    ),
    Mutant(
        "sequence-in-any-partition",
        _ONCE,
        "A producer's sequence is judged by whichever partition's turn it is.",
        (
            Edit(
                HEADERS,
                "check_partition_is_certain",
                "    if conditions.if_offset is not None or (\n",
                "    if conditions.if_offset is not None and (\n",
            ),
        ),
    ),
    Mutant(
        "token-in-any-partition",
        _WHO,
        "A fencing token is judged by whichever partition's turn it is.",
        (
            Edit(
                HEADERS,
                "check_partition_is_certain",
                "if conditions.fencing_token is not None and not key:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "routed-by-nothing",
        _ONCE,
        "The owner is not told by how many partitions a key was routed.",
        (
            Edit(
                HEADERS,
                "routed_query",
                "if conditions is None or conditions.routed_by is None:",
                "if conditions is None or conditions.routed_by != 0:",
            ),
        ),
    ),
    Mutant(
        "partly-written-is-refused",
        _PRODUCERS,
        "A batch of which some partitions took their messages is reported as refused.",
        (
            Edit(
                BATCH,
                "_all_or_problem",
                "if not parts and all(",
                "if all(",
            ),
        ),
    ),
    Mutant(
        "partly-unknown-is-refused",
        _PRODUCERS,
        "A batch that some partitions refused and others may have taken is reported as refused.",
        (
            Edit(
                BATCH,
                "_all_or_problem",
                "if not parts and all(error.code.effects is Effects.NONE",
                "if not parts and any(error.code.effects is Effects.NONE",
            ),
        ),
    ),
    Mutant(
        "partly-written-is-done",
        _PRODUCERS,
        "A batch is confirmed that one partition did not take.",
        (Edit(BATCH, "_all_or_problem", "    if not errors:\n", "    if parts:\n"),),
    ),
    Mutant(
        "batch-by-an-old-route",
        _ONCE,
        "A batch under a key that was routed by fewer partitions is taken.",
        (
            Edit(
                BATCH,
                "ProduceBatch.post",
                "            await self._once.check(topic, conditions)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "batch-without-its-contents",
        _ONCE,
        "A batch under a key is not compared with the one that it repeats.",
        (
            Edit(
                BATCH,
                "ProduceBatch.post",
                "held = None if conditions is None else conditions.of(batch)",
                "held = conditions",
            ),
        ),
    ),
    Mutant(
        "two-objects-in-a-line",
        _PRODUCERS,
        "Lines that are no message each are appended as others.",
        (
            Edit(
                BODIES,
                "parse_ndjson",
                "if messages and len(messages) == _count_filled(body):",
                "if messages:",
            ),
        ),
    ),
    Mutant(
        "empty-lines-are-left-out",
        _PRODUCERS,
        "An empty message of a batch of lines is left out.",
        (
            Edit(
                BODIES,
                "parse_text",
                "    if not values[-1]:\n        values.pop()\n",
                "    values = [value for value in values if value]\n",
            ),
        ),
    ),
    Mutant(
        "lost-commit-is-an-append",
        _COMMITS,
        "A commit whose outcome is unknown is reported as an append.",
        (
            Edit(
                COMMITS,
                "CommitRoutes._at_owner",
                "if error.code in (ErrorCode.APPEND_UNKNOWN, ErrorCode.REQUEST_TIMEOUT):",
                "if error.code is ErrorCode.APPEND_UNKNOWN and False:",
            ),
        ),
    ),
)
