"""``fencelog autorecovery``: run self-healing, turn it on and off, see what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.cli.healing.admin_access import OptionalMetadata, with_admin
from fencelog.api.console import (
    SERVER,
    ChildOption,
    JsonOption,
    MetadataOption,
    SecretOption,
    ServerOption,
)
from fencelog.api.processes.logs.options import with_log_options

if TYPE_CHECKING:
    from fencelog.api.processes.autorecovery import AutorecoveryConfig

GraceOption = Annotated[
    int | None,
    typer.Option(min=0, max=7 * 86_400_000, help="How long a bookie may be away: 10 min."),
]

RateOption = Annotated[
    int | None, typer.Option(min=1, help="Of each process, while it copies: 16 MiB/s.")
]

BalanceOption = Annotated[
    int | None,
    typer.Option(min=0, help="Of each process, while it moves copies to emptier bookies; 0: off."),
]

IntervalOption = Annotated[
    int | None, typer.Option(min=0, max=365 * 86_400_000, help="Of this check; 0: never.")
]


RecentOption = Annotated[
    int | None,
    typer.Option(min=0, max=86_400_000, help="Between looks for new ledgers: 60 s; 0: never."),
]


def add_to(app: typer.Typer) -> None:
    # Without a command of its own, ``fencelog autorecovery`` runs a process, as ``bookie`` does.
    group = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
    group.callback()(with_log_options(autorecovery))
    for command in (on, off, status):
        group.command()(command)
    group.command("set")(set_settings)
    app.add_typer(group, name="autorecovery")


def autorecovery(
    context: typer.Context,
    metadata: MetadataOption = "",
    id: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name; by default a random one.")
    ] = None,
    lost_bookie_grace_ms: GraceOption = None,
    copy_bytes_per_s: RateOption = None,
    ledgers_at_once: Annotated[
        int | None, typer.Option(min=1, max=64, help="That are repaired side by side: 4.")
    ] = None,
    look_ms: Annotated[
        int | None, typer.Option(min=100, max=600_000, help="Between looks for marks: 5 s.")
    ] = None,
    open_ledger_grace_ms: Annotated[
        int | None,
        typer.Option(min=1000, max=86_400_000, help="For a writer that is silent: 30 s."),
    ] = None,
    recent_check_ms: RecentOption = None,
    bookie_check_ms: IntervalOption = None,
    ledger_check_ms: IntervalOption = None,
    cluster_check_ms: IntervalOption = None,
    placement_check_ms: IntervalOption = None,
    sample_share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Of entries that ledger checks read besides the ends."),
    ] = None,
    secret_file: SecretOption = None,
    child: ChildOption = False,
) -> None:
    """Run self-healing: copies of lost bookies are made elsewhere.

    Each process repairs ledgers; one of all is the auditor, which finds what lacks copies. The
    commands below tell all processes what to do.
    """
    if context.invoked_subcommand is not None:
        return
    if not metadata:
        raise typer.BadParameter("a process that is to run needs --metadata")
    from fencelog.api.cli.run import print_addresses, run_process
    from fencelog.api.processes.autorecovery import AutorecoveryProcessConfig, autorecovery_process

    intervals = {
        "bookies": bookie_check_ms,
        "ledgers": ledger_check_ms,
        "cluster": cluster_check_ms,
        "placement": placement_check_ms,
    }
    auditor = {"lost_bookie_grace_ms": lost_bookie_grace_ms, "sample_share": sample_share}
    worker = {
        "copy_bytes_per_s": copy_bytes_per_s,
        "ledgers_at_once": ledgers_at_once,
        "check_ms": look_ms,
        "open_ledger_grace_ms": open_ledger_grace_ms,
    }
    settings = _settings_of(_given(intervals), _given(auditor), _given(worker), recent_check_ms)
    config = AutorecoveryProcessConfig(metadata, id, secret_file, settings)
    run_process(autorecovery_process(config), print_addresses, child=child)


def _settings_of(
    intervals: dict[str, int],
    auditor: dict[str, Any],
    worker: dict[str, Any],
    recent_check_ms: int | None,
) -> AutorecoveryConfig:
    """Return the settings of a process: those that were given, else the usual ones."""
    from fencelog.api.processes.autorecovery import AutorecoveryConfig
    from fencelog.bookie.auditor.auditor import AuditorConfig
    from fencelog.bookie.auditor.schedule_core import CheckName
    from fencelog.bookie.recent.check import RecentCheckConfig

    chosen = {CheckName(name): interval for name, interval in intervals.items()}
    intervals_ms = {**AuditorConfig().intervals_ms, **chosen}
    if recent_check_ms is not None:
        worker = {**worker, "recent_check": RecentCheckConfig(recent_check_ms)}
    return AutorecoveryConfig(AuditorConfig(intervals_ms=intervals_ms, **auditor), **worker)


def on(
    metadata: OptionalMetadata = None, server: ServerOption = SERVER, as_json: JsonOption = False
) -> None:
    """Turn self-healing on, in all processes."""
    _change(metadata, server, as_json, {"is_enabled": True})


def off(
    metadata: OptionalMetadata = None, server: ServerOption = SERVER, as_json: JsonOption = False
) -> None:
    """Turn self-healing off, in all processes, until it is turned on again.

    A copy in progress stops before its next entries. Nothing is marked; checks that only report go
    on.
    """
    _change(metadata, server, as_json, {"is_enabled": False})


def set_settings(
    metadata: OptionalMetadata = None,
    server: ServerOption = SERVER,
    lost_bookie_grace_ms: GraceOption = None,
    copy_bytes_per_s: RateOption = None,
    balance_bytes_per_s: BalanceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of all processes, while they run."""
    changes = _given(
        {"lost_bookie_grace_ms": lost_bookie_grace_ms, "copy_bytes_per_s": copy_bytes_per_s}
    )
    if balance_bytes_per_s is not None:
        changes["balance_bytes_per_s"] = balance_bytes_per_s or None
    if not changes:
        raise typer.BadParameter("name a setting")
    _change(metadata, server, as_json, changes)


def status(
    metadata: OptionalMetadata = None, server: ServerOption = SERVER, as_json: JsonOption = False
) -> None:
    """Show whether self-healing is on, who is the auditor, and what each process does."""
    found = with_admin(metadata, server, lambda admin: admin.status())
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))


def _change(metadata: str | None, server: str, as_json: bool, changes: dict[str, Any]) -> None:
    found = with_admin(metadata, server, lambda admin: admin.change(changes))
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(_settings(found)))


def _given(settings: dict[Any, Any]) -> dict[Any, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _settings(found: dict[str, Any]) -> Iterator[str]:
    yield f"self-healing is {'on' if found['is_enabled'] else 'off'}"
    for name in ("lost_bookie_grace_ms", "copy_bytes_per_s", "balance_bytes_per_s"):
        if found[name] is not None:
            yield f"{name} of all processes: {found[name]:,}"


def _recent_check(recent: dict[str, Any]) -> str:
    """Return the state of the recent check, which the auditor makes, for a person."""
    if not recent["is_enabled"]:
        return "recent check: off"
    named = ", ".join(map(str, recent["lacking"]))
    more = recent["missing_copies"] - len(recent["lacking"])
    lacking = f": {named}{f' and {more:,} more' if more > 0 else ''}" if named else ""
    return (
        f"recent check: {recent['missing_copies']:,} ledgers lacked copies{lacking}; "
        f"{recent['ledgers_to_look_at']:,} to look at, {recent['open_ledgers']:,} open, "
        f"{recent['marked']:,} marked so far"
    )


def _balance(balance: dict[str, Any]) -> str:
    """Return the state of balancing, which the auditor plans, for a person."""
    stored = sorted(balance["ledger_bytes"].items(), key=lambda item: item[1])
    phase = balance["phase"]
    if not stored or balance["distance_share"] is None:
        return f"balance: {phase}"
    (emptiest, least), (fullest, most) = stored[0], stored[-1]
    return (
        f"balance: {phase}; {fullest} has {most:,} bytes of closed ledgers, {emptiest} {least:,}, "
        f"a distance of {balance['distance_share']:.0%} of the mean; "
        f"{balance['marked']:,} ledgers chosen so far"
    )


def _lines(found: dict[str, Any]) -> Iterator[str]:
    from fencelog.api.cli.healing.progress import duration, waiting_text

    yield from _settings(found)
    auditor = found["auditor"]
    yield "there is no auditor" if auditor is None else f"the auditor is {auditor['process_id']}"
    if not found["processes"]:
        yield "no process runs: nothing is repaired"
    for process in found["processes"]:
        if (recent := process.get("recent_check")) is not None:
            yield _recent_check(recent)
        if (balance := process.get("balance")) is not None and balance["phase"] != "off":
            yield _balance(balance)
    for process in found["processes"]:
        worker = process["worker"]
        left = worker["seconds_left"]
        yield (
            f"{process['process_id']}: {worker['underreplicated_ledgers']:,} ledgers to repair, "
            f"{worker['repaired_ledgers']:,} repaired, {worker['copied_bytes']:,} bytes copied, "
            f"{worker['bytes_per_s']:,} bytes/s" + (f", {duration(left)} left" if left else "")
        )
        if worker["ledgers_to_move"] or worker["moved_fragments"] or worker["dropped_moves"]:
            yield (
                f"  {worker['ledgers_to_move']:,} ledgers to move, "
                f"{worker['moved_fragments']:,} fragments moved, "
                f"{worker['moved_bytes']:,} bytes, {worker['dropped_moves']:,} moves dropped"
            )
        for waiting in worker["waiting"]:
            yield f"  ledger {waiting['ledger_id']} waits: {waiting_text(waiting)}"
        if (more := worker["ledgers_waiting"] - len(worker["waiting"])) > 0:
            yield f"  and {more:,} more ledgers wait"
        if worker["last_error"]:
            yield f"  {worker['last_error']}"
