"""``fencelog ledger underreplicated|who-is-auditor|audit|replace-bookie``: ledgers without all
their copies, and the auditor that finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.cli.healing.admin_access import OptionalMetadata, RemoteAdmin, look, with_admin
from fencelog.api.console import EXIT_ERROR, SERVER, JsonOption, ServerOption, complain

if TYPE_CHECKING:
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin

    Admin = AutorecoveryAdmin | RemoteAdmin

POLL_S = 0.5

LedgerArgument = Annotated[int, typer.Argument(metavar="LEDGER", min=0, max=2**63 - 1)]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Return when it is done.")]


class Check(StrEnum):
    """The checks of an auditor, as ``CheckName`` names them."""

    BOOKIES = "bookies"
    LEDGERS = "ledgers"
    CLUSTER = "cluster"
    PLACEMENT = "placement"


def add_to(ledger: typer.Typer) -> None:
    for command in (underreplicated, who_is_auditor, audit, replace_bookie):
        ledger.command()(command)


def underreplicated(
    metadata: OptionalMetadata = None, server: ServerOption = SERVER, as_json: JsonOption = False
) -> None:
    """List the ledgers that lack copies: the bookies, why, for how long, and why repairs wait.

    A mark is a hint for the workers to look: it may be there for a moment too long."""

    async def ask(admin: Admin) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        page = await admin.underreplicated()
        while True:
            found += page["ledgers"]
            if page["next_start_after"] is None:
                return found
            page = await admin.underreplicated(start_after=page["next_start_after"])

    marks = with_admin(metadata, server, ask)
    if as_json:
        typer.echo(json.dumps(marks, indent=2))
        return
    from fencelog.api.cli.healing.progress import duration, waiting_text
    from fencelog.ledgers.host import SystemHost

    now_us = SystemHost().now_us()
    for mark in marks:
        missing = "; ".join(f"{b} ({', '.join(why)})" for b, why in mark["missing"].items())
        age = duration(max(0, now_us - mark["since_us"]) / 1_000_000)
        typer.echo(f"{mark['ledger_id']} for {age}: {missing}")
        for move in mark["moves"]:
            fragment = f"fragment at {move['first_entry_id']}"
            typer.echo(f"  {fragment}: {move['bookie_id']} gives its copies to {move['target']}")
        for waiting in mark["waiting"]:
            typer.echo(f"  waits: {waiting_text(waiting)}")


def who_is_auditor(
    metadata: OptionalMetadata = None, server: ServerOption = SERVER, as_json: JsonOption = False
) -> None:
    """Name the process that is the auditor. Exit code 1 if there is none."""
    auditor = with_admin(metadata, server, lambda admin: admin.auditor())["auditor"]
    if as_json:
        typer.echo(json.dumps(auditor))
    elif auditor is not None:
        typer.echo(auditor["process_id"])
    if auditor is None:
        complain("there is no auditor: no autorecovery runs, or one is about to be elected")
        raise typer.Exit(EXIT_ERROR)


def audit(
    checks: Annotated[
        list[Check] | None, typer.Argument(metavar="[CHECK]...", help="By default ledgers.")
    ] = None,
    metadata: OptionalMetadata = None,
    server: ServerOption = SERVER,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Have the auditor check now: bookies, ledgers, cluster or placement.

    bookies: ledgers of lost bookies are marked. ledgers: bookies' lists are compared with metadata,
    samples are read, what lacks copies is marked. cluster: as `fencelog check`. placement: write
    sets in too few racks are marked. Exit code 1 where a check fails, or is not made because
    self-healing is off.
    """
    names = [check.value for check in checks or [Check.LEDGERS]]

    async def ask(admin: Admin) -> dict[str, Any]:
        if not wait:
            return await admin.audit(names)
        if (await admin.auditor())["auditor"] is None:
            complain("there is no auditor yet; the checks are made when there is one")
        return await made_checks(admin, names)

    found = with_admin(metadata, server, ask)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not wait:
        typer.echo(f"asked for: {', '.join(found['requested'])}")
    else:
        for name in names:
            said = ", ".join(f"{k} {v}" for k, v in found["results"].get(name, {}).items())
            typer.echo(f"{name}: {said}")
    if wait and (unmade := list(_unmade(names, found["results"]))):
        complain("; ".join(unmade))
        raise typer.Exit(EXIT_ERROR)


def _unmade(names: list[str], results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield why nothing is known from some of the checks, in words."""
    failed = [name for name in names if "error" in results.get(name, {"error": "unreadable"})]
    if failed:
        yield f"failed, so nothing is known from it: the check of {', '.join(failed)}"
    skipped: dict[str, list[str]] = {}
    for name in names:
        if (why := results.get(name, {}).get("skipped")) is not None:
            skipped.setdefault(why, []).append(name)
    for why, which in skipped.items():
        yield f"not made, as {why}: the check of {', '.join(which)}"


async def made_checks(admin: Admin, names: list[str]) -> dict[str, Any]:
    """Ask for checks, and return all results when these are made."""
    import anyio

    from fencelog.api.cli.healing.progress import progress_line

    found = await admin.audit(names)
    state = "waiting for the auditor"
    async with progress_line(lambda: state):
        while set(found["requested"]) & set(names):
            await anyio.sleep(POLL_S)
            state = await look(lambda: _auditor_state(admin))
            found = await look(admin.checks)
    return found


async def _auditor_state(admin: Admin) -> str:
    """Return what the auditor is doing, for a person."""
    for process in (await admin.status())["processes"]:
        if (auditor := process.get("auditor")) is not None and auditor["running"]:
            progress = auditor["progress"]
            return f"{auditor['running']}: {progress['done']:,} of {progress['total']:,} ledgers"
    return "waiting for the auditor"


def replace_bookie(
    ledger: LedgerArgument,
    bookie: Annotated[str, typer.Argument(metavar="BOOKIE", help="That is to leave the ledger.")],
    metadata: OptionalMetadata = None,
    server: ServerOption = SERVER,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Have a bookie's copies of one ledger made on another bookie.

    The bookie may run or be dead. It leaves the metadata when the copies are durable. Exit code 1
    where it is still named without a mark: somebody has cancelled its decommission."""

    async def ask(admin: Admin) -> tuple[dict[str, Any], list[str] | None]:
        mark = await admin.replace_bookie(ledger, bookie)
        return mark, await until_unmarked(admin, ledger) if wait else [bookie]

    mark, bookies = with_admin(metadata, server, ask)
    is_named = bookies is not None and bookie in bookies
    if as_json:
        typer.echo(json.dumps(mark | {"is_done": not is_named, "is_deleted": bookies is None}))
    elif not wait:
        typer.echo(f"ledger {ledger} is marked")
    elif bookies is None:
        typer.echo(f"ledger {ledger} was deleted meanwhile")
    elif not is_named:
        typer.echo(f"ledger {ledger} has no copies on bookie {bookie} any more, by its metadata")
    if wait and is_named:
        complain(
            f"ledger {ledger} still names bookie {bookie}, and is not marked any more: a "
            "decommission of that bookie was cancelled. Repeat the command if it shall leave"
        )
        raise typer.Exit(EXIT_ERROR)


async def until_unmarked(admin: Admin, ledger_id: int) -> list[str] | None:
    """Wait until a ledger is not marked any more; say why it waits. Return the bookies that its
    metadata names then, None if it was deleted. Raises FencelogError."""
    import anyio

    from fencelog.api.cli.healing.progress import progress_line, standstill, waiting_text
    from fencelog.ledgers.errors import ErrorCode, FencelogError

    why = " for a worker"
    async with progress_line(lambda: f"ledger {ledger_id} waits{why}"):
        while True:
            try:
                await look(lambda: admin.mark(ledger_id))
            except FencelogError as error:
                if error.code is not ErrorCode.NOT_FOUND or "bookies" not in error.extra:
                    raise
                bookies: list[str] | None = error.extra["bookies"]
                return bookies
            status = await look(admin.status)
            named = (w for process in status["processes"] for w in process["worker"]["waiting"])
            reasons = [waiting_text(w) for w in named if w["ledger_id"] == ledger_id]
            still = standstill(status, needs_auditor=False)
            why = f": {still or reasons[-1]}" if still or reasons else " for a worker"
            await anyio.sleep(POLL_S)
