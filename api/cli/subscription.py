"""``fencelog subscription``: create, list, show, delete, pull, ack, seek, replay."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fencelog.api.cli.read import Output
from fencelog.api.console import (
    EXIT_ERROR,
    SERVER,
    FollowOption,
    LimitOption,
    ServerOption,
    TopicArgument,
    YesOption,
    ask_first,
    bytes_out,
    ending_with_its_reader,
    is_number,
    told,
    topic_name,
)

if TYPE_CHECKING:
    from fencelog.api.client import FencelogClient

T = TypeVar("T")

LeaseOption = Annotated[int | None, typer.Option(min=1, help="Time to acknowledge.")]
NameArgument = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Its name.")]


class Type(Enum):
    """The subscription types: see HTTP.md."""

    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"
    KEY_SHARED = "key_shared"


def add_to(app: typer.Typer) -> None:
    subscription = typer.Typer(
        rich_markup_mode=None, help="Create, use, move and delete subscriptions."
    )
    for command in (create, show, delete, pull, ack, seek, replay):
        subscription.command()(command)
    subscription.command("list")(list_subscriptions)
    app.add_typer(subscription, name="subscription")


def create(
    topic: TopicArgument,
    subscription: NameArgument,
    kind: Annotated[Type | None, typer.Option("--type", help="Default: shared.")] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="earliest|latest|OFFSET", help="Default: latest."),
    ] = None,
    lease_ms: LeaseOption = None,
    max_deliveries: Annotated[
        int | None, typer.Option(min=1, help="Then a message goes to the dead letters.")
    ] = None,
    dead_letter_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Default: TOPIC-SUBSCRIPTION-dead.")
    ] = None,
    max_outstanding: Annotated[int | None, typer.Option(min=1, help="Leased at a time.")] = None,
    server: ServerOption = SERVER,
) -> None:
    """Create a subscription; that it is there with the same settings is no error."""
    name = topic_name(topic)
    created = _ask(
        server,
        lambda client: client.create_subscription(
            name,
            subscription,
            type=None if kind is None else kind.value,
            start={"offset": int(start)} if start and is_number(start) else start,
            lease_ms=lease_ms,
            max_deliveries=max_deliveries,
            dead_letter_topic=topic_name(dead_letter_topic) if dead_letter_topic else None,
            max_outstanding=max_outstanding,
        ),
    )
    typer.echo(f"subscription {subscription} of {name} {told(created['created'])}")


def list_subscriptions(topic: TopicArgument, server: ServerOption = SERVER) -> None:
    """List a topic's subscriptions, one a line."""
    name = topic_name(topic)
    for found in _ask(server, lambda client: client.subscriptions(name)):
        typer.echo(found["subscription"])


def show(topic: TopicArgument, subscription: NameArgument, server: ServerOption = SERVER) -> None:
    """Show a subscription and how far it is in each partition, as JSON."""
    name = topic_name(topic)

    async def ask(client: FencelogClient) -> dict[str, Any]:
        settings = await client.subscription(name, subscription)
        return settings | {"partitions": await client.subscription_stats(name, subscription)}

    typer.echo(json.dumps(_ask(server, ask), indent=2))


def delete(
    topic: TopicArgument,
    subscription: NameArgument,
    yes: YesOption = False,
    server: ServerOption = SERVER,
) -> None:
    """Delete a subscription and its place in the topic."""
    name = topic_name(topic)
    ask_first(f"Subscription {subscription} of {name} and its place will be gone.", yes)
    _ask(server, lambda client: client.delete_subscription(name, subscription))
    typer.echo(f"subscription {subscription} of {name} is deleted")


def pull(
    topic: TopicArgument,
    subscription: NameArgument,
    acknowledge: Annotated[
        bool, typer.Option("--ack", help="Acknowledge messages once they are printed.")
    ] = False,
    follow: FollowOption = False,
    limit: LimitOption = None,
    consumer: Annotated[str, typer.Option(help="Who pulls, where that matters.")] = "",
    lease_ms: LeaseOption = None,
    output: Annotated[
        Output, typer.Option(help="Bytes and a newline, or JSON lines with ack ids.")
    ] = Output.TEXT,
    server: ServerOption = SERVER,
) -> None:
    """Print messages that are not acknowledged yet.

    Without --ack they stay leased, and are delivered again when their leases end.
    """
    from fencelog.api.processes.lifecycle import run_on_uvloop
    from fencelog.api.streams.pull_lines import PullOptions, pull_lines

    options = PullOptions(
        topic=topic_name(topic),
        subscription=subscription,
        server=server,
        acknowledge=acknowledge,
        follow=follow,
        limit=limit,
        consumer=consumer,
        lease_ms=lease_ms,
        as_json=output is Output.JSON,
    )
    with ending_with_its_reader():
        run_on_uvloop(pull_lines(options, bytes_out()))


def ack(
    topic: TopicArgument,
    subscription: NameArgument,
    ack_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ACK_ID…", help="Of messages that were pulled.")
    ] = None,
    through: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACK_ID", help="Everything up to this message; again for each partition."
        ),
    ] = None,
    server: ServerOption = SERVER,
) -> None:
    """Acknowledge messages; they are never delivered again.

    Exit code 1 where an ack id is stale: a seek has moved the subscription since, and the message
    is not acknowledged by it."""
    name = topic_name(topic)

    async def ask(client: FencelogClient) -> list[str]:
        stale = await client.ack_through(name, subscription, through) if through else []
        return stale + (await client.ack(name, subscription, ack_ids) if ack_ids else [])

    if not ack_ids and not through:
        raise _bad("name messages to acknowledge, by their ack ids or with --through")
    stale = _ask(server, ask)
    for each in stale:
        typer.echo(f"{each} is stale")
    if stale:
        given = {*(ack_ids or ()), *(through or ())}
        typer.echo(f"acknowledged {len(given.difference(stale))} of {len(given)}")
        raise typer.Exit(EXIT_ERROR)
    typer.echo("acknowledged")


def seek(
    topic: TopicArgument,
    subscription: NameArgument,
    to: Annotated[str | None, typer.Option(metavar="earliest|latest", help="An end.")] = None,
    time_us: Annotated[
        int | None, typer.Option("--time", min=0, help="What was published then; µs since 1970.")
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION:OFFSET", help="A place; again for each partition."),
    ] = None,
    server: ServerOption = SERVER,
) -> None:
    """Move a subscription to another place in the topic."""
    name = topic_name(topic)
    offsets = _places(offset, "--offset") or None
    moved = _ask(
        server,
        lambda client: client.seek(name, subscription, to=to, time_us=time_us, offsets=offsets),
    )
    for partition, place in sorted(moved.items()):
        typer.echo(f"partition {partition} goes on at offset {place}")


def replay(
    topic: TopicArgument,
    subscription: NameArgument,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    server: ServerOption = SERVER,
) -> None:
    """Send dead letters back to where they came from."""
    name = topic_name(topic)
    count = _ask(server, lambda client: client.replay_dead_letters(name, subscription, limit=limit))
    typer.echo(f"replayed {count} dead letters")


def _places(texts: list[str] | None, option: str) -> dict[int, int]:
    """Return the offset of each partition from ``PARTITION:OFFSET``. Raises
    FencelogError(BAD_REQUEST)."""
    places = {}
    for text in texts or ():
        partition, _, offset = text.partition(":")
        if not (is_number(partition) and is_number(offset)):
            raise _bad(f"{option} is PARTITION:OFFSET, not {text!r}")
        if int(partition) in places:
            raise _bad(f"{option} names partition {int(partition)} twice")
        places[int(partition)] = int(offset)
    return places


def _bad(detail: str) -> Exception:
    from fencelog.ledgers.errors import ErrorCode, FencelogError

    return FencelogError(ErrorCode.BAD_REQUEST, detail)


def _ask(server: str, request: Callable[[FencelogClient], Awaitable[T]]) -> T:
    from fencelog.api.client import FencelogClient
    from fencelog.api.processes.lifecycle import run_on_uvloop

    async def main() -> T:
        async with FencelogClient(server) as client:
            return await request(client)

    return run_on_uvloop(main())
