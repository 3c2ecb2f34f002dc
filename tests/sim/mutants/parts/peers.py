"""Wrong directories of bookies, and bodies of requests to them."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ABSENT = "fencelog.ledgers.rpc.absent_bookie"
DIRECTORY = "fencelog.ledgers.rpc.bookie_directory"
FENCES = "fencelog.ledgers.rpc.fences"
RANGES = "fencelog.ledgers.rpc.ranges"
RECEIVING = "fencelog.ledgers.rpc.receiving"

_ERRORS = "PROTOCOL.md: the meaning of errors"
_HOSTILE = "PROTOCOL.md: hostile frames"
_WIRE = "PROTOCOL.md: the wire"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "client-of-an-earlier-incarnation",
        "PROTOCOL.md rule 10",
        "A bookie that has come back at its address is asked on the connection of before.",
        (
            Edit(
                DIRECTORY,
                "RegisteredBookies._process",
                "return self._addresses.get(bookie_id), self.describe(bookie_id).incarnation",
                'return self._addresses.get(bookie_id), ""',
            ),
        ),
    ),
    Mutant(
        # One history in thousands shows it: number 3000181 of ledgers.
        "connected-after-the-close",
        "invariant 22: nothing is left behind",
        "A client that was closed connects to a bookie for a writer's last explicit LAC.",
        (Edit(DIRECTORY, "RegisteredBookies.client", "if self._is_closed:", "if False:"),),
    ),
    Mutant(
        "invalid-bookie-keeps-its-place",
        "PROTOCOL.md: placement",
        "A bookie whose registration cannot be read is offered as it was before.",
        (
            Edit(
                DIRECTORY,
                "RegisteredBookies._on_change",
                "                self._infos.pop(bookie_id, None)\n",
                "",
            ),
            Edit(
                DIRECTORY,
                "RegisteredBookies._on_change",
                "                self._addresses.pop(bookie_id, None)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "read-only-bookie-is-offered",
        "PROTOCOL.md: placement",
        "A bookie that takes no adds is offered for new ensembles.",
        (
            Edit(
                DIRECTORY,
                "RegisteredBookies.available",
                "if not self.describe(b).is_read_only",
                "if self.describe(b)",
            ),
        ),
    ),
    Mutant(
        "unknown-bookie-may-have-it",
        _ERRORS,
        "A request to a bookie that nobody knows is reported as one that may have been made.",
        (
            Edit(
                ABSENT,
                "AbsentBookie._refusal",
                "ErrorCode.BOOKIE_UNAVAILABLE",
                "ErrorCode.REQUEST_TIMEOUT",
            ),
        ),
    ),
    Mutant(
        "unknown-bookie-acknowledges",
        "PROTOCOL.md rule 2",
        "An add to a bookie that nobody knows is acknowledged.",
        (
            Edit(
                ABSENT,
                "AbsentBookie.add_many",
                "call_soon(on_replies, tokens, self._refusal())",
                "call_soon(on_replies, tokens, None)",
            ),
        ),
    ),
    Mutant(
        "answers-about-more-ledgers",
        _HOSTILE,
        "An answer about more ledgers than were asked about is taken.",
        (
            Edit(FENCES, "decode_answers", "len(answers) == count or ", ""),
            Edit(FENCES, "decode_answers", "if len(answers) != count:", "if len(answers) < count:"),
        ),
    ),
    Mutant(
        "ranges-that-meet",
        _HOSTILE,
        "A request for ranges may ask for an entry twice.",
        (Edit(RANGES, "decode_ranges", "if first < following or", "if first + 1 < following or"),),
    ),
    Mutant(
        "run-that-is-cut-off",
        _HOSTILE,
        "The last run of an answer may be cut off.",
        (Edit(RANGES, "decode_runs", "if size > len(view) - at:", "if size < 0:"),),
    ),
    Mutant(
        "small-frame-into-a-large-one",
        _WIRE,
        "What follows a large answer is received over it.",
        (
            Edit(
                RECEIVING,
                "ReceiveBuffer.received",
                "complete, self._large, self._rest = self._large, None, self._small",
                "complete, self._large, self._rest = self._large, None, self._large.body",
            ),
        ),
    ),
)
