"""Repeating requests that were refused, and only those of which nothing can have happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencelog.ledgers.errors import Effects, ErrorCode, Fault, FencelogError

T = TypeVar("T")

RETRY_S = 30.0
"""How long refusals are repeated: several takeovers, each a session timeout and a recovery."""

_DELAYS_S = (0.05, 0.1, 0.2, 0.5)


async def retry_refusals(request: Callable[[], Awaitable[T]]) -> T:
    """The request's answer; refusals that are retryable and had no effect are repeated.

    A lost read (REQUEST_TIMEOUT) is repeated, too; a lost append has another code and is not.
    Raises the last refusal after RETRY_S.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + RETRY_S
    attempt = 0
    while True:
        try:
            return await request()
        except FencelogError as error:
            code = error.code
            lost_read = code is ErrorCode.REQUEST_TIMEOUT
            refused = code.retryable and code.fault is not Fault.CLIENT
            repeatable = lost_read or (refused and code.effects is Effects.NONE)
            if not repeatable or loop.time() > give_up:
                raise
        await asyncio.sleep(_DELAYS_S[min(attempt, len(_DELAYS_S) - 1)])
        attempt += 1
