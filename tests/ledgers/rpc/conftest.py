"""A bookie that answers as a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.network.scripted_server import ScriptedServer


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    yield scripted
    if scripted.server is not None:
        await scripted.close()
