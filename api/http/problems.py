"""Errors as HTTP answers: RFC 9457 problem documents, derived from ``ledgers.errors`` alone.

Every problem says which side has to act (the status), whether the same request may be sent again
(``retryable``), and whether it may have taken effect all the same (``side_effects``).
"""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec

from fencelog.api.http.asgi import READING, Exchange
from fencelog.api.http.request_ids import live_request
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError

_FAULTS = 500
"""The status from which on the service, not the client, is at fault."""

MEDIA_TYPE = b"application/problem+json"

RETRY_AFTER_S = 1
"""The time after which a client retries: owners move and queues drain within about a second, and a
longer time would idle a healthy client."""

RETRY_FULL_S = 30
"""The same for appends for which no disk has space: bookies look for deleted data about so often
while their disks are full."""

_RESERVED = frozenset(
    (
        *("type", "title", "status", "detail", "instance", "code", "retryable", "side_effects"),
        "request_id",
    )
)

_log = logging.getLogger(__name__)


def problem(error: FencelogError, instance: str) -> dict[str, Any]:
    """Return the problem document of an error at a path."""
    code = error.code
    document: dict[str, Any] = {
        "type": f"urn:fencelog:problem:{code.slug}",
        "title": title(code),
        "status": code.status,
        "detail": error.detail,
        "instance": instance,
        "code": code.slug,
        "retryable": code.retryable,
        "side_effects": code.effects.value,
    }
    document.update((k, v) for k, v in error.extra.items() if k not in _RESERVED)
    return document


def title(code: ErrorCode) -> str:
    """Return the title of a code, ``append_unknown`` -> ``Append unknown``: the same for every
    occurrence, as RFC 9457 asks."""
    return code.slug.replace("_", " ").capitalize()


def problem_body(error: FencelogError, instance: str) -> bytes:
    """Encode the document, with the id of the request that is being served, as a line of JSON in
    ASCII: details quote what clients send, which may be no text."""
    document = problem(error, instance)
    if (request := live_request()) is not None:
        document["request_id"] = request.request_id
    return json.dumps(document, separators=(",", ":"), default=str).encode() + b"\n"


def log_problem(error: FencelogError, method: str, path: str) -> None:
    """Log that the request being served is answered with a problem. Nobody has to act where nothing
    was done and the client can try again; a fault of the client is told to the client, and logged
    if it wants its request to be followed."""
    request, code = live_request(), error.code
    is_followed = request is not None and request.given_id is not None
    if code.status >= _FAULTS:
        is_passing = code.retryable and code.effects is Effects.NONE
        level = logging.INFO if is_passing else logging.WARNING
    else:
        level = logging.INFO if is_followed else logging.DEBUG
    _log.log(level, "%s %s: %s", method, path, error)


def problem_headers(error: FencelogError) -> list[tuple[bytes, bytes]]:
    """Return Retry-After where waiting helps; Allow, Next-Offset and the like if the error brings
    them; the id of the request being served, if it was made here."""
    headers: list[tuple[bytes, bytes]] = []
    if error.code.status in (429, 503, 507):
        headers.append((b"retry-after", b"%d" % retry_after_s(error)))
    if "allow" in error.extra:
        headers.append((b"allow", ", ".join(error.extra["allow"]).encode()))
    if (request := live_request()) is not None:
        headers += request.made_header
    return headers


def retry_after_s(error: FencelogError) -> int:
    """Return the error's ``retry_after_ms``, where it has one, rounded up."""
    usual_s = RETRY_FULL_S if error.code is ErrorCode.OUT_OF_SPACE else RETRY_AFTER_S
    wait_ms = int(error.extra.get("retry_after_ms", usual_s * 1000))
    return max(1, -(-wait_ms // 1000))


def unexpected() -> FencelogError:
    """Return the error for an unforeseen exception, whose text belongs in the log alone."""
    return FencelogError(ErrorCode.INTERNAL, "an unexpected error; the service has logged it")


def cut_off(method: str, path: str) -> FencelogError:
    """Return the error for a request that the closing service could not wait for. Only an append
    may not be repeated as it is."""
    if method in READING:
        return FencelogError(ErrorCode.DRAINING, "this broker is being closed")
    if method == "POST" and path.endswith(("/messages", "/messages:batch")):
        code = ErrorCode.APPEND_UNKNOWN
    elif "/producers/" in path or path.endswith(":fence"):
        code = ErrorCode.STATE_UNKNOWN  # producer access
    elif method == "POST" and "/subscriptions/" in path:
        code = ErrorCode.STATE_UNKNOWN
    elif path.endswith((":unload", ":drain")):
        code = ErrorCode.REQUEST_TIMEOUT
    else:
        code = ErrorCode.METADATA_UNKNOWN
    return FencelogError(code, "this broker is being closed; the outcome is not known")


def partly_done(error: FencelogError, what: str) -> FencelogError:
    """Return the error of a request that has done ``what`` before it failed. The request may be
    repeated."""
    if error.code.effects is Effects.MAYBE:
        return error
    detail = f"{what}; then: {error.detail}"
    return FencelogError(ErrorCode.METADATA_UNKNOWN, detail, last_code=error.code.slug)


async def send_problem(exchange: Exchange, error: FencelogError) -> None:
    """Answer with a problem. The caller makes sure that nothing was sent yet.

    A client that waits for ``100 Continue`` keeps its body; without ``Connection: close`` the
    server would take its next request for that body. Nor is a body that is too large read to its
    end.
    """
    headers = problem_headers(error)
    too_large = error.code is ErrorCode.PAYLOAD_TOO_LARGE
    if too_large or exchange.header(b"expect") is not None:
        headers.append((b"connection", b"close"))
    body = problem_body(error, exchange.path)
    await exchange.respond(error.code.status, MEDIA_TYPE, body, headers)


_BY_SLUG = {code.slug: code for code in ErrorCode}


def error_from_problem(body: bytes, status: int) -> FencelogError:
    """Return the error that another broker reported. A body that is no problem document of a broker
    becomes INTERNAL, whose effects are unknown."""
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
        code = _BY_SLUG[document["code"]]
        detail = str(document["detail"])
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
        return FencelogError(
            ErrorCode.INTERNAL, f"another broker answered {status} without a problem document"
        )
    extra = {k: v for k, v in document.items() if k not in _RESERVED}
    return FencelogError(code, detail, **extra)
