"""``fencelog topic update|stats|internal|trim|terminate|sweep``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.cli.settings import SetOption, ask, parse_settings, show_json
from fencelog.api.console import (
    SERVER,
    AnyPartitionOption,
    ServerOption,
    TopicArgument,
    YesOption,
    ask_first,
    print_table,
    topic_name,
)

if TYPE_CHECKING:
    from fencelog.api.client import FencelogClient

PartitionArgument = Annotated[int, typer.Argument(metavar="PARTITION", min=0)]

_STATS_AT_ONCE = 16


def add_to(topic: typer.Typer) -> None:
    for command in (update, stats, internal, trim, terminate, sweep):
        topic.command()(command)


def update(
    topic: TopicArgument,
    settings: SetOption = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Never fewer than now.")] = None,
    server: ServerOption = SERVER,
) -> None:
    """Change settings of a topic, or raise the number of its partitions."""
    changes = parse_settings(settings, partitions=partitions)
    name = topic_name(topic)
    changed = ask(server, lambda client: client.update_topic(name, changes))
    show_json({"partitions": changed["partitions"], "settings": changed["settings"]})


def stats(topic: TopicArgument, server: ServerOption = SERVER) -> None:
    """Show each partition: owner, offsets, size, and what subscriptions have before them."""
    name = topic_name(topic)

    async def internals(client: FencelogClient) -> list[dict[str, Any]]:
        from fencelog.api.client.tasks import map_concurrently

        partitions = (await client.topic(name))["partitions"]
        return await map_concurrently(
            lambda partition: client.internals(name, partition),
            range(partitions),
            limit=_STATS_AT_ONCE,
        )

    from rich.table import Table

    table = Table("partition", "owner", box=None, pad_edge=False)
    for column in ("earliest", "tail", "bytes", "ledgers", "pending"):
        table.add_column(column, justify="right")
    table.add_column("subscriptions")
    for found in ask(server, internals):
        table.add_row(
            str(found["partition"]),
            found["owner"],
            str(found["earliest_offset"]),
            f"{found['tail_offset']}{' (end)' if found['terminated'] else ''}",
            str(found["size"]),
            str(len(found["segments"])),
            str(found["pending_bytes"]),
            ", ".join(
                f"{subscription} {each['backlog_messages']}"
                for subscription, each in sorted(found["subscriptions"].items())
            ),
        )
    print_table(table)


def internal(
    topic: TopicArgument, partition: PartitionArgument, server: ServerOption = SERVER
) -> None:
    """Show what a partition's log looks like inside, as JSON."""
    name = topic_name(topic)
    show_json(ask(server, lambda client: client.internals(name, partition)))


def trim(
    topic: TopicArgument,
    partition: PartitionArgument,
    before: Annotated[int, typer.Option(min=0, help="The first offset to keep.")],
    yes: YesOption = False,
    server: ServerOption = SERVER,
) -> None:
    """Forget the oldest messages of a partition."""
    name = topic_name(topic)
    ask_first(f"All below offset {before} of partition {partition} of {name} will be gone.", yes)
    trimmed = ask(server, lambda client: client.trim(name, partition, before))
    held = ": a subscription has not acknowledged what comes then" * trimmed["held_back"]
    typer.echo(f"partition {partition} begins at offset {trimmed['earliest_offset']}{held}")


def terminate(
    topic: TopicArgument,
    partition: AnyPartitionOption = None,
    yes: YesOption = False,
    server: ServerOption = SERVER,
) -> None:
    """End a topic for good: nothing is appended any more, all of it can be read."""
    name = topic_name(topic)
    which = name if partition is None else f"partition {partition} of {name}"
    ask_first(f"Nothing can be appended to {which} any more, ever.", yes)
    ended = ask(server, lambda client: client.terminate(name, partition))
    for each in ended.get("partitions", [ended]):
        typer.echo(f"partition {each['partition']} ends at offset {each['end_offset']}")


def sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    server: ServerOption = SERVER,
) -> None:
    """Remove ledgers and topics that crashes have left behind; brokers do it every hour."""
    found = ask(server, lambda client: client.sweep(dry_run=dry_run))
    show_json(found)
    if found["failed"]:
        raise typer.Exit(1)
