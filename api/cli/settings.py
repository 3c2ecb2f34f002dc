"""``--set NAME=VALUE`` of the commands that change settings, and the output of settings."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from fencelog.api.client import FencelogClient

T = TypeVar("T")

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting, as in HTTP.md; again for each. NAME=null inherits it again, "
        "NAME=unlimited is no bound.",
    ),
]


def parse_settings(given: Sequence[str] | None) -> dict[str, Any]:
    """Parse settings. Values are numbers, true, false and null, and otherwise text."""
    settings: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="'--set'")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def ask(server: str, request: Callable[[FencelogClient], Awaitable[T]]) -> T:
    """Return the result of a request to the service."""
    from fencelog.api.client import FencelogClient
    from fencelog.api.processes.lifecycle import run_on_uvloop

    async def main() -> T:
        async with FencelogClient(server) as client:
            return await request(client)

    return run_on_uvloop(main())
