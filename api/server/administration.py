"""The half of the application that FastAPI answers, loaded while the other half serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencelog.api.server.framework import Framework


class Administration:
    """FastAPI's half of the application. ``load`` imports and builds it in a thread, once; a
    request that comes before it is there waits for it."""

    def __init__(self, build: Callable[[], Framework]) -> None:
        self._build = build
        self._loading: asyncio.Future[Framework] | None = None

    def load(self) -> asyncio.Future[Framework]:
        """Begin to load it, unless that has begun."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self._build)
        return self._loading

    async def framework(self) -> Framework:
        """Return it when it is there. Raises what the import raised, if the installation is
        broken."""
        return await asyncio.shield(self.load())
