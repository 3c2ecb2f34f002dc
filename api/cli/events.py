"""``fencelog events``: the timeline of a cluster."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.console import (
    SERVER,
    FollowOption,
    JsonOption,
    ServerOption,
    ending_with_its_reader,
    topic_name,
)

if TYPE_CHECKING:
    from fencelog.api.client import FencelogClient

PATH = "/v1/admin/events"
PAGE = 1000
"""The events of one request of ``--since``."""

WAIT_S = 10
"""The time of one long poll of ``--follow``."""

_AGE = re.compile(r"(\d+)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Json = dict[str, Any]


def add_to(app: typer.Typer) -> None:
    app.command()(events)


def events(
    follow: FollowOption = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="AGE|TIME", help="All since then: 90s, 15m, 6h, 7d, ISO 8601, or µs since 1970."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="AGE|TIME", help="None from then on; as --since.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="takeover, roll, drain, …. Again.")
    ] = None,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Of this topic alone.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=PAGE, help="The newest so many, without --since.")
    ] = 100,
    as_json: JsonOption = False,
    server: ServerOption = SERVER,
) -> None:
    """Show what has happened in a cluster: takeovers, fences, rolls, drains, ….

    One line for each event: when, which kind, what it is about. With --json one object for each
    line."""
    from fencelog.api.cli.settings import ask

    query: Json = {}
    if kind:
        query["kind"] = ",".join(kind)
    if topic is not None:
        query["topic"] = topic_name(topic)
    if until is not None:
        if follow:
            raise typer.BadParameter("what is followed has no end", param_hint="--until")
        query["until"] = moment_us(until, "--until")
    if since is None:
        query["limit"] = limit
    else:
        query |= {"since": moment_us(since, "--since"), "after": 0, "limit": PAGE}
    with ending_with_its_reader():
        ask(server, lambda client: _show(client, query, follow=follow, as_json=as_json))


async def _show(client: FencelogClient, query: Json, *, follow: bool, as_json: bool) -> None:
    """Print a page; then what follows it, until there is no more, or for ever.

    That there is no service has to be said at once; later requests are repeated through an outage,
    those that follow one of any length."""
    from fencelog.api.client.retry import RETRY_S, retry_idempotent

    page = await _page(client, query)
    _print(page, as_json=as_json)
    if "after" not in query and not follow:
        return
    while True:
        asked = query | {"limit": PAGE, "after": page["newer"]}
        request = partial(_page, client, asked | ({"wait": WAIT_S} if follow else {}))
        page = await retry_idempotent(request, timeout_s=None if follow else RETRY_S)
        _print(page, as_json=as_json)
        if not follow and page["newer"] == asked["after"]:
            return


async def _page(client: FencelogClient, query: Json) -> Json:
    wait_s = float(query.get("wait", 0))
    return await client.get_object(PATH, params=query, extra_wait_s=wait_s)


def _print(page: Json, *, as_json: bool) -> None:
    for event in page["events"]:
        typer.echo(json.dumps(event) if as_json else line(event))


def line(event: Json) -> str:
    """Return an event for a person: its time in UTC, its kind, what has happened."""
    when = datetime.fromtimestamp(event["time_us"] / 1_000_000, UTC)
    shown = when.isoformat(" ", "milliseconds").removesuffix("+00:00")
    return f"{shown}Z  {event['kind']:<17}  {event['summary']}"


def moment_us(text: str, option: str) -> int:
    """Return the µs since 1970 UTC of an age, or of a time as users write it. Raises
    FencelogError(BAD_REQUEST), which names the option."""
    from fencelog.api.cli.read import time_us
    from fencelog.ledgers.host import SystemHost

    if (age := _AGE.fullmatch(text)) is not None:
        seconds = int(age[1]) * _SECONDS[age[2]]
        return max(0, SystemHost().now_us() - seconds * 1_000_000)
    return time_us(text, option)
