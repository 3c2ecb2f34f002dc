"""Wrong requests to bookies: which answer is whose, and what a loss means."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CLIENT = "fencelog.ledgers.rpc.bookie_client"
CONNECTION = "fencelog.ledgers.rpc.bookie_connection"
LINK = "fencelog.ledgers.rpc.bookie_link"
WIRE = "fencelog.ledgers.rpc.wire"

_ERRORS = "PROTOCOL.md: the meaning of errors"
_HOSTILE = "PROTOCOL.md: hostile frames"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "sent-request-is-unsent",
        _ERRORS,
        "A request that was sent and not answered is reported as one that was not sent.",
        (
            Edit(
                LINK,
                "BookieLink._lost",
                "self._refused if request_id in unsent else sent_error",
                "self._refused",
            ),
        ),
    ),
    Mutant(
        "unsent-request-is-unknown",
        _ERRORS,
        "A request that waited for a connection in vain is reported as one that may have been "
        "carried out.",
        (
            Edit(
                LINK,
                "BookieLink._lost",
                "self._refused if request_id in unsent else sent_error",
                "sent_error",
            ),
        ),
    ),
    Mutant(
        "sent-on-the-next-connection",
        _ERRORS,
        "A request that waited for others when its connection was lost is sent on the next one, "
        "after its failure was reported.",
        (Edit(LINK, "BookieLink._lost", "        self._to_send = []\n", ""),),
    ),
    Mutant(
        "queued-for-any-incarnation",
        "PROTOCOL.md rule 10",
        "An add that waited for the connection is sent whichever incarnation is there.",
        (
            Edit(
                LINK,
                "BookieLink._connect",
                "(unfit := self._unfit(request.op, request.incarnation)) is not None:",
                "(unfit := self._unfit(request.op, None)) is not None:",
            ),
        ),
    ),
    Mutant(
        "sent-to-any-incarnation",
        "PROTOCOL.md rule 10",
        "An add is sent on the connection whichever incarnation is there.",
        (
            Edit(
                LINK,
                "BookieLink.request",
                "self._unfit(op, incarnation)",
                "self._unfit(op, None)",
            ),
        ),
    ),
    Mutant(
        "waiting-bytes-are-never-given-back",
        _ERRORS,
        "What waited for a connection counts against the limit for good.",
        (
            Edit(
                LINK,
                "BookieLink._take_waiting",
                "waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0",
                "waiting, self._waiting = self._waiting, []",
            ),
        ),
    ),
    Mutant(
        "waiting-without-a-limit",
        _ERRORS,
        "Any number of bytes wait for a connection.",
        (
            Edit(
                LINK,
                "BookieLink._refusal",
                "unsent = self._waiting_bytes if transport is None else",
                "unsent = 0 if transport is None else",
            ),
        ),
    ),
    Mutant(
        "buffered-without-a-limit",
        _ERRORS,
        "Any number of bytes wait in the buffer of a connection.",
        (
            Edit(
                LINK,
                "BookieLink._refusal",
                "else transport.get_write_buffer_size()",
                "else 0",
            ),
        ),
    ),
    Mutant(
        "answered-before-it-was-sent",
        _HOSTILE,
        "An answer that comes right behind the greeting acknowledges what was not sent yet.",
        (
            Edit(
                LINK,
                "BookieLink._on_frame",
                "request is None or self._transport is None or not",
                "request is None or not",
            ),
        ),
    ),
    Mutant(
        "end-of-an-old-connection",
        _ERRORS,
        "The end of an earlier connection fails the requests of the present one.",
        (
            Edit(
                LINK,
                "BookieLink._on_lost",
                "if connection is self._connection:",
                "if self._connection is not None:",
            ),
            Edit(
                CONNECTION,
                "BookieConnection._end",
                "        if self.is_over:\n            return\n",
                "",
            ),
        ),
    ),
    Mutant(
        "answered-by-another-operation",
        _HOSTILE,
        "The answer to another kind of request is taken, if it has a size that fits.",
        (
            Edit(
                WIRE,
                "is_reply_to",
                "    if frame.op != op | REPLY_BIT:\n        return False\n",
                "",
            ),
        ),
    ),
    Mutant(
        "answer-of-any-size",
        _HOSTILE,
        "An answer is taken whatever its size.",
        (
            Edit(
                WIRE,
                "is_reply_to",
                "return frame.status != 0 or least <= len(frame.body) <= most",
                "return frame.status != 0 or least <= most",
            ),
        ),
    ),
    Mutant(
        "one-answer-for-all-adds",
        "PROTOCOL.md rule 2",
        "The answer to one add acknowledges those that were sent with it.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient._add_run",
                "partial(on_replies, (token,))",
                "partial(on_replies, (token, 0, 1, 2))",
            ),
        ),
    ),
    Mutant(
        "recovery-writes-as-a-writer",
        "PROTOCOL.md rule 5",
        "The adds of a recovery are not flagged.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient.add",
                "Flag.RECOVERY if recovery else Flag.NONE",
                "Flag.NONE",
            ),
        ),
    ),
    Mutant(
        "add-for-no-incarnation",
        "PROTOCOL.md rule 10",
        "The add of a writer is sent to whichever incarnation is there.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient._add_run",
                "self._link.request(Op.ADD, body, flags, reply, incarnation)",
                "self._link.request(Op.ADD, body, flags, reply)",
            ),
        ),
    ),
    Mutant(
        "lac-for-no-incarnation",
        "PROTOCOL.md rule 10",
        "A LAC is written to whichever incarnation is there.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient.write_lacs",
                "link.request(Op.WRITE_LAC, encode_lacs([lac]), Flag.NONE, reply, incarnation)",
                "link.request(Op.WRITE_LAC, encode_lacs([lac]), Flag.NONE, reply)",
            ),
            Edit(
                CLIENT,
                "TcpBookieClient.write_lacs",
                "link.request(Op.WRITE_LACS, body, Flag.NONE, reply, incarnation)",
                "link.request(Op.WRITE_LACS, body, Flag.NONE, reply)",
            ),
        ),
    ),
    Mutant(
        "lac-refusal-of-another-ledger",
        "PROTOCOL.md: WRITE_LACS",
        "That a ledger is fenced is told to the writer of the ledger before it in the request.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient._on_lacs_written",
                "on_replies((tokens[place],), refusal)",
                "on_replies((tokens[place - 1],), refusal)",
            ),
        ),
    ),
    Mutant(
        "unreadable-answer-to-lacs-is-a-yes",
        _ERRORS,
        "The LACs of a request whose answer cannot be read count as stored.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient._on_lacs_written",
                "error = FencelogError(ErrorCode.INTERNAL, detail)",
                "error = None",
            ),
        ),
    ),
    Mutant(
        "lacs-for-an-older-bookie",
        "PROTOCOL.md: features",
        "LACs leave as one request for bookies that do not know it.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient.write_lacs",
                "len(lacs) == 1 or FEATURE_OF[Op.WRITE_LACS] not in link.features",
                "len(lacs) == 1",
            ),
        ),
    ),
    Mutant(
        "listed-by-any-incarnation",
        "PROTOCOL.md rule 10",
        "A list of entries is asked for whichever incarnation is there.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient.list_entries",
                "answer = await self._ask(Op.LIST_ENTRIES, body, incarnation=incarnation)",
                "answer = await self._ask(Op.LIST_ENTRIES, body)",
            ),
        ),
    ),
    Mutant(
        "older-bookie-is-not-fenced",
        "PROTOCOL.md rule 6",
        "A bookie that does not know FENCE is asked for its LAC, and not to fence.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient._fence_alone",
                "self._link.request(Op.READ_LAC, body, Flag.FENCE, reply)",
                "self._link.request(Op.READ_LAC, body, Flag.NONE, reply)",
            ),
        ),
    ),
    Mutant(
        "read-that-does-not-fence",
        "PROTOCOL.md rule 6",
        "A read that is to fence the ledger does not.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient._ask",
                "Flag.FENCE if fence else Flag.NONE",
                "Flag.NONE",
            ),
        ),
    ),
    Mutant(
        "operators-request-is-refused",
        _ERRORS,
        "A request of an operator whose answer cannot be read is reported as corrupt.",
        (
            Edit(
                CLIENT,
                "TcpBookieClient.admin",
                "ErrorCode.INTERNAL,",
                "ErrorCode.CORRUPT,",
            ),
        ),
    ),
)
