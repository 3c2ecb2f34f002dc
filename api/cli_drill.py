"""``fencelog drill``, ``demo`` and ``bench``: the service shown, tried and measured."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fencelog.api.drill_report import Report


def add_to(app: typer.Typer) -> None:
    drill = typer.Typer(
        rich_markup_mode=None,
        help="Break a cluster, account for every message.",
    )
    drill.callback()(lambda: None)
    drill.command("kill-broker")(kill_broker)
    drill.command("kill-bookie")(kill_bookie)
    drill.command("pause-bookie")(pause_bookie)
    drill.command("full-disk")(full_disk)
    app.add_typer(drill, name="drill")
    app.command()(demo)
    app.command(
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(bench)


KeepOption = Annotated[bool, typer.Option("--keep", help="Keep the data and the logs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def kill_broker(
    seconds: Annotated[float, typer.Option(min=1, help="How long to append.")] = 15.0,
    messages: Annotated[
        int | None, typer.Option(min=1, help="End after so many acknowledged ones.")
    ] = None,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Kill the owner of a partition with -9 under load; lose and double nothing."""
    from fencelog.api.drill_kill_broker import KillBrokerConfig, kill_broker_drill

    _run(kill_broker_drill(KillBrokerConfig(seconds, messages, keep)), as_json=as_json)


def kill_bookie(
    times: Annotated[int, typer.Option(min=1, help="How many kills.")] = 50,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Kill bookies with -9 under load, again and again; each keeps what it acknowledged."""
    from fencelog.api.drill_bookie_kill import KillBookieConfig, kill_bookie_drill

    _run(kill_bookie_drill(KillBookieConfig(times, keep)), as_json=as_json)


def pause_bookie(
    times: Annotated[int, typer.Option(min=1, help="How many pauses.")] = 3,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop bookies for longer than their session lasts, and let them go on."""
    from fencelog.api.drill_bookie_pause import PauseBookieConfig, pause_bookie_drill

    _run(pause_bookie_drill(PauseBookieConfig(times, keep)), as_json=as_json)


def full_disk(
    size_mib: Annotated[
        int, typer.Option("--size-mib", min=1024, help="Of the bookie's disk, a tmpfs.")
    ] = 2048,
    keep: KeepOption = False,
    as_json: JsonOption = False,
    inside: Annotated[bool, typer.Option("--inside", hidden=True)] = False,
) -> None:
    """Fill the disk of a bookie under load, then make room; lose nothing.

    The disk is a tmpfs in a mount namespace of the drill's own (Linux)."""
    from fencelog.api.drill_disk_full import FullDiskConfig, full_disk_drill
    from fencelog.api.drill_disk_namespace import enter_namespace

    if not inside:
        enter_namespace(["drill", "full-disk", "--inside", *_arguments(size_mib, keep, as_json)])
    _run(full_disk_drill(FullDiskConfig(size_mib, keep)), as_json=as_json)


def _arguments(size_mib: int, keep: bool, as_json: bool) -> list[str]:
    flags = ["--keep"] * keep + ["--json"] * as_json
    return ["--size-mib", str(size_mib), *flags]


def _run(drill: Coroutine[Any, Any, Report], *, as_json: bool) -> None:
    """Run a drill and print its report; exit code 1 unless it is clean."""
    from fencelog.api.drill_report import print_table
    from fencelog.api.lifecycle import run_on_uvloop

    report = run_on_uvloop(drill)
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
