"""``fencelog topic``: create, list, show, delete."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fencelog.api.cli_common import SERVER, ServerOption, topic_name

if TYPE_CHECKING:
    from fencelog.api.client import FencelogClient

T = TypeVar("T")

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="NAMESPACE/NAME; NAME alone is default/NAME.")
]


def add_to(app: typer.Typer) -> None:
    topic = typer.Typer(rich_markup_mode=None, help="Create, list, show and delete topics.")
    for command in (create, show, delete, compact):
        topic.command()(command)
    topic.command("list")(list_topics)
    app.add_typer(topic, name="topic")


def create(
    topic: TopicArgument,
    partitions: Annotated[int | None, typer.Option(min=1, help="Logs of the topic.")] = None,
    ensemble: Annotated[int | None, typer.Option(min=1, help="Bookies of a ledger.")] = None,
    write_quorum: Annotated[int | None, typer.Option(min=1, help="Copies of an entry.")] = None,
    ack_quorum: Annotated[int | None, typer.Option(min=1, help="Copies to wait for.")] = None,
    server: ServerOption = SERVER,
) -> None:
    """Create a topic; that it is there with the same configuration is no error."""
    name = topic_name(topic)
    _ask(
        server,
        lambda client: client.create_topic(
            name,
            partitions=partitions,
            ensemble_size=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
        ),
    )
    typer.echo(f"topic {name} is there")


def list_topics(
    namespace: Annotated[str | None, typer.Argument(help="Of this namespace only.")] = None,
    prefix: Annotated[str, typer.Option(help="Whose names begin with this.")] = "",
    server: ServerOption = SERVER,
) -> None:
    """List topics, one a line."""
    for topic in _ask(server, lambda client: client.topics(namespace, prefix)):
        typer.echo(f"{topic['namespace']}/{topic['topic']}")


def show(topic: TopicArgument, server: ServerOption = SERVER) -> None:
    """Show a topic and the owners of its partitions, as JSON."""
    name = topic_name(topic)

    async def ask(client: FencelogClient) -> dict[str, object]:
        return await client.topic(name) | {"owners": await client.owners(name)}

    typer.echo(json.dumps(_ask(server, ask), indent=2))


def delete(topic: TopicArgument, server: ServerOption = SERVER) -> None:
    """Delete a topic and everything in it."""
    name = topic_name(topic)
    _ask(server, lambda client: client.delete_topic(name))
    typer.echo(f"topic {name} is deleted")


def compact(
    topic: TopicArgument,
    partition: Annotated[int | None, typer.Option(min=0, help="By default all.")] = None,
    server: ServerOption = SERVER,
) -> None:
    """Bring the compacted view up to date now, and wait for it."""
    name = topic_name(topic)

    async def ask(client: FencelogClient) -> list[dict[str, object]]:
        from fencelog.api.compact import compact_now

        return await compact_now(client, name, partition)

    for state in _ask(server, ask):
        typer.echo(
            f"partition {state['partition']}: {state['messages']} messages stand for all "
            f"below offset {state['end_offset']}"
        )


def _ask(server: str, request: Callable[[FencelogClient], Awaitable[T]]) -> T:
    from fencelog.api.client import FencelogClient
    from fencelog.api.lifecycle import run_on_uvloop

    async def main() -> T:
        async with FencelogClient(server) as client:
            return await request(client)

    return run_on_uvloop(main())
