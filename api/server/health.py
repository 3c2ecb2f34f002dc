"""Health and readiness: answered without FastAPI, so from the first moment on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from fencelog.api.http.asgi import JSON, Exchange

LIVE = "/healthz"
READY = "/readyz"

ABOUT_LIVE = "Answer that the process runs. Its dependencies are not checked."
ABOUT_READY = (
    "Answer that an append could be acknowledged. Metadata answers and enough bookies take adds; "
    "else 503, and the problem says why not."
)


class HealthState(msgspec.Struct, frozen=True):
    """The state of the service: ``ok``, or else a problem says what is missing."""

    status: str = "ok"


_OK = msgspec.json.encode(HealthState())


class Health:
    """Both endpoints. ``check_ready`` raises FencelogError while the broker cannot serve."""

    def __init__(self, check_ready: Callable[[], Awaitable[None]]) -> None:
        self._check_ready = check_ready

    async def live(self, exchange: Exchange) -> None:
        """Answer 200, always."""
        await exchange.respond(200, JSON, _OK)

    async def ready(self, exchange: Exchange) -> None:
        """Answer 200 if an append could be acknowledged. Raises FencelogError that says why not."""
        await self._check_ready()
        await exchange.respond(200, JSON, _OK)
