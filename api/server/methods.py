"""The methods that a path takes, derived from the routes, so that ``Allow`` says what is so."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match, Mount, Route

from fencelog.api.http.asgi import Exchange, Scope
from fencelog.api.server.origins_core import Origins
from fencelog.ledgers.errors import ErrorCode, FencelogError


def allowed(handled: Iterable[str]) -> list[str]:
    """Return the methods of a path with handlers for these: HEAD where there is GET, and
    OPTIONS."""
    methods = dict.fromkeys(handled)
    if "GET" in methods:
        methods["HEAD"] = None
    return [*methods, "OPTIONS"]


def routed(routes: Iterable[BaseRoute], scope: Scope) -> set[str]:
    """Return the methods that these routes handle at the scope's path; none: there is nothing. A
    path with a verb (``…/NAME:drain``) is no other route's name."""
    asked = {**scope, "method": "", "root_path": ""}
    found = [
        route
        for route in routes
        if isinstance(route, Route | Mount) and route.matches(asked)[0] is not Match.NONE
    ]
    with_verb = [route for route in found if ":" in route.path]
    return {method for route in with_verb or found for method in _methods(route)} - {"HEAD"}


def _methods(route: Route | Mount) -> Iterable[str]:
    return ("GET",) if isinstance(route, Mount) else route.methods or ()


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
