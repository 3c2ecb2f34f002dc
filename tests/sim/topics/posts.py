"""Appends as HTTP requests: what a client sends to any broker, and what it makes of the answer."""

from __future__ import annotations

import asyncio

import msgspec

from fencelog.api.http.asgi import BATCH
from fencelog.api.http.problems import error_from_problem
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_KEY, RANGE_SEQUENCE
from fencelog.ledgers.record_batch import Message, encode_batch
from tests.sim.oracle.log_history import LogHistory, Sent
from tests.sim.topics.brokers import ANSWER_S, TOPIC
from tests.sim.topics.front import Front
from tests.sim.topics.http import Answer, Broken, NoConnection, Refused, Request, Silent

CONNECT_S = 0.5


async def post_all(
    front: Front, target: str, log: LogHistory, waiting: list[Sent]
) -> list[FencelogError | None]:
    """Send them, those of a sequence one after the other; what became of each, as far as it is
    known."""
    if any(
        sent.conditions.sequences is not None and sent.conditions.sequences.kind == RANGE_SEQUENCE
        for sent in waiting
    ):
        return [await _post(front, target, log, sent) for sent in waiting]
    return await asyncio.gather(*(_post(front, target, log, sent) for sent in waiting))


async def _post(front: Front, target: str, log: LogHistory, sent: Sent) -> FencelogError | None:
    log.attempted(sent)
    request = _request(log, sent)
    try:
        answer = await front.http.ask(target, request, connect_s=CONNECT_S, answer_s=ANSWER_S)
    except (Refused, NoConnection) as error:
        sent.refused += 1
        return FencelogError(ErrorCode.NO_OWNER, f"{target} was not reached: {error!r}")
    except (Broken, Silent) as error:
        return _unknown(target, error)
    if not answer.is_whole:
        return _unknown(target, None)
    if answer.status in (200, 201):
        _note_success(log, sent, answer)
        return None
    told = error_from_problem(answer.body, answer.status)
    front.taken.told(log, sent, told)
    return told


def _unknown(target: str, why: Exception | None) -> FencelogError:
    return FencelogError(ErrorCode.APPEND_UNKNOWN, f"{target} gave no answer: {why!r}")


def _note_success(log: LogHistory, sent: Sent, answer: Answer) -> None:
    """Check that the client's answer is an owner's."""
    told = msgspec.json.decode(answer.body)
    offset = told["appended"][0]["offset"] if sent.is_batch else told["offset"]
    if not sent.is_certain:
        log.violate(21, f"{sent.payloads[0]!r} is answered {answer.status}, no owner has said so")
    if offset is not None and offset != sent.offset:
        log.violate(21, f"{sent.payloads[0]!r} is answered at {offset}, it is at {sent.offset}")
    is_duplicate = (b"duplicate", b"true") in answer.headers
    if is_duplicate != (answer.status == 200):
        log.violate(17, f"{sent.payloads[0]!r}: {answer.status} with Duplicate {is_duplicate}")
    log.counts["posts answered"] += 1


def _request(log: LogHistory, sent: Sent) -> Request:
    headers = _conditions(sent)
    query = b"partition=%d" % log.partition
    path = f"/v1/topics/{TOPIC}/messages"
    if sent.is_batch:
        batch = encode_batch([Message(payload, sent.key) for payload in sent.payloads])
        headers.append((b"content-type", BATCH))
        return Request("POST", f"{path}:batch", query, headers, batch)
    if sent.key is not None:
        headers.append((b"fencelog-key", sent.key))
    return Request("POST", path, query, headers, sent.payloads[0])


def _conditions(sent: Sent) -> list[tuple[bytes, bytes]]:
    """Return the conditions as a client states them: who produces and which of its messages it is
    stands in these."""
    name = sent.payloads[0].rpartition(b".")[0]
    headers: list[tuple[bytes, bytes]] = []
    sequences = sent.conditions.sequences
    if sequences is not None and sequences.kind == RANGE_SEQUENCE:
        headers += [
            (b"producer-id", name.partition(b"/")[0]),
            (b"producer-epoch", b"%d" % sequences.epoch),
            (b"producer-seq", b"%d" % sequences.sequence),
        ]
    elif sequences is not None and sequences.kind == RANGE_KEY:
        headers.append((b"idempotency-key", name))
    if sent.conditions.if_offset is not None:
        headers.append((b"if-offset", b"%d" % sent.conditions.if_offset))
    return headers
