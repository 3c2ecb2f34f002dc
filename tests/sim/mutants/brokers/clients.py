"""Wrong clients: conditions that are dropped, numbers of other messages, too little patience."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

_RULE = "HTTP.md, errors"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "misspelt-condition-is-none",
        _RULE,
        "An append whose condition is misspelt is made without one.",
        (
            Edit(
                "fencelog.api.client.conditions",
                "condition_headers",
                "    check_keywords(conditions, AppendPreconditions)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "count-of-another-batch",
        "SEMANTICS.md, producers",
        "A producer goes on behind fewer messages than it has appended: the next are taken for "
        "some of these, and are nowhere.",
        (
            Edit(
                "fencelog.api.client.producer",
                "ExactlyOnceProducer.append_batch",
                "(own := batch_count(batch)) != count",
                "(own := batch_count(batch)) < 0",
            ),
        ),
    ),
    Mutant(
        "no-patience-after-a-long-poll",
        _RULE,
        "A request that was long under way when the server died is not sent again.",
        (
            Edit(
                "fencelog.api.client.retry",
                "retry_not_applied",
                "give_up: float | None = None",
                "give_up: float | None = anyio.current_time() + RETRY_S",
            ),
        ),
    ),
    Mutant(
        "consumer-that-sends-nothing",
        _RULE,
        "A consumer outside its block gives messages, whose acknowledgements nobody sends.",
        (
            Edit(
                "fencelog.api.client.consumer",
                "Consumer.__anext__",
                "if not self._is_entered:",
                "if False:",
            ),
        ),
    ),
)
