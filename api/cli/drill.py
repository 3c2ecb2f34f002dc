"""``fencelog drill``, ``demo`` and ``bench``: the service shown, tried and measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.console import JsonOption, SessionOption

if TYPE_CHECKING:
    from fencelog.api.drills.harness.report import Report


def add_to(app: typer.Typer) -> None:
    drill = typer.Typer(
        rich_markup_mode=None,
        help="Break a cluster, account for every message.",
    )
    drill.callback()(lambda: None)
    commands: tuple[Callable[..., None], ...] = (
        *(kill_broker, pause_broker, partition, drain, rolling_restart, zookeeper_restart),
        *(kill_bookie, pause_bookie, lose_bookie_disk, full_disk, full_standalone),
        *(lose_bookie, two_lost, lose_zone, stuck_repair, decommission, add_bookies),
        *(load, unload),
    )
    for command in commands:
        drill.command()(command)
    drill.command("all")(run_all)
    app.add_typer(drill, name="drill")
    app.command()(demo)
    app.command(
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(bench)


KeepOption = Annotated[bool, typer.Option("--keep", help="Keep the data and the logs.")]
InsideOption = Annotated[bool, typer.Option("--inside", hidden=True)]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL,...", help="Brokers of a cluster that is there; a topic is made and deleted."
    ),
]
SecondsOption = Annotated[float, typer.Option(min=1, help="How long to append.")]
TimesOption = Annotated[int, typer.Option(min=1, help="How often.")]


def kill_broker(
    seconds: SecondsOption = 15.0,
    messages: Annotated[
        int | None, typer.Option(min=1, help="End after so many acknowledged ones.")
    ] = None,
    times: TimesOption = 1,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Kill the owner of a partition with -9 under load; lose and double nothing."""
    from fencelog.api.drills.broker.kill import KillBrokerConfig, kill_broker_drill

    _run(kill_broker_drill(KillBrokerConfig(seconds, messages, times, keep)), as_json=as_json)


def pause_broker(
    times: TimesOption = 1,
    session_ms: SessionOption = 6000,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the owner for longer than its session, and continue it.

    Another broker takes over; the stopped one acknowledges nothing of what came later.
    """
    from fencelog.api.drills.broker.pause import PauseBrokerConfig, pause_broker_drill

    _run(pause_broker_drill(PauseBrokerConfig(times, session_ms, keep)), as_json=as_json)


def partition(
    session_ms: SessionOption = 6000,
    keep: KeepOption = False,
    as_json: JsonOption = False,
    inside: InsideOption = False,
) -> None:
    """Cut the owner off from ZooKeeper, from bookies, from clients; then heal.

    The network is one of the drill's own, with a namespace for each broker (Linux)."""
    from fencelog.api.drills.broker.partition import PartitionConfig, partition_drill
    from fencelog.api.drills.harness.namespace import enter_namespace

    if not inside:
        options = ["--session-ms", str(session_ms), *_flags(keep, as_json)]
        enter_namespace(["drill", "partition", "--inside", *options], network=True)
    _run(partition_drill(PartitionConfig(session_ms, keep)), as_json=as_json)


def drain(times: TimesOption = 2, keep: KeepOption = False, as_json: JsonOption = False) -> None:
    """Have the owner transfer its partition under load, by SIGTERM and over HTTP in turn."""
    from fencelog.api.drills.broker.drain import DrainConfig, drain_drill

    _run(drain_drill(DrainConfig(times, keep)), as_json=as_json)


def rolling_restart(
    bookies: Annotated[
        bool, typer.Option("--bookies", help="Bookies alone; none is taken for lost.")
    ] = False,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Restart every bookie and broker under load, one after the other."""
    if bookies:
        from fencelog.api.drills.bookie.heal import restart_bookies_drill

        _run(restart_bookies_drill(keep=keep), as_json=as_json)
        return
    from fencelog.api.drills.broker.rolling_restart import (
        RollingRestartConfig,
        rolling_restart_drill,
    )

    _run(rolling_restart_drill(RollingRestartConfig(keep=keep)), as_json=as_json)


def zookeeper_restart(
    times: TimesOption = 1,
    down: Annotated[float, typer.Option(min=0, help="Seconds that it is away.")] = 8.0,
    session_ms: SessionOption = 6000,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Kill ZooKeeper with -9 under load, and start it again; appends go on meanwhile."""
    from fencelog.api.drills.broker.zookeeper import ZooKeeperRestartConfig, zookeeper_restart_drill

    config = ZooKeeperRestartConfig(times, down, session_ms, keep)
    _run(zookeeper_restart_drill(config), as_json=as_json)


def kill_bookie(
    times: TimesOption = 50,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Kill bookies with -9 under load, again and again; each keeps what it acknowledged."""
    from fencelog.api.drills.bookie.kill import KillBookieConfig, kill_bookie_drill

    _run(kill_bookie_drill(KillBookieConfig(times, keep)), as_json=as_json)


def pause_bookie(
    times: TimesOption = 3,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop bookies for longer than their session lasts, and continue them."""
    from fencelog.api.drills.bookie.pause import PauseBookieConfig, pause_bookie_drill

    _run(pause_bookie_drill(PauseBookieConfig(times, keep)), as_json=as_json)


def lose_bookie_disk(
    times: TimesOption = 1,
    session_ms: SessionOption = 6000,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Kill a bookie under load and empty its disk; it copies everything from the others."""
    from fencelog.api.drills.bookie.lose_disk import LoseDiskConfig, lose_disk_drill

    _run(lose_disk_drill(LoseDiskConfig(times, session_ms, keep)), as_json=as_json)


def lose_bookie(keep: KeepOption = False, as_json: JsonOption = False) -> None:
    """Kill a bookie for good under load; its copies are made on the others."""
    from fencelog.api.drills.bookie.heal import lose_bookies_drill

    _run(lose_bookies_drill("lose-bookie", count=1, keep=keep), as_json=as_json)


def two_lost(keep: KeepOption = False, as_json: JsonOption = False) -> None:
    """Kill two of five bookies for good, one after the other, under load."""
    from fencelog.api.drills.bookie.heal import lose_bookies_drill

    _run(lose_bookies_drill("two-lost", count=2, keep=keep), as_json=as_json)


def lose_zone(keep: KeepOption = False, as_json: JsonOption = False) -> None:
    """Kill all bookies of one of three zones under load; heal without it, then let it return."""
    from fencelog.api.drills.bookie.zone import lose_zone_drill

    _run(lose_zone_drill(keep=keep), as_json=as_json)


def stuck_repair(keep: KeepOption = False, as_json: JsonOption = False) -> None:
    """Kill bookies until repairs wait, for want of bookies and of entries; then let them go on."""
    from fencelog.api.drills.bookie.stuck import stuck_repair_drill

    _run(stuck_repair_drill(keep=keep), as_json=as_json)


def decommission(keep: KeepOption = False, as_json: JsonOption = False) -> None:
    """Take a running bookie out of the cluster under load."""
    from fencelog.api.drills.bookie.heal import decommission_drill

    _run(decommission_drill(keep=keep), as_json=as_json)


def add_bookies(keep: KeepOption = False, as_json: JsonOption = False) -> None:
    """Add two bookies to three under load; copies are moved until all have as much."""
    from fencelog.api.drills.bookie.add import add_bookies_drill

    _run(add_bookies_drill(keep=keep), as_json=as_json)


def full_disk(
    size_mib: Annotated[
        int, typer.Option("--size-mib", min=1024, help="Of the bookie's disk, a tmpfs.")
    ] = 2048,
    keep: KeepOption = False,
    as_json: JsonOption = False,
    inside: InsideOption = False,
) -> None:
    """Fill the disk of a bookie under load, then free space; lose nothing.

    The disk is a tmpfs in a mount namespace of the drill's own (Linux).
    """
    from fencelog.api.drills.bookie.disk_full import FullDiskConfig, full_disk_drill
    from fencelog.api.drills.harness.namespace import enter_namespace

    if not inside:
        options = ["--size-mib", str(size_mib), *_flags(keep, as_json)]
        enter_namespace(["drill", "full-disk", "--inside", *options])
    _run(full_disk_drill(FullDiskConfig(size_mib, keep)), as_json=as_json)


def full_standalone(
    size_mib: Annotated[
        int, typer.Option("--size-mib", min=600, help="Of the service's disk, a tmpfs.")
    ] = 700,
    keep: KeepOption = False,
    as_json: JsonOption = False,
    inside: InsideOption = False,
) -> None:
    """Fill the only disk of a service, start it again there, delete a topic; lose nothing.

    The disk is a tmpfs in a mount namespace of the drill's own (Linux).
    """
    from fencelog.api.drills.bookie.full_standalone import (
        FullStandaloneConfig,
        full_standalone_drill,
    )
    from fencelog.api.drills.harness.namespace import enter_namespace

    if not inside:
        options = ["--size-mib", str(size_mib), *_flags(keep, as_json)]
        enter_namespace(["drill", "full-standalone", "--inside", *options])
    _run(full_standalone_drill(FullStandaloneConfig(size_mib, keep)), as_json=as_json)


def load(
    seconds: SecondsOption = 10.0,
    cluster: ClusterOption = None,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Append at full speed and break nothing: an account of every message."""
    from fencelog.api.drills.harness.service import ServiceDrillConfig, load_drill

    config = ServiceDrillConfig(_urls(cluster), seconds=seconds, keep=keep)
    _run(load_drill(config), as_json=as_json)


def unload(
    times: TimesOption = 5,
    cluster: ClusterOption = None,
    keep: KeepOption = False,
    as_json: JsonOption = False,
) -> None:
    """Have the owner transfer its partition to another broker under load."""
    from fencelog.api.drills.harness.service import ServiceDrillConfig, unload_drill

    config = ServiceDrillConfig(_urls(cluster), times=times, keep=keep)
    _run(unload_drill(config), as_json=as_json)


def run_all(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[DRILL]...", help="These alone.")
    ] = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run all drills one after the other, and print a table.

    With --cluster those that need nothing but the service: load and unload."""
    from fencelog.api.drills.run_all import Printer, chosen, run_drills, run_in_process
    from fencelog.api.processes.lifecycle import run_on_uvloop

    printer = Printer(as_json=as_json)
    drills = run_drills(
        chosen(names or [], cluster), cluster, runner=run_in_process, on_outcome=printer.show
    )
    is_clean = run_on_uvloop(drills)
    printer.end()
    if not is_clean:
        raise typer.Exit(1)


def _urls(cluster: str | None) -> list[str]:
    return [url.strip().rstrip("/") for url in cluster.split(",")] if cluster else []


def _flags(keep: bool, as_json: bool) -> list[str]:
    return ["--keep"] * keep + ["--json"] * as_json


def _run(drill: Coroutine[Any, Any, Report], *, as_json: bool) -> None:
    """Run a drill and print its report; exit code 1 unless it is clean."""
    from fencelog.api.drills.harness.report import print_table
    from fencelog.api.processes.lifecycle import run_on_uvloop

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
    from fencelog.api.bench.demo.demo import run_demo
    from fencelog.api.processes.lifecycle import run_on_uvloop

    if not run_on_uvloop(run_demo(logs, spark=spark)):
        raise typer.Exit(1)


def bench(context: typer.Context) -> None:
    """Measure the service beside the machine's own limits."""
    from fencelog.api.bench.main import app

    code = app(context.args, prog_name="fencelog bench", standalone_mode=False)
    if code:
        raise typer.Exit(code)
