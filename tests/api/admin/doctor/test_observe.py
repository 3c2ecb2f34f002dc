"""What an examination leaves behind when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.api.admin.doctor.observe import ClusterUnderObservation, observe


@pytest.mark.parametrize("steps", range(2))
async def test_an_examination_that_is_cancelled_leaves_no_work_that_was_never_begun(
    steps: int,
) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    nobody: Any = SimpleNamespace(children=never, get=never, status=never, checks=never)
    cluster = ClusterUnderObservation(nobody, nobody, nobody, nobody, nobody, nobody, never)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = asyncio.create_task(observe(cluster, [], scan=False))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError)
        gc.collect()
