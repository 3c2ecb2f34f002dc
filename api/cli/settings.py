"""``--set NAME=VALUE`` of the commands that change settings, and the output of settings."""

from __future__ import annotations

import json
import math
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


def parse_settings(given: Sequence[str] | None, **options: Any) -> dict[str, Any]:
    """Parse settings. Values are numbers, true, false and null, and otherwise text. ``options``:
    those that have options of their own, None where that is not given. Raises BadParameter, also
    for a setting that is given twice."""
    settings = {name: value for name, value in options.items() if value is not None}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise _refused(f"{text!r} is not NAME=VALUE")
        if name in settings:
            raise _refused(f"{name} is given twice")
        try:
            settings[name] = json.loads(value, parse_float=_finite, parse_constant=_finite)
        except (ValueError, RecursionError):
            settings[name] = value
    return settings


def _finite(text: str) -> float:
    """Return a number of JSON. Raises BadParameter for what JSON has none for."""
    if not math.isfinite(number := float(text)):
        raise _refused(f"{text} is no number that a setting can be")
    return number


def _refused(why: str) -> typer.BadParameter:
    return typer.BadParameter(why, param_hint="'--set'")


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
