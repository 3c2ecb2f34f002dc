"""Wrong endpoints of single messages: keys that are looked for in vain, and other paths."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ONCE = "fencelog.api.produce.once"
PATHS = "fencelog.api.produce.post_paths"
POST = "fencelog.api.produce.post"
SINGLE = "fencelog.api.produce.single"

_ONCE = "SEMANTICS.md, exactly once"
_PRODUCERS = "SEMANTICS.md, producers"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "key-not-found-is-a-maybe",
        _ONCE,
        "An owner that does not tell whether it has a key makes the append unknown.",
        (
            Edit(
                ONCE,
                "Once.route",
                "                if error.code.effects is not Effects.MAYBE:\n"
                "                    raise\n",
                "                if error.code.effects is Effects.MAYBE:\n"
                "                    raise\n",
            ),
        ),
    ),
    Mutant(
        "key-promised-by-another-topic",
        _ONCE,
        "A partition says for a deleted topic that it has no append under a key.",
        (
            Edit(
                ONCE,
                "Once._find",
                "info.topic_id != request.topic_id or ",
                "",
            ),
        ),
    ),
    Mutant(
        "key-promised-too-early",
        _ONCE,
        "A partition says for more partitions than the topic has that it has no append under a "
        "key.",
        (
            Edit(
                ONCE,
                "Once._find",
                " or info.config.partitions < request.partitions",
                "",
            ),
        ),
    ),
    Mutant(
        "any-delay-in-a-frame",
        _PRODUCERS,
        "An append of another broker may have a delay that no request can have.",
        (
            Edit(
                POST,
                "_is_valid",
                "not 0 <= head.delay_ms <= MAX_DELIVERY_DELAY_MS",
                "head.delay_ms < 0",
            ),
        ),
    ),
    Mutant(
        "delay-is-no-content",
        _ONCE,
        "An append that repeats another one may have another delay.",
        (
            Edit(
                POST,
                "Post.conditions_of",
                '            headers = (*headers, ("delay_ms", b"%d" % self.delay_ms))\n',
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "peers-append-without-conditions",
        _ONCE,
        "An append of another broker is made without its conditions.",
        (
            Edit(
                SINGLE,
                "Produce.append_for_peer",
                "log.append_message(message, post.conditions_of(body))",
                "log.append_message(message)",
            ),
        ),
    ),
    Mutant(
        "key-in-former-partitions-not-looked-for",
        _ONCE,
        "A key of a topic that has grown is appended at once, without a look at former partitions.",
        (
            Edit(
                SINGLE,
                "Produce.append_now",
                "(is_keyed and (topic.previous_counts or post.partition is not None))",
                "(is_keyed and post.partition is not None)",
            ),
        ),
    ),
    Mutant(
        "key-appended-at-once-elsewhere",
        _ONCE,
        "A key is passed on at once, though its route is for the owner to check.",
        (
            Edit(
                SINGLE,
                "Produce.append_now",
                "if may_forward and not is_keyed:",
                "if may_forward:",
            ),
        ),
    ),
    Mutant(
        "single-by-an-old-route",
        _ONCE,
        "A single message under a key is appended without a look at how it was routed.",
        (
            Edit(
                SINGLE,
                "Produce.post",
                "            await self._once.check(post.topic, conditions)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "batch-taken-for-a-message",
        _PRODUCERS,
        "A batch is appended as a single message.",
        (
            Edit(
                PATHS,
                "PostPaths._topic",
                "target is not None and target.endpoint is Endpoint.PRODUCE",
                "target is not None",
            ),
        ),
    ),
    Mutant(
        "routed-by-who-knows-fewer",
        _PRODUCERS,
        "An append is written though its partition was chosen before the topic got more.",
        (
            Edit(
                "fencelog.api.produce.once",
                "Once.check",
                "if routed_by != info.config.partitions:",
                "if routed_by > info.config.partitions:",
            ),
        ),
    ),
)
