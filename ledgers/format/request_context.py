"""The requests that an entry was appended for, as far as they can be followed: their ids.

Only requests that brought an id of their own have a context: most entries have none, and an entry
of a thousand messages carries a few. A context goes with the entry to its bookies, so that their
log lines name the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import msgspec

from fencelog.ledgers.errors import ProtocolError
from fencelog.ledgers.limits import MAX_CONTEXTS, MAX_REQUEST_ID_BYTES

TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""A span of W3C Trace Context, version 0: trace, span, flags."""

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/=+,;@~")


class RequestContext(NamedTuple):
    """One request. ``request_id``: the id that it has. ``traceparent``: the span that its work
    belongs to, as W3C Trace Context writes it (empty: it is not traced)."""

    request_id: str
    traceparent: str = ""


Contexts = tuple[RequestContext, ...]
"""The contexts of a run or an entry, at most MAX_CONTEXTS."""

NO_CONTEXTS: Contexts = ()


def is_request_id(given: bytes) -> bool:
    """Tell whether a client's id may go into logs, headers and frames as it is."""
    return 0 < len(given) <= MAX_REQUEST_ID_BYTES and _SAFE.issuperset(given)


def merge(parts: Iterable[Contexts]) -> Contexts:
    """Return the contexts of entries that are sent together; the first ones of too many."""
    return tuple(chain.from_iterable(parts))[:MAX_CONTEXTS]


_decoder = msgspec.msgpack.Decoder(tuple[RequestContext, ...])
_encode = msgspec.msgpack.Encoder().encode


def encode_contexts(contexts: Contexts) -> bytes:
    """Return contexts as they stand before a run: a msgpack array of arrays."""
    return _encode(contexts)


def decode_contexts(packed: bytes) -> Contexts:
    """Return contexts that came from outside. Raises ProtocolError."""
    try:
        contexts = _decoder.decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"contexts cannot be read: {error}") from error
    check_contexts(contexts)
    return contexts


def check_contexts(contexts: Contexts) -> None:
    """Check contexts that came from outside. Raises ProtocolError."""
    if len(contexts) > MAX_CONTEXTS:
        raise ProtocolError(f"{len(contexts)} contexts, at most {MAX_CONTEXTS}")
    for context in contexts:
        if not is_request_id(context.request_id.encode("utf-8", "replace")):
            raise ProtocolError("a context with a request id that none can have")
        if context.traceparent and TRACEPARENT.fullmatch(context.traceparent) is None:
            raise ProtocolError("a context with a span that none can have")
