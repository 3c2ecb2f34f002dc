"""Wrong requests that add runs of many ledgers: an answer that is another run's, or none's."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ADDS = "fencelog.ledgers.rpc.adds"
ANSWERS = "fencelog.bookie.server.add_answers"
CLIENT = "fencelog.ledgers.rpc.bookie_client"
CONNECTION = "fencelog.bookie.server.connection"
LINK = "fencelog.ledgers.rpc.bookie_link"
WIRE = "fencelog.ledgers.rpc.wire"

_RULE = "PROTOCOL.md: ADD_MANY"

SAFETY: tuple[Mutant, ...] = (
    Mutant(
        "refused-runs-count-as-stored",
        _RULE,
        "A request of which all runs are refused at once is answered as stored.",
        (
            Edit(
                ADDS,
                "encode_added",
                "error is None and len(places) == count",
                "len(places) == count",
            ),
        ),
    ),
    Mutant(
        "first-answer-for-all-runs",
        _RULE,
        "The first answer to some runs of a request acknowledges all of them.",
        (
            Edit(
                ANSWERS,
                "AddAnswers.take",
                "encode_added(places, error, len(self._sizes))",
                "encode_added(range(len(self._sizes)), error, len(self._sizes))",
            ),
            Edit(
                ANSWERS,
                "AddAnswers.take",
                "self._missing -= len(places)",
                "self._missing = 0",
            ),
        ),
    ),
    Mutant(
        "lost-answers-are-acknowledgements",
        _RULE,
        "Runs that were not answered when the connection was lost count as stored.",
        (
            Edit(
                ADDS,
                "PendingAdds.fail",
                "self._answer_rest(error)",
                "self._answer_rest(None)",
            ),
        ),
    ),
)
"""What histories have to detect."""

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "answer-of-the-next-run",
        _RULE,
        "Places in a request are counted from the first run that was not answered yet.",
        (
            Edit(
                ADDS,
                "PendingAdds.take",
                "[self._tokens[place] for place, error in answers.items() if error is None]",
                "[self._tokens[len(self._answered) - 1 - place] for place, error in "
                "answers.items() if error is None]",
            ),
        ),
    ),
    Mutant(
        "number-of-answers-not-compared",
        _RULE,
        "A reply without places answers all runs, whatever number it names.",
        (
            Edit(
                ADDS,
                "PendingAdds.take",
                "number == count and len(body) == _COUNT.size",
                "len(body) == _COUNT.size",
            ),
        ),
    ),
    Mutant(
        "all-answered-after-some",
        _RULE,
        "A reply for all runs is believed after some of them were answered.",
        (Edit(ADDS, "PendingAdds.take", " and is_last and not self._answered", " and is_last"),),
    ),
    Mutant(
        "all-answered-though-more-follow",
        _RULE,
        "A reply for all runs is believed although others are to follow.",
        (Edit(ADDS, "PendingAdds.take", " and is_last and not self", " and not self"),),
    ),
    Mutant(
        "run-answered-twice",
        _RULE,
        "A reply may answer runs that have their answer.",
        (
            Edit(
                ADDS,
                "PendingAdds._answers",
                "if not self._answered.isdisjoint(answers):",
                "if self._answered.issuperset(range(count)):",
            ),
        ),
    ),
    Mutant(
        "runs-left-without-an-answer",
        _RULE,
        "The last reply may leave runs without an answer.",
        (
            Edit(
                ADDS,
                "PendingAdds._answers",
                "len(answers) != number or is_end != is_last",
                "len(answers) != number",
            ),
        ),
    ),
    Mutant(
        "answered-again-by-the-loss",
        _RULE,
        "The loss of the connection is also told to runs that were answered.",
        (Edit(ADDS, "PendingAdds._answer_rest", "if self._answered:", "if not tokens:"),),
    ),
    Mutant(
        "runs-not-verified",
        _RULE,
        "The checksums of runs that came in one request are not looked at.",
        (
            Edit(
                ADDS,
                "decode_adds",
                "run = read_run(body[at : at + size])",
                "run = Run(read_run_header(body, at), -1, body[at : at + size])",
            ),
        ),
    ),
    Mutant(
        "large-run-overtakes",
        "PROTOCOL.md: FIFO",
        "A run that is too large for a request leaves before those that were handed over first.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient.add_many",
                "in split_adds(runs):",
                "in sorted(split_adds(runs), key=lambda cut: cut[1] - cut[0]):",
            ),
        ),
    ),
    Mutant(
        "many-adds-for-any-bookie",
        _RULE,
        "An older bookie gets a request that ends its connections.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient.add_many",
                "if FEATURE_OF[Op.ADD_MANY] not in link.features:",
                "if not link.features:",
            ),
        ),
    ),
    Mutant(
        "many-adds-for-no-incarnation",
        "PROTOCOL.md rule 10",
        "Runs in one request are sent to whichever incarnation is there.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient.add_many",
                "link.request(Op.ADD_MANY, body, flags, reply, incarnation)",
                "link.request(Op.ADD_MANY, body, flags, reply)",
            ),
        ),
    ),
    Mutant(
        "first-reply-is-the-last",
        _RULE,
        "A request is over with its first reply, and the next one ends the connection.",
        (Edit(LINK, "BookieLink._on_frame", "if not frame.flags & _MORE:", "if request:"),),
    ),
    Mutant(
        "several-replies-to-any-request",
        _RULE,
        "Any reply may say that others follow: its request never ends.",
        (
            Edit(
                WIRE,
                "is_reply_to",
                "frame.flags & _MORE and (op is not Op.ADD_MANY or frame.status)",
                "frame.flags & _MORE and frame.status",
            ),
        ),
    ),
    Mutant(
        "contexts-not-agreed-on",
        _RULE,
        "A bookie takes contexts on a connection that did not agree on them.",
        (
            Edit(
                CONNECTION,
                "Connection._add_runs",
                "if frame.flags and not self._takes_contexts:",
                "if frame.flags and not self._handshake_done:",
            ),
        ),
    ),
    Mutant(
        "answered-adds-count-for-ever",
        "Limits: BOOKIE_MAX_IN_FLIGHT_BYTES",
        "Runs that came in one request count as in flight after their answers.",
        (
            Edit(
                CONNECTION,
                "Connection._runs_added",
                "self._server.add_in_flight(-size)",
                "self._server.add_in_flight(-size if flags else 0)",
            ),
        ),
    ),
)
"""What tests of the parts detect."""
