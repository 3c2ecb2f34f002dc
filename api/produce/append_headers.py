"""The headers that make an append conditional: ``Producer-Id``, ``Producer-Epoch``,
``Producer-Seq``, ``Idempotency-Key``, ``If-Offset`` and ``Fencing-Token``; and ``Duplicate`` of the
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from fencelog.api.http.asgi import RawHeaders, parse_number
from fencelog.api.http.message_headers import IDEMPOTENCY_KEY
from fencelog.broker.append.conditions import FORGOTTEN, AppendConditions
from fencelog.broker.limits import (
    MAX_FENCING_TOKEN_BYTES,
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_PARTITIONS,
)
from fencelog.broker.names import check_name
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import (
    RANGE_KEY,
    RANGE_SEQUENCE,
    SequenceRange,
    producer_digest,
)

PRODUCER_ID = b"producer-id"
PRODUCER_EPOCH = b"producer-epoch"
PRODUCER_SEQ = b"producer-seq"
IF_OFFSET = b"if-offset"
FENCING_TOKEN = b"fencing-token"

CONDITION_HEADERS = frozenset(
    (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ, IDEMPOTENCY_KEY, IF_OFFSET, FENCING_TOKEN)
)

PRODUCERS_REMEMBERED = 4096
"""The limit of producers whose names need not be checked and digested again: those that append at
about the same time."""

ROUTED_BY = "routed_by"
"""The query parameter that brokers add for an idempotency key that has chosen the partition."""

_DUPLICATE = [(b"duplicate", b"true")]
MAX_NUMBER = 2**63 - 1


def read_conditions(raw_headers: RawHeaders) -> AppendConditions | None:
    """Return the conditions that the headers of an append set, or None without any. Raises
    FencelogError(BAD_REQUEST)."""
    given: dict[bytes, bytes] = {}
    for name, value in raw_headers:
        if name in CONDITION_HEADERS:
            if name in given:
                raise _bad(f"{_shown(name)} is given twice")
            given[name] = value
    return conditions_of(given)


def conditions_of(given: Mapping[bytes, bytes]) -> AppendConditions | None:
    """Return the conditions that these headers set, or None without any. Raises
    FencelogError(BAD_REQUEST)."""
    if CONDITION_HEADERS.isdisjoint(given):
        return None
    return AppendConditions(
        _producer(given) or _key(given), _number(given, IF_OFFSET), _token(given.get(FENCING_TOKEN))
    )


def check_partition_is_certain(
    conditions: AppendConditions, *, partition: bool, key: bool, partitions: int
) -> None:
    """Check that the partition of a conditional append is certain: the request names it, or a
    ``key`` chooses it; an idempotency key alone does, too. Raises FencelogError(BAD_REQUEST)."""
    if partition or partitions == 1:
        return
    if conditions.if_offset is not None or (
        conditions.sequences is not None and conditions.sequences.kind == RANGE_SEQUENCE
    ):
        raise _bad("the topic has several partitions: Producer-Id and If-Offset need ?partition=")
    if conditions.fencing_token is not None and not key:
        raise _bad(
            "the topic has several partitions: Fencing-Token needs ?partition=, or a key for all "
            "messages"
        )


def routed_by(query: Mapping[str, str]) -> int | None:
    """Return the number of partitions by which another broker has routed this append. Raises
    FencelogError(BAD_REQUEST)."""
    if ROUTED_BY not in query:
        return None
    return parse_number(ROUTED_BY, query[ROUTED_BY], low=1, high=MAX_PARTITIONS)


def routed_query(partition: int, conditions: AppendConditions | None) -> bytes:
    """Return the query by which another broker finds the partition of an append."""
    if conditions is None or conditions.routed_by is None:
        return b"partition=%d" % partition
    return b"partition=%d&%b=%d" % (partition, ROUTED_BY.encode(), conditions.routed_by)


def appended_status(duplicate: bool) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Return the status and headers of the answer: 200 and ``Duplicate`` if nothing was written
    now."""
    return (200, _DUPLICATE) if duplicate else (201, [])


def number_or_null(number: int) -> bytes:
    """Return an offset or a time as JSON; null if it is not remembered."""
    return b"null" if number == FORGOTTEN else b"%d" % number


def _producer(given: Mapping[bytes, bytes]) -> SequenceRange | None:
    epoch, sequence = _number(given, PRODUCER_EPOCH), _number(given, PRODUCER_SEQ)
    if PRODUCER_ID not in given:
        if epoch is not None or sequence is not None:
            raise _bad("Producer-Epoch and Producer-Seq need Producer-Id")
        return None
    if sequence is None:
        raise _bad("Producer-Id needs Producer-Seq, the number of the first message")
    if IDEMPOTENCY_KEY in given:
        raise _bad("Producer-Id and Idempotency-Key cannot both be given")
    return SequenceRange(1, RANGE_SEQUENCE, _digest_of(given[PRODUCER_ID]), epoch or 0, sequence)


@lru_cache(PRODUCERS_REMEMBERED)
def _digest_of(producer_id: bytes) -> bytes:
    name = check_name("producer", producer_id.decode("latin-1"))
    return producer_digest(name.encode())


def _key(given: Mapping[bytes, bytes]) -> SequenceRange | None:
    key = given.get(IDEMPOTENCY_KEY)
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY_BYTES:
        raise _bad(f"Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes, not {len(key)}")
    return SequenceRange(1, RANGE_KEY, producer_digest(key))


def _token(value: bytes | None) -> str | None:
    if value is None:
        return None
    if len(value) > MAX_FENCING_TOKEN_BYTES:
        raise _bad(f"Fencing-Token has at most {MAX_FENCING_TOKEN_BYTES} bytes, not {len(value)}")
    return value.decode("utf-8", "surrogateescape")


def _number(given: Mapping[bytes, bytes], name: bytes) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 19 or int(value) > MAX_NUMBER:
        raise _bad(f"{_shown(name)} must be a whole number, not {value[:40].decode('latin-1')!r}")
    return int(value)


def _shown(name: bytes) -> str:
    return name.decode().title()


def _bad(detail: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, detail)
