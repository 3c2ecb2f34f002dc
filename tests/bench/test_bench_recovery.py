"""The bench of recovery where copies are not made in time."""

from __future__ import annotations

import pytest

from fencelog.api.bench.recovery import _until
from fencelog.ledgers.errors import FencelogError


async def test_what_does_not_end_in_time_is_named() -> None:
    async def never() -> bool:
        return False

    async def already() -> bool:
        return True

    await _until(already, 0.05)
    with pytest.raises(FencelogError, match="it was not healed within 0 s"):
        await _until(never, 0.05)
