"""A cluster of scripted bookies with metadata in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio

from tests.bookie.auditor.audit_stage import AuditStage
from tests.support.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests in virtual time, which does not pass while there is work."""
    return {"virtual time": VirtualTimeLoop}


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[AuditStage]:
    async with AuditStage(5) as stage:
        yield stage
