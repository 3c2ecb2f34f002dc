"""Repetitions of appends: what an error says of all attempts, and not of the last one alone."""

from __future__ import annotations

import pytest

from fencelog.api.client.retry import retry_at_least_once
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError


class Script:
    """A request whose answers are scripted; the last one is given again and again."""

    def __init__(self, *codes: ErrorCode | None) -> None:
        self._codes = list(codes)

    async def __call__(self) -> str:
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        if code is None:
            return "an answer"
        raise FencelogError(code, "why")


@pytest.mark.parametrize("last", [ErrorCode.NO_OWNER, ErrorCode.TOPIC_TERMINATED])
async def test_a_refusal_after_an_unknown_outcome_is_an_unknown_outcome(last: ErrorCode) -> None:
    assert last.effects is Effects.NONE
    with pytest.raises(FencelogError) as raised:
        await retry_at_least_once(Script(ErrorCode.APPEND_UNKNOWN, last))
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    assert raised.value.extra["last_code"] == last.slug
    with pytest.raises(FencelogError) as raised:
        await retry_at_least_once(Script(last))
    assert raised.value.code is last


async def test_an_unknown_outcome_is_followed_by_another_attempt() -> None:
    unknown = [ErrorCode.APPEND_UNKNOWN] * 2
    assert await retry_at_least_once(Script(*unknown, ErrorCode.NO_OWNER, None)) == "an answer"
    with pytest.raises(FencelogError) as raised:
        await retry_at_least_once(Script(ErrorCode.APPEND_UNKNOWN))
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
