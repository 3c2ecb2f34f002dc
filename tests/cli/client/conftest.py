"""The event loops of the client's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.support.virtual_time import VirtualTimeLoop

_WITHOUT_SOCKETS = ("test_client_retry.py",)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run what is repeated for a while in virtual time."""
    if item.path.name in _WITHOUT_SOCKETS:
        return {"virtual time": VirtualTimeLoop}
    return {"real time": asyncio.new_event_loop}
