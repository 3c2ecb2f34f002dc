"""The fixtures that the tests of compaction share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.bookie.storage.compacted_logs import Logs, logs_of
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.faulty_disk import FaultyDisk


@pytest.fixture
async def logs(
    open_bookie: OpenBookie, requests: Requests, faulty_disk: FaultyDisk
) -> AsyncIterator[Logs]:
    async with logs_of(await open_bookie(disk=faulty_disk, read_cache_bytes=0), requests) as logs:
        yield logs
