"""Repeated requests: those that were refused, and unanswered ones where a repetition is
harmless.

The loops are written out rather than taken from tenacity or stamina: an answer at once costs 1.6 us
against 17 and 22 us. Both libraries measure the time by a clock of their own and not by the event
loop's; tenacity does not await what a lambda returns unless the request is wrapped; stamina has no
list of pauses, and logs and counts each repetition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from fencelog.ledgers.errors import Effects, ErrorCode, Fault, FencelogError

T = TypeVar("T")

RETRY_S = 30.0
"""The time for which refusals are repeated: several takeovers, each a session time-out and a
recovery."""

_DELAYS_S = (0.05, 0.1, 0.2, 0.5)

_LONGEST_DELAY_S = 5.0
"""The longest pause between the requests of a client that goes on through an outage of any
length."""

MAX_PAUSE_S = 60.0
"""The longest pause that the service can ask for; one large batch may owe hours at a low rate.
Meanwhile the rate may have been raised, or the partition have another owner, which drops the
debt."""

_OF_OTHER_CLIENTS = (ErrorCode.RATE_LIMITED, ErrorCode.BACKLOG_QUOTA_EXCEEDED)
"""The refusals of correct requests: time, or a subscription's consumers, put an end to them."""

Pause = Callable[[float], Awaitable[bool]]
"""A function that waits for the seconds that the service asks for, and tells whether the request is
to be sent again then."""


async def whole_pause(pause_s: float) -> bool:
    """Wait for all of the time, and go on."""
    await anyio.sleep(pause_s)
    return True


async def retry_not_applied(
    request: Callable[[], Awaitable[T]], *, pause: Pause = whole_pause
) -> T:
    """Return the request's answer; refusals that are retryable and had no effect are repeated.

    A lost read (REQUEST_TIMEOUT) is repeated, too; a lost append has another code and is not.
    Raises the last refusal RETRY_S after the first one: a long poll may have taken longer than
    that before. They begin anew after each pause that the service asks for: it works then.
    ``pause`` takes those; where it says so, their refusal is raised.
    """
    give_up: float | None = None
    attempt = 0
    while True:
        try:
            return await request()
        except FencelogError as error:
            asked_s = asked_pause_s(error)
            if asked_s is None:
                now = anyio.current_time()
                give_up = now + RETRY_S if give_up is None else give_up
                lost_read = error.code is ErrorCode.REQUEST_TIMEOUT
                refused = is_transient(error) and error.code.effects is Effects.NONE
                if not (lost_read or refused) or now > give_up:
                    raise
            elif not await pause(asked_s):
                raise
        if asked_s is not None:
            give_up = None
            continue
        await anyio.sleep(_DELAYS_S[min(attempt, len(_DELAYS_S) - 1)])
        attempt += 1


async def retry_at_least_once(request: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to an append that may be written more than once: it is repeated as by
    ``retry_not_applied``, and also while its outcome is unknown.

    Raises the last error RETRY_S after the first one: APPEND_UNKNOWN if one of the attempts may
    have been written.
    """
    give_up: float | None = None
    is_unknown = False

    async def pause(pause_s: float) -> bool:
        nonlocal give_up
        await anyio.sleep(pause_s)
        give_up = None
        return True

    while True:
        try:
            return await retry_not_applied(request, pause=pause)
        except FencelogError as error:
            now = anyio.current_time()
            give_up = now + RETRY_S if give_up is None else give_up
            if error.code is not ErrorCode.APPEND_UNKNOWN or now > give_up:
                raise final_error(error, is_unknown=is_unknown) from error
            is_unknown = True
        await anyio.sleep(_DELAYS_S[-1])


async def retry_idempotent(
    request: Callable[[], Awaitable[T]],
    *,
    timeout_s: float | None = RETRY_S,
    passes: bool = False,
) -> T:
    """Return the answer to a request that is harmless to repeat, whatever its earlier outcomes.

    Transient errors are repeated with growing pauses, for ``timeout_s`` (None: without end), which
    begins anew after each pause that the service asks for. Raises an error that is not transient at
    once, and otherwise the last error; that of an earlier attempt which may have taken effect, if
    the last one certainly did not. ``passes``: what an attempt may have done passes by itself, and
    nobody asks for it.
    """
    began = anyio.current_time()
    delay_s = _DELAYS_S[0]
    unknown: FencelogError | None = None
    while True:
        try:
            return await request()
        except FencelogError as error:
            if error.may_have_effect and not passes:
                unknown = error
            asked_s = asked_pause_s(error)
            is_over = timeout_s is not None and anyio.current_time() - began > timeout_s
            if asked_s is None and (is_over or not is_transient(error)):
                if unknown is None or error.may_have_effect:
                    raise
                raise _in_doubt(unknown.code, error) from error
        if asked_s is not None:
            await anyio.sleep(asked_s)
            began = anyio.current_time()
            continue
        await anyio.sleep(delay_s)
        delay_s = min(2 * delay_s, _LONGEST_DELAY_S)


def is_transient(error: FencelogError) -> bool:
    """Tell whether the same request may succeed later without any intervention."""
    code = error.code
    return code.retryable and (code.fault is not Fault.CLIENT or code in _OF_OTHER_CLIENTS)


def asked_pause_s(error: FencelogError) -> float | None:
    """Return the pause that the service asks for, up to MAX_PAUSE_S; None if it asks for none.

    A shorter one than the first of ``_DELAYS_S`` is as long: at a high rate each request would get
    one message only.
    """
    asked_ms = error.extra.get("retry_after_ms")
    if error.code is not ErrorCode.RATE_LIMITED or not isinstance(asked_ms, int | float):
        return None
    return min(max(_DELAYS_S[0], asked_ms / 1000), MAX_PAUSE_S)


def final_error(error: FencelogError, *, is_unknown: bool) -> FencelogError:
    """Return the final error: a refusal says nothing about the previous attempt whose answer was
    lost."""
    if not is_unknown or error.code.effects is Effects.MAYBE:
        return error
    return _in_doubt(ErrorCode.APPEND_UNKNOWN, error)


def _in_doubt(code: ErrorCode, last: FencelogError) -> FencelogError:
    done = "been written" if code is ErrorCode.APPEND_UNKNOWN else "taken effect"
    return FencelogError(
        code,
        f"an earlier attempt may have {done}; the last one: {last.detail}",
        last_code=last.code.slug,
    )
