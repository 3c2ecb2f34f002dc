"""``fencelog topic``: create, look at, change, trim, end and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencelog.api.cli import topic_admin as cli_topic_admin
from fencelog.api.cli.settings import SetOption, ask, parse_settings, show_json
from fencelog.api.console import (
    SERVER,
    AnyPartitionOption,
    ServerOption,
    TopicArgument,
    YesOption,
    ask_first,
    told,
    topic_name,
)

if TYPE_CHECKING:
    from fencelog.api.client import FencelogClient


def add_to(app: typer.Typer) -> None:
    topic = typer.Typer(rich_markup_mode=None, help="Create, look at, change and delete topics.")
    for command in (create, show, delete, compact):
        topic.command()(command)
    topic.command("list")(list_topics)
    cli_topic_admin.add_to(topic)
    app.add_typer(topic, name="topic")


def create(
    topic: TopicArgument,
    partitions: Annotated[int | None, typer.Option(min=1, help="Logs of the topic.")] = None,
    ensemble: Annotated[int | None, typer.Option(min=1, help="Bookies of a ledger.")] = None,
    write_quorum: Annotated[int | None, typer.Option(min=1, help="Copies of an entry.")] = None,
    ack_quorum: Annotated[int | None, typer.Option(min=1, help="Copies to wait for.")] = None,
    settings: SetOption = None,
    allow_missing_bookies: Annotated[
        bool,
        typer.Option("--allow-missing-bookies", help="Though appends need more than there are."),
    ] = False,
    server: ServerOption = SERVER,
) -> None:
    """Create a topic; that it is there with the same settings is no error."""
    name = topic_name(topic)
    config = parse_settings(
        settings,
        partitions=partitions,
        ensemble_size=ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
    )
    for other in ("allow_missing_bookies", "self", "topic"):  # what the request has beside them
        if other in config:
            raise typer.BadParameter(f"{other} is no setting", param_hint="'--set'")
    created = ask(
        server,
        lambda client: client.create_topic(
            name, allow_missing_bookies=allow_missing_bookies, **config
        ),
    )
    typer.echo(f"topic {name} {told(created['created'])}")


def list_topics(
    namespace: Annotated[str | None, typer.Argument(help="Of this namespace only.")] = None,
    prefix: Annotated[str, typer.Option(help="Whose names begin with this.")] = "",
    server: ServerOption = SERVER,
) -> None:
    """List topics, one a line."""
    for topic in ask(server, lambda client: client.topics(namespace, prefix)):
        typer.echo(f"{topic['namespace']}/{topic['topic']}")


def show(topic: TopicArgument, server: ServerOption = SERVER) -> None:
    """Show a topic and the owners of its partitions, as JSON."""
    name = topic_name(topic)

    async def describe(client: FencelogClient) -> dict[str, object]:
        return await client.topic(name) | {"owners": await client.owners(name)}

    show_json(ask(server, describe))


def delete(topic: TopicArgument, yes: YesOption = False, server: ServerOption = SERVER) -> None:
    """Delete a topic and everything in it."""
    name = topic_name(topic)
    ask_first(f"Topic {name} and all its messages will be gone.", yes)
    ask(server, lambda client: client.delete_topic(name))
    typer.echo(f"topic {name} is deleted")


def compact(
    topic: TopicArgument,
    partition: AnyPartitionOption = None,
    server: ServerOption = SERVER,
) -> None:
    """Bring the compacted view up to date now, and wait for it."""
    name = topic_name(topic)

    async def compacted(client: FencelogClient) -> list[dict[str, object]]:
        from fencelog.api.streams.compact import compact_now

        return await compact_now(client, name, partition)

    for state in ask(server, compacted):
        typer.echo(
            f"partition {state['partition']}: {state['messages']} messages stand for all "
            f"below offset {state['end_offset']}"
        )
