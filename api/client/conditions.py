"""The conditions of an append in the Python client, and their HTTP headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

PRODUCER_ID = "producer-id"
PRODUCER_EPOCH = "producer-epoch"
PRODUCER_SEQ = "producer-seq"
IDEMPOTENCY_KEY = "idempotency-key"
IF_OFFSET = "if-offset"
FENCING_TOKEN = "fencing-token"
DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer of an append. ``sequence``: the number of the append's first message; without a
    gap from 0 for each partition and ``epoch``."""

    id: str
    epoch: int = 0
    sequence: int = 0


class AppendPreconditions(TypedDict, total=False):
    """The keyword arguments of an append. All but ``idempotency_key``, which finds its own,
    require a definite partition: ``partition``, or a topic that has one only.

    ``producer`` or ``idempotency_key`` (up to 256 bytes): the append may be sent again and is
    written once. ``if_offset``: write only if the first message gets this offset.
    ``fencing_token``: write only while this is the partition's token.
    """

    producer: Producer | None
    idempotency_key: str | None
    if_offset: int | None
    fencing_token: str | None


def check_keywords(given: Mapping[str, object], known: type) -> None:
    """Refuse keyword arguments that are none of a TypedDict's, as a call of a function with named
    parameters would: a condition that is misspelt would be none. Raises TypeError."""
    if unknown := given.keys() - known.__annotations__.keys():
        names = ", ".join(known.__annotations__)
        raise TypeError(
            f"{', '.join(sorted(unknown))}: no such keyword argument; there are {names}"
        )


def condition_headers(conditions: AppendPreconditions) -> dict[str, bytes]:
    """Return the conditions as HTTP headers. Raises TypeError for one that does not exist."""
    check_keywords(conditions, AppendPreconditions)
    headers: dict[str, bytes] = {}
    producer = conditions.get("producer")
    if producer is not None:
        headers[PRODUCER_ID] = producer.id.encode()
        headers[PRODUCER_EPOCH] = b"%d" % producer.epoch
        headers[PRODUCER_SEQ] = b"%d" % producer.sequence
    key = conditions.get("idempotency_key")
    if key is not None:
        headers[IDEMPOTENCY_KEY] = key.encode()
    offset = conditions.get("if_offset")
    if offset is not None:
        headers[IF_OFFSET] = b"%d" % offset
    token = conditions.get("fencing_token")
    if token is not None:
        headers[FENCING_TOKEN] = token.encode()
    return headers
