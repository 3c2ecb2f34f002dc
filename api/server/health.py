"""Health and readiness: answered without FastAPI, so from the first moment on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from fencelog.api.http.asgi import JSON, Exchange

LIVE = "/healthz"
READY = "/readyz"

ABOUT_LIVE = "Answer that the process runs. Its dependencies are not checked."
ABOUT_READY = (
    "Answer that this broker can serve what it has. With an open partition, that takes as many "
    "bookies as acknowledge an entry; without one, metadata and bookies for a new ledger. "
    "Else 503, and the problem says why not."
)


class HealthState(msgspec.Struct, frozen=True):
    """The state of the service: ``ok``, or else a problem says what is missing."""

    status: str = "ok"


_OK = msgspec.json.encode(HealthState())


def _nothing() -> None:
    """Check nothing: a process that answers works."""


class Health:
    """Both endpoints. ``check_ready`` raises FencelogError while the process cannot serve,
    ``check_live`` when only a restart can help."""

    def __init__(
        self,
        check_ready: Callable[[], Awaitable[None]],
        check_live: Callable[[], None] = _nothing,
    ) -> None:
        self._check_ready = check_ready
        self._check_live = check_live

    def pages(self) -> Mapping[str, Callable[[Exchange], Awaitable[None]]]:
        """Return the handlers of GET by path."""
        return {LIVE: self.live, READY: self.ready}

    async def live(self, exchange: Exchange) -> None:
        """Answer 200 unless a restart is needed. Raises FencelogError that says why."""
        self._check_live()
        await exchange.respond(200, JSON, _OK)

    async def ready(self, exchange: Exchange) -> None:
        """Answer 200 if the process can serve. Raises FencelogError that says why not."""
        await self._check_ready()
        await exchange.respond(200, JSON, _OK)
