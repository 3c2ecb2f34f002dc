"""The methods that a path takes, derived from its handlers, so that ``Allow`` says what is so."""

from __future__ import annotations

from collections.abc import Iterable

from fencelog.api.http.asgi import Exchange
from fencelog.api.server.origins_core import Origins
from fencelog.ledgers.errors import ErrorCode, FencelogError


def allowed(handled: Iterable[str]) -> list[str]:
    """Return the methods of a path with handlers for these: HEAD where there is GET, and
    OPTIONS."""
    methods = dict.fromkeys(handled)
    if "GET" in methods:
        methods["HEAD"] = None
    return [*methods, "OPTIONS"]


async def answer_other_method(exchange: Exchange, handled: Iterable[str], origins: Origins) -> None:
    """Answer a request whose method has no handler: OPTIONS with those that have, and a browser
    with what a page may do.

    Raises FencelogError(METHOD_NOT_ALLOWED).
    """
    methods = allowed(handled)
    if exchange.method == "OPTIONS":
        allow = (b"allow", ", ".join(methods).encode())
        await exchange.start(204, [allow, *origins.preflight(exchange.headers)])
        await exchange.send_body(b"")
        return
    raise FencelogError(
        ErrorCode.METHOD_NOT_ALLOWED,
        f"{exchange.method} is not among {', '.join(methods)}",
        allow=methods,
    )
