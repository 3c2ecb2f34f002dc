"""``fencelog bookie decommission|recover``: bookies that leave the cluster, or have left it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.cli.healing.admin_access import OptionalMetadata, RemoteAdmin, look, with_admin
from fencelog.api.cli.healing.under_replicated import WaitOption
from fencelog.api.console import (
    EXIT_ERROR,
    SERVER,
    JsonOption,
    SecretOption,
    ServerOption,
    YesOption,
    ask_first,
    complain,
)

if TYPE_CHECKING:
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin

    Admin = AutorecoveryAdmin | RemoteAdmin

POLL_S = 1.0

MAX_FAILED_LOOKS = 60
"""The looks at a decommission that may fail in a row, as they do while the metadata store is away:
it goes on meanwhile."""

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The bookie, as it is registered.")]


def add_to(bookies: typer.Typer) -> None:
    for command in (decommission, recover):
        bookies.command()(command)


def decommission(
    bookie: IdArgument,
    metadata: OptionalMetadata = None,
    server: ServerOption = SERVER,
    cancel: Annotated[bool, typer.Option("--cancel", help="Keep the bookie after all.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Only say how far it is.")] = False,
    wait: WaitOption = True,
    yes: YesOption = False,
    as_json: JsonOption = False,
    secret_file: SecretOption = None,
) -> None:
    """Take a bookie out of the cluster, running or dead.

    It takes no more entries, and its copies are made on the others; it serves reads meanwhile. Then
    it is to be stopped, and its cookie goes, which ends the decommission. It goes on without this
    command. Refused where the others could not hold everything. --no-wait: return at once. Exit
    code 1 where it is cancelled meanwhile.
    """
    if cancel and status:
        raise typer.BadParameter("either of them", param_hint="'--cancel' / '--status'")
    if not cancel and not status:
        ask_first(f"Bookie {bookie} will be out of the cluster, and its data void.", yes)

    async def ask(admin: Admin) -> dict[str, Any]:
        if cancel:
            await admin.cancel_decommission(bookie)
            return {"bookie_id": bookie, "phase": "cancelled", "remainder": None}
        if status:
            return await admin.decommission(bookie)
        job = await admin.start_decommission(bookie)
        return await _until_over(admin, job) if wait else job

    job = with_admin(metadata, server, ask, secret_file=secret_file)
    typer.echo(json.dumps(job, indent=2) if as_json else _said(job))


def recover(
    bookie: IdArgument,
    metadata: OptionalMetadata = None,
    server: ServerOption = SERVER,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Make the copies of a dead bookie elsewhere now.

    The auditor does so by itself, after the grace time of lost bookies. Refused while the bookie is
    registered. Its cookie stays, so it may come back. Exit code 1 where the metadata of some ledger
    cannot be read: it may name the bookie."""

    async def ask(admin: Admin) -> dict[str, Any]:
        found = await admin.recover(bookie)
        if wait and found["ledgers"]:
            found["unreadable"] = await _until_named_nowhere(admin, bookie, found["ledgers"])
        return found

    found = with_admin(metadata, server, ask)
    unreadable, many = found["unreadable"], f"{found['ledgers']:,} ledgers"
    if as_json:
        typer.echo(json.dumps(found | {"is_done": wait and not unreadable}))
    elif not wait:
        typer.echo(f"{many} of bookie {bookie} are marked")
    elif unreadable:
        typer.echo(f"{many} named bookie {bookie}, and none that can be read does any more")
    else:
        typer.echo(f"{many} named bookie {bookie}, and none does any more")
    if unreadable:
        complain(
            f"the metadata of {unreadable:,} ledgers could not be read, and may name bookie "
            f"{bookie}: see `fencelog check`"
        )
        raise typer.Exit(EXIT_ERROR)


async def _until_over(admin: Admin, job: dict[str, Any]) -> dict[str, Any]:
    """Wait until nothing is left on the bookie, and it is to be stopped or its cookie is gone.
    Raises FencelogError: METADATA_CONFLICT where the bookie stays."""
    import anyio

    from fencelog.api.cli.healing.progress import progress_line, standstill
    from fencelog.ledgers.errors import ErrorCode, FencelogError

    bookie, failed = job["bookie_id"], 0
    why: str | None = None
    async with progress_line(lambda: f"bookie {bookie} waits: {why}" if why else _said(job)):
        while job["phase"] not in ("drained", "cancelling"):
            await anyio.sleep(POLL_S)
            try:
                job, failed = await admin.decommission(bookie), 0
                why = standstill(await admin.status(), needs_auditor=True)
            except FencelogError as error:
                if error.code is ErrorCode.NOT_FOUND and "has_cookie" in error.extra:
                    # Its node goes at the end of a decommission, and of one that is cancelled.
                    phase = "cancelling" if error.extra["has_cookie"] else "over"
                    job = {"bookie_id": bookie, "phase": phase, "remainder": None}
                    break
                failed += 1
                if not error.code.retryable or failed > MAX_FAILED_LOOKS:
                    raise
    if job["phase"] == "cancelling":
        raise FencelogError(
            ErrorCode.METADATA_CONFLICT,
            f"the decommission was cancelled, or the bookie began anew meanwhile: bookie {bookie} "
            "stays",
        )
    return job


async def _until_named_nowhere(admin: Admin, bookie: str, total: int) -> int:
    """Wait until the ledgers of a dead bookie are repaired; return how many cannot be read."""
    import anyio

    from fencelog.api.cli.healing.progress import progress_line
    from fencelog.ledgers.errors import FencelogError

    left, unreadable = total, 0
    async with progress_line(lambda: f"{left:,} of {total:,} ledgers are left"):
        while left:
            await anyio.sleep(POLL_S)
            left = await look(lambda: _marks_of(admin, bookie))
            if not left:  # what was missed is marked
                try:
                    found = await look(lambda: admin.recover(bookie))
                except FencelogError as error:  # without a cookie it is unknown by now
                    if "unreadable" not in error.extra:
                        raise
                    found = {"ledgers": 0, "unreadable": error.extra["unreadable"]}
                left, unreadable = found["ledgers"], found["unreadable"]
    return unreadable


async def _marks_of(admin: Admin, bookie: str) -> int:
    """Return how many marks name a bookie."""
    count, page = 0, await admin.underreplicated()
    while True:
        count += sum(bookie in mark["missing"] for mark in page["ledgers"])
        if page["next_start_after"] is None:
            return count
        page = await admin.underreplicated(start_after=page["next_start_after"])


def _said(job: dict[str, Any]) -> str:
    """Return the state of a decommission for a person."""
    bookie, phase, left = job["bookie_id"], job["phase"], job["remainder"]
    if phase == "over":
        return f"bookie {bookie} is out of the cluster"
    if phase == "cancelled":
        return f"bookie {bookie} stays"
    if phase == "drained":
        return f"no ledger names bookie {bookie} any more: stop it, and its cookie goes"
    if phase == "removing":
        return f"bookie {bookie} is stopped; its cookie is about to go"
    if left is None:
        return f"bookie {bookie}: the auditor has not counted yet what is left"
    closed = f", {left['not_closed']:,} of them not closed" if left["not_closed"] else ""
    return f"bookie {bookie}: {left['ledgers']:,} ledgers are left{closed}"
