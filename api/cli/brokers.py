"""``fencelog brokers``: the loads of brokers, and moving partitions."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer

from fencelog.api.console import (
    EXIT_ERROR,
    SERVER,
    JsonOption,
    ServerOption,
    complain,
    print_table,
    topic_name,
)

_KIB = 1024

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The broker, as it is registered.")]


def add_to(app: typer.Typer) -> None:
    brokers = typer.Typer(rich_markup_mode=None, help="Look at brokers, and move what they own.")
    for command in (show, drain, undrain, unload):
        brokers.command()(command)
    brokers.command("list")(list_brokers)
    app.add_typer(brokers, name="brokers")


def list_brokers(server: ServerOption = SERVER, as_json: JsonOption = False) -> None:
    """List the brokers that are registered, with their loads."""
    found = _ask(server, "GET", "/v1/admin/brokers")["brokers"]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    from rich.table import Table

    table = Table("broker", "url", box=None, pad_edge=False)
    for column in ("partitions", "in KiB/s", "out KiB/s", "pending KiB"):
        table.add_column(column, justify="right")
    table.add_column("")
    for broker in found:
        table.add_row(
            broker["broker_id"],
            broker["url"],
            "?" if broker["partitions"] is None else str(broker["partitions"]),
            *(_kib(broker[of]) for of in ("in_bytes_per_s", "out_bytes_per_s", "pending_bytes")),
            "draining" if broker["draining"] else "",
        )
    print_table(table)


def show(
    broker: IdArgument,
    limit: Annotated[int, typer.Option(min=0, max=10_000, help="Partitions to show.")] = 100,
    server: ServerOption = SERVER,
) -> None:
    """Show a broker and the partitions it has open, busy ones first, as JSON."""
    answer = _ask(server, "GET", f"{_path(broker)}?limit={limit}")
    typer.echo(json.dumps(answer, indent=2))


def drain(
    broker: IdArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Though no other broker takes partitions.")
    ] = False,
    server: ServerOption = SERVER,
) -> None:
    """Have a broker transfer all its partitions to the others.

    It takes none until `undrain`, or until it is started again. Returns when that is done, or the
    broker's --drain-seconds are over: then exit code 1, and another `drain` continues.
    """
    path = f"{_path(broker)}:drain{'?force=true' * force}"
    answer = _ask(server, "POST", path, timeout_s=math.inf)  # the broker knows how long it takes
    still_open = answer["still_open"]
    if not still_open:
        typer.echo(f"{broker} is drained")
    if answer["not_taken"]:
        typer.echo(f"{answer['not_taken']} partitions wait for their next request")
    if still_open:
        complain(f"{broker} is not drained: {still_open} partitions are still there; try again")
        raise typer.Exit(EXIT_ERROR)


def undrain(broker: IdArgument, server: ServerOption = SERVER) -> None:
    """Have a drained broker take partitions again."""
    _ask(server, "POST", f"{_path(broker)}:undrain")
    typer.echo(f"{broker} takes partitions")


def unload(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="NAMESPACE/NAME, or NAME.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION")] = 0,
    to: Annotated[
        str | None, typer.Option(metavar="ID", help="The broker to have it; else the least loaded.")
    ] = None,
    server: ServerOption = SERVER,
) -> None:
    """Move a partition from the broker that owns it to another one."""
    name = topic_name(topic)
    body = {} if to is None else {"to": to}
    answer = _ask(server, "POST", f"/v1/topics/{name}/partitions/{partition}:unload", json=body)
    taker = answer["broker_id"]
    where = "waits for its next request" if taker is None else f"is at {taker} now"
    typer.echo(f"partition {partition} of {name} {where}")


def _kib(size: int | None) -> str:
    return "?" if size is None else f"{size / _KIB:,.0f}"


def _path(broker: str) -> str:
    from fencelog.api.routing.peers import broker_path

    return broker_path(broker)


def _ask(
    server: str, method: str, path: str, *, timeout_s: float = 60, **options: Any
) -> dict[str, Any]:
    from fencelog.api.client.http import ServiceHttp, json_object
    from fencelog.api.processes.lifecycle import run_on_uvloop

    async def main() -> dict[str, Any]:
        service = ServiceHttp([url.strip() for url in server.split(",")], timeout_s=timeout_s)
        try:
            return json_object(await service.request(method, path, **options))
        finally:
            await service.close()

    return run_on_uvloop(main())
