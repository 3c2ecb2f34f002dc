"""Wrong front doors: requests that are passed on against the rules of broker/SEMANTICS.md."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ANSWER = "fencelog.api.routing.link_answer"
FORWARD = "fencelog.api.routing.forward"
CORE = "fencelog.api.routing.link_core"
OWNERSHIP = "fencelog.api.routing.owner_proxy"

MUTANTS = (
    Mutant(
        "asked-again-of-the-next-owner",
        "SEMANTICS.md, for producers: never twice",
        "An append that its owner has not answered goes to the next one, as a read does.",
        (
            Edit(
                OWNERSHIP,
                "OwnerProxy._ask",
                "if exchange.method not in READING or exchange.started or not began:",
                "if exchange.started or not began:",
            ),
        ),
    ),
    Mutant(
        "lost-answer-is-a-refusal",
        "SEMANTICS.md, for producers; I15",
        "An append whose connection broke after it was sent counts as not written.",
        (
            Edit(
                ANSWER,
                "lost_answer",
                "return FencelogError(ErrorCode.APPEND_UNKNOWN, why)",
                "return FencelogError(ErrorCode.NO_OWNER, why)",
            ),
        ),
    ),
    Mutant(
        "broken-is-unreachable",
        "SEMANTICS.md, for producers: never twice",
        "Any failure of a connection to the owner counts as one that was refused.",
        (
            Edit(
                ANSWER,
                "unanswered",
                "            return lost_answer(method, url, error)",
                "            return OwnerUnreachable(str(error))",
            ),
        ),
    ),
    Mutant(
        "body-lost-is-not-owner",
        "SEMANTICS.md, for producers: never twice",
        "An owner whose answer breaks off is looked for again.",
        (
            Edit(
                FORWARD,
                "Forwarder.relay",
                "            raise lost_answer(exchange.method, url, error) from error\n",
                "            raise FencelogError(ErrorCode.NOT_OWNER, str(error)) from error\n",
            ),
        ),
    ),
    Mutant(
        "unknown-goes-to-the-next-owner",
        "SEMANTICS.md, for producers: never twice",
        "What a log that was lost leaves unknown is appended by the next owner.",
        (
            Edit(
                OWNERSHIP,
                "OwnerProxy.at_owner",
                "if error.code not in LET_GO or",
                "if error.code not in (*LET_GO, ErrorCode.APPEND_UNKNOWN) or",
            ),
        ),
    ),
    Mutant(
        "passed-on-twice",
        "api/routing/forward.py: passed on once",
        "A broker passes on what another one has passed on to it.",
        (
            Edit(
                OWNERSHIP,
                "_is_movable",
                "(not exchange.started and exchange.header(FORWARDED) is None)",
                "not exchange.started",
            ),
        ),
    ),
    Mutant(
        "terms-stay-behind",
        "SEMANTICS.md, exactly once",
        "What is passed on does not carry the numbers that a producer has given it.",
        (
            Edit(
                FORWARD,
                "Forwarder.relay",
                "if item[0] not in _REQUEST_DROPPED]",
                'if item[0] not in _REQUEST_DROPPED and b"producer" not in item[0]]',
            ),
        ),
    ),
    Mutant(
        "sent-again-after-a-loss",
        "SEMANTICS.md, for producers: never twice",
        "A request whose link was lost goes over the next connection.",
        (
            Edit(
                FORWARD,
                "Forwarder._send",
                "            raise unanswered(head.method, url, error) from error\n",
                "            if error.outcome.name == 'LOST':\n"
                "                return await self._send(url, head, body)\n"
                "            raise unanswered(head.method, url, error) from error\n",
            ),
        ),
    ),
    Mutant(
        "sent-counts-as-unsent",
        "SEMANTICS.md, for producers; I15",
        "What was written to a connection that is lost then counts as never sent.",
        (
            Edit(
                CORE,
                "LinkCore.lose",
                "entry.asked.failed(Outcome.LOST, why)",
                "entry.asked.failed(Outcome.UNSENT, why)",
            ),
        ),
    ),
    Mutant(
        "answer-of-another-request",
        "api/routing/link_core.py: an answer belongs to the request of its id",
        "The frames of a link answer its oldest request.",
        (
            Edit(
                CORE,
                "LinkCore.take",
                "        entry = self._in_flight.get(frame.request_id)\n",
                "        entry = next(iter(self._in_flight.values()), None)\n",
            ),
        ),
    ),
    Mutant(
        "refused-after-it-was-taken",
        "SEMANTICS.md, for producers; I15",
        "When an owner is gone that had been asked, the partition just has no owner.",
        (
            Edit(
                OWNERSHIP,
                "OwnerProxy._ask",
                "                raise lost_answer(exchange.method, url, error) from error\n",
                "                raise FencelogError(ErrorCode.NO_OWNER, url) from error\n",
            ),
        ),
    ),
)

ACCESS = "fencelog.api.produce.access"
ADMIN = "fencelog.api.admin.partition_admin"

CHANGES = (
    Mutant(
        "lost-claim-is-a-refusal",
        "SEMANTICS.md, who may append",
        "Who may append was changed, for all one knows; the answer says that nothing was done.",
        (
            Edit(
                ACCESS,
                "Producers._change",
                "exchange.method, url, exchange.path, query, body, lost=unknown",
                "exchange.method, url, exchange.path, query, body, lost=ErrorCode.NO_OWNER",
            ),
        ),
    ),
    Mutant(
        "lost-trim-is-a-refusal",
        "SEMANTICS.md, retention",
        "The answer to a trim is lost, and the client is told that nothing was done.",
        (
            Edit(
                ADMIN,
                "PartitionAdmin._at_owner",
                '"POST", url, path, b"", body, lost=_UNKNOWN',
                '"POST", url, path, b"", body, lost=ErrorCode.NO_OWNER',
            ),
        ),
    ),
    Mutant(
        "end-of-another-moment",
        "SEMANTICS.md, terminate",
        "A partition is said to end where it ended when the request came.",
        (
            Edit(
                ADMIN,
                "PartitionAdmin._terminate",
                "            await log.terminate()\n"
                "            return msgspec.json.encode(LogEnd(log.partition, log.tail_offset))\n",
                "            end = log.tail_offset\n"
                "            await log.terminate()\n"
                "            return msgspec.json.encode(LogEnd(log.partition, end))\n",
            ),
        ),
    ),
)
"""Changes of partitions that are passed on against the rules."""

RELEASES = (
    Mutant(
        "released-again-at-the-next-owner",
        "SEMANTICS.md, who may append",
        "A release that its owner has not answered goes to the next one, as a read does.",
        (
            Edit(
                OWNERSHIP,
                "OwnerProxy._ask",
                "if exchange.method not in READING or exchange.started or not began:",
                'if exchange.method == "POST" or exchange.started or not began:',
            ),
        ),
    ),
    Mutant(
        "tail-read-begins-again",
        "SEMANTICS.md, readers",
        "A read that waited at the tail begins at that of the next owner, behind what has come.",
        (Edit(OWNERSHIP, "TailRead.learn", "self.offset = found", "return"),),
    ),
    Mutant(
        "tail-read-of-a-lost-owner-begins-again",
        "SEMANTICS.md, readers",
        "So does one whose owner was lost before it said where the read began.",
        (Edit(OWNERSHIP, "OwnerProxy._ask", " or not began:", ":"),),
    ),
)
"""A test of the part has to detect it."""
