"""Steps of unknown outcome, carried out again until it is known."""

from __future__ import annotations

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import FOUND_OTHERWISE, NOT_ASKED
from fencelog.ledgers.metastore.until_known import until_known

UNKNOWN = ErrorCode.METADATA_UNKNOWN


class Step:
    """A step that fails so, in order, and then succeeds."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)

    async def __call__(self) -> str:
        if self.codes:
            raise FencelogError(self.codes.pop(0), "scripted")
        return "done"


async def test_a_step_is_repeated_while_its_outcome_is_unknown() -> None:
    assert await until_known(Step()) == "done"
    assert await until_known(Step(UNKNOWN, UNKNOWN)) == "done"


@pytest.mark.parametrize("code", NOT_ASKED)
async def test_what_was_unknown_stays_so_when_the_store_cannot_be_asked(code: ErrorCode) -> None:
    for codes, said in (((UNKNOWN, code), UNKNOWN), ((code,), code), ((UNKNOWN,) * 3, UNKNOWN)):
        with pytest.raises(FencelogError) as caught:
            await until_known(Step(*codes))
        assert caught.value.code is said


@pytest.mark.parametrize("code", [ErrorCode.BAD_REQUEST, ErrorCode.CORRUPT])
async def test_another_refusal_says_nothing_of_an_attempt_whose_answer_was_lost(
    code: ErrorCode,
) -> None:
    for codes, said in (((UNKNOWN, code), UNKNOWN), ((code,), code)):
        with pytest.raises(FencelogError) as caught:
            await until_known(Step(*codes))
        assert caught.value.code is said


@pytest.mark.parametrize("code", FOUND_OTHERWISE)
async def test_how_the_node_is_the_step_has_judged_itself(code: ErrorCode) -> None:
    with pytest.raises(FencelogError) as caught:
        await until_known(Step(UNKNOWN, code))
    assert caught.value.code is code
