"""Wrong parts around answers that are lost or refused: of the Python client, of links between
brokers, and of what names and numbers mean there."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

_PRODUCER = "fencelog.api.client.producer"
_SUBSCRIPTIONS = "fencelog.broker.subscriptions.subscriptions"

_EXACTLY_ONCE = "SEMANTICS.md, exactly once"
_LEASES = "SEMANTICS.md, for subscribers: leases"
_AT_MOST_ONCE = "SEMANTICS.md, for producers; I15"
_NAMES = "HTTP.md: paths"

GIVEN_BACK: tuple[Mutant, ...] = (
    Mutant(
        "given-back-for-everybody",
        _LEASES,
        "A consumer that gives back all that it has gives back what others have.",
        (
            Edit(
                "fencelog.broker.dispatch.leases",
                "Leases.of",
                "if lease.consumer == consumer",
                "if consumer",
            ),
        ),
    ),
    Mutant(
        "lost-pull-forgotten",
        _LEASES,
        "A consumer pulls on behind what a pull has leased whose answer was lost.",
        (
            Edit(
                "fencelog.api.client.pulls",
                "Pulls.pull",
                "self._has_lost, self._leased_until_s = self.is_in_order, None",
                "self._leased_until_s = None",
            ),
        ),
    ),
    Mutant(
        "lost-owner-passed-over",
        _LEASES,
        "A pull has what other partitions have, though an owner that was asked has not answered.",
        (
            Edit(
                "fencelog.api.subscriptions.pull",
                "PullService._from_many",
                "if is_ordered and error.code is ErrorCode.STATE_UNKNOWN:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "given-back-but-the-latest",
        _LEASES,
        "A consumer that gives back all that it has keeps what it got last.",
        (
            Edit(
                "fencelog.broker.dispatch.leases",
                "Leases.of",
                "if lease.consumer == consumer",
                "if lease.consumer == consumer\n"
                "            and lease.delivery\n"
                "            < max(one.delivery for one in self.by_offset.values())",
            ),
        ),
    ),
    Mutant(
        "given-back-and-passed-over",
        _LEASES,
        "What is given back is with nobody, and an ordered subscription goes on behind it.",
        (
            Edit(
                "fencelog.broker.dispatch.ordered",
                "OrderedDispatch.release",
                "self._rewind()",
                "self.leases.clear()",
            ),
        ),
    ),
    Mutant(
        "given-back-in-one-partition",
        _LEASES,
        "All that a consumer has is given back in the first partition, and not in the others.",
        (
            Edit(
                "fencelog.api.subscriptions.verbs",
                "SubscriptionVerbs.nack",
                "for p in chosen_partitions(exchange, asked)",
                "for p in list(chosen_partitions(exchange, asked))[:1]",
            ),
        ),
    ),
    Mutant(
        "unanswered-is-given-back",
        _LEASES,
        "A consumer goes on though nobody has confirmed that something was given back.",
        (
            Edit(
                "fencelog.api.client.pulls",
                "Pulls._give_back",
                "elif not is_transient(error) or anyio.current_time() < self._leased_until_s:",
                "elif not is_transient(error):",
            ),
        ),
    ),
)
"""Mutants of what is given back by a consumer's name, which histories of lost pulls detect."""

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "given-back-by-who-was-replaced",
        _LEASES,
        "An owner that was replaced says that what its successor has leased was given back.",
        (
            Edit(
                _SUBSCRIPTIONS,
                "Subscriptions.release",
                "await self._reader.check_owner()",
                "pass",
            ),
        ),
    ),
    Mutant(
        "given-back-is-what-is-known-here",
        _LEASES,
        "An owner that was replaced gives back what it has leased, and its successor's stays.",
        (
            Edit(
                _SUBSCRIPTIONS,
                "Subscriptions.release",
                "                subscription.released(offsets)\n",
                "                subscription.released(offsets)\n                return\n",
            ),
        ),
    ),
    Mutant(
        "given-back-beside-a-pull",
        _LEASES,
        "A give-back does not wait for the pull that takes messages for the same consumer.",
        (
            Edit(
                _SUBSCRIPTIONS,
                "Subscriptions.release",
                "async with subscription.turn:",
                "async with self._refusing_as_owner():",
            ),
        ),
    ),
    Mutant(
        "leased-elsewhere-forgotten",
        _LEASES,
        "A pull that is ended has leased nothing, as the partition asked last had nothing.",
        (
            Edit(
                "fencelog.api.subscriptions.pull",
                "PullService._from_one",
                "exchange.may_have_effect = has_leased or bool(messages)",
                "exchange.may_have_effect = bool(messages)",
            ),
        ),
    ),
    Mutant(
        "given-back-though-acknowledged",
        _LEASES,
        "A pull that is cancelled gives back what was acknowledged meanwhile.",
        (
            Edit(
                "fencelog.broker.dispatch.shared",
                "SharedDispatch.give_back",
                "[offset for offset in offsets if self.leases.end(offset) is not None]",
                "[(offset, self.leases.end(offset))[0] for offset in offsets]",
            ),
        ),
    ),
    Mutant(
        "undecided-numbers-used-again",
        _EXACTLY_ONCE,
        "Other messages are appended under numbers that an undecided append may have used.",
        (
            Edit(
                _PRODUCER,
                "ExactlyOnceProducer._check_numbers_are_free",
                "elif sent != batch:",
                "elif False:",
            ),
        ),
    ),
    Mutant(
        "cancelled-append-is-none",
        _EXACTLY_ONCE,
        "Numbers are free again as soon as their append was cancelled.",
        (
            Edit(
                _PRODUCER,
                "ExactlyOnceProducer.append_batch",
                "self._undecided = (producer, batch)  # also if it is cancelled",
                "pass",
            ),
        ),
    ),
    Mutant(
        "resumed-though-nobody-answered",
        _EXACTLY_ONCE,
        "A producer whose resumption has failed takes its numbers for free.",
        (
            Edit(
                _PRODUCER,
                "ExactlyOnceProducer._resume",
                "        found = await",
                "        self._undecided = None\n        found = await",
            ),
        ),
    ),
    Mutant(
        "committed-without-a-claim",
        "SEMANTICS.md, list of ledgers 5",
        "An owner lists a ledger that was withdrawn after it had looked at it.",
        (
            Edit(
                "fencelog.broker.commits.commits",
                "Commits._check",
                "await ledgers.describe(ledger_id, claim)",
                "pass",
            ),
        ),
    ),
    Mutant(
        "cursor-in-the-next-topic",
        "SEMANTICS.md, list of ledgers 1",
        "A subscription of a deleted topic is opened in the topic that has its name by now.",
        (
            Edit(
                "fencelog.api.subscriptions.lifecycle",
                "SubscriptionLifecycle.create",
                "if latest.topic_id != topic.topic_id:",
                "if latest.name != topic.name:",
            ),
        ),
    ),
    Mutant(
        "released-for-the-holder",
        "SEMANTICS.md, who may append",
        "Any producer releases a partition that another one holds with an epoch of this number.",
        (
            Edit(
                "fencelog.broker.append.producer_access",
                "Access.release",
                "if self.holder != (producer_id, epoch) and not released:",
                "if (self.holder or (0, 0))[1] != epoch and not released:",
            ),
        ),
    ),
    Mutant(
        "begun-answer-did-nothing",
        _AT_MOST_ONCE,
        "A request whose answer had begun counts as not done, as its owner was overloaded.",
        (
            Edit(
                "fencelog.api.routing.link_answer",
                "LinkAnswer._refused",
                "code is ErrorCode.OVERLOADED and self._head is None",
                "code is ErrorCode.OVERLOADED",
            ),
        ),
    ),
    Mutant(
        "link-ends-under-its-appends",
        _AT_MOST_ONCE,
        "A broker that ends closes a link though an append on it has no answer yet.",
        (
            Edit(
                "fencelog.api.routing.served_link",
                "ServedLink._close_if_idle",
                "(self._streams or self._appending)",
                "self._streams",
            ),
        ),
    ),
    Mutant(
        "swept-before-its-commit-is-repeated",
        "SEMANTICS.md, list of ledgers 5",
        "A sweep takes the ledger of a committer as soon as there is another owner.",
        (
            Edit(
                "fencelog.broker.background.sweep_core",
                "is_garbage",
                "if tag.is_committers and age_s < pending_s:",
                "if tag.epoch is None and age_s < pending_s:",
            ),
        ),
    ),
    Mutant(
        "link-to-another-cluster",
        _AT_MOST_ONCE,
        "A broker forwards to whoever has the address of another one by now.",
        (
            Edit(
                "fencelog.ledgers.rpc.handshake",
                "ClientHandshake._read_hello",
                'fields.get("cluster", self._cluster) != self._cluster',
                "not fields",
            ),
        ),
    ),
    Mutant(
        "slash-within-a-name",
        _NAMES,
        "An escaped slash within a name begins the next part of a path.",
        (
            Edit(
                "fencelog.api.http.asgi",
                "Exchange.path_as_sent",
                'if b"%" in raw and b"%2f" in raw.lower():',
                "if not raw:",
            ),
        ),
    ),
    Mutant(
        "name-that-a-url-loses",
        _NAMES,
        "A client asks for a name that is two dots, and so for what is above it.",
        (
            Edit(
                "fencelog.api.client.http",
                "ServiceHttp.request",
                "if _DOT_SEGMENT.search(path):",
                "if not path:",
            ),
        ),
    ),
)
"""Mutants that the tests of these parts detect."""
