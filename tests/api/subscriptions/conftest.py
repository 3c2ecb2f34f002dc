"""Two brokers for the tests of a module, and topics of their own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.subscription_service import Service, Site, running

Everything = tuple[Service, list[Site]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everything() -> AsyncIterator[Everything]:
    """Two brokers for all tests of a module."""
    async with running() as service:
        yield service, [await service.site("a"), await service.site("b")]


@pytest_asyncio.fixture(loop_scope="module")
async def one(everything: Everything) -> Site:
    """The broker of a topic with one partition."""
    service, sites = everything
    (site,) = await service.topic(sites[:1])
    return site


@pytest_asyncio.fixture(loop_scope="module")
async def two(everything: Everything) -> list[Site]:
    """Two brokers of a topic; the first owns partition 0, the second 1."""
    service, sites = everything
    return await service.topic(sites)
