"""``fencelog drill``, ``demo`` and ``bench``: the service shown, tried and measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    drill = typer.Typer(
        rich_markup_mode=None,
        help="Break a cluster, account for every message.",
    )
    drill.callback()(lambda: None)
    drill.command("kill-broker")(kill_broker)
    app.add_typer(drill, name="drill")
    app.command()(demo)
    app.command(
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(bench)


def kill_broker(
    seconds: Annotated[float, typer.Option(min=1, help="How long to append.")] = 15.0,
    messages: Annotated[
        int | None, typer.Option(min=1, help="End after so many acknowledged ones.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data and the logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Kill the owner of a partition with -9 under load; lose and double nothing."""
    from fencelog.api.drill_kill_broker import KillBrokerConfig, kill_broker_drill, print_table
    from fencelog.api.lifecycle import run_on_uvloop

    report = run_on_uvloop(kill_broker_drill(KillBrokerConfig(seconds, messages, keep)))
    if as_json:
        typer.echo(json.dumps(report.as_json()))
    else:
        print_table(report)
    if not report.is_clean:
        raise typer.Exit(1)


def demo(
    logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Text files; by default this machine's own.")
    ] = None,
    spark: Annotated[bool, typer.Option(help="Let Spark count words (needs Java).")] = True,
) -> None:
    """Run a cluster on real input.

    Append files, kill a broker meanwhile, read back, compare, count words with Spark."""
    from fencelog.api.demo import run_demo
    from fencelog.api.lifecycle import run_on_uvloop

    if not run_on_uvloop(run_demo(logs, spark=spark)):
        raise typer.Exit(1)


def bench(context: typer.Context) -> None:
    """Measure it beside the machine's own limits."""
    from fencelog.api.bench import app

    app(context.args, prog_name="fencelog bench", standalone_mode=False)
