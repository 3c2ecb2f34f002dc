"""``fencelog ledger``: list, show, check, recover; the others are in ``under_replicated``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fencelog.api.cli.healing import under_replicated
from fencelog.api.console import (
    EXIT_ERROR,
    MetadataOption,
    SecretOption,
    YesOption,
    ask_first,
    complain,
)

if TYPE_CHECKING:
    from fencelog.api.local_cluster.cluster_access import ClusterAccess
    from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
    from fencelog.ledgers.recovery.rules import AcceptedLoss

T = TypeVar("T")

LedgerArgument = Annotated[int, typer.Argument(metavar="LEDGER", min=0, max=2**63 - 1)]


def add_to(app: typer.Typer) -> None:
    ledger = typer.Typer(
        rich_markup_mode=None, help="Look at ledgers, and close them if their writers have not."
    )
    for command in (show, check, recover):
        ledger.command()(command)
    ledger.command("list")(list_ledgers)
    under_replicated.add_to(ledger)
    app.add_typer(ledger, name="ledger")


def list_ledgers(metadata: MetadataOption) -> None:
    """List ledgers, one a line.

    Id, state, last entry (-1: there is none, or the ledger is not closed yet)."""

    async def ask(cluster: ClusterAccess) -> None:
        async for ledger in cluster.ledgers.read_all():
            typer.echo(f"{ledger.ledger_id} {ledger.state.value} {ledger.last_entry_id}")

    _run(metadata, None, ask)


def show(ledger: LedgerArgument, metadata: MetadataOption) -> None:
    """Show a ledger's metadata, as JSON."""
    from fencelog.ledgers.ledger_metadata.model import to_json

    async def ask(cluster: ClusterAccess) -> LedgerMetadata:
        return (await cluster.ledgers.get(ledger))[0]

    typer.echo(json.dumps(to_json(_run(metadata, None, ask)), indent=2))


def check(
    ledger: LedgerArgument, metadata: MetadataOption, secret_file: SecretOption = None
) -> None:
    """Ask the bookies of a ledger what they have of it.

    Says of each what is missing, and whether it is in limbo. The answers come from the bookies'
    indexes: no entry is read. Exit code 1 unless all is there.
    """

    async def ask(cluster: ClusterAccess) -> bool:
        from fencelog.api.streams.ledger_check import check_ledger

        is_whole = True
        found, _ = await cluster.ledgers.get(ledger)
        async for holding in check_ledger(found, cluster.bookies):
            typer.echo(str(holding))
            is_whole &= holding.is_whole
        return is_whole

    if not _run(metadata, secret_file, ask):
        complain(f"ledger {ledger} is not whole on each of its bookies, or that is not known")
        raise typer.Exit(EXIT_ERROR)


def recover(
    ledger: LedgerArgument,
    metadata: MetadataOption,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="End the ledger before an entry that only bookies in limbo, or that have deleted "
            "the ledger, may have held.",
        ),
    ] = False,
    yes: YesOption = False,
    secret_file: SecretOption = None,
) -> None:
    """Fence a ledger, find its end, close it there.

    Its writer can add nothing more.

    A bookie that lost its disk or its memory is in limbo with a ledger: it may have held the next
    entry, and cannot tell. So does one that has deleted the ledger, before an old backup of the
    metadata was restored. If there are too many of them in a write set, the end is unknown, and
    the ledger stays as it is until their disks are back. --accept-loss says that none ever will be:
    acknowledged entries may be lost with it, and what was given up is printed.
    """
    from fencelog.ledgers.recovery.rules import AcceptedLoss

    if accept_loss:
        ask_first(f"What ledger {ledger} has lost is lost for good then.", yes)
    accepted = AcceptedLoss() if accept_loss else None
    closed = _run(metadata, secret_file, lambda cluster: _recover(cluster, ledger, accepted))
    if accepted is not None:
        for bookie in sorted(accepted.fenced):
            why = "has deleted it" if bookie in accepted.deleted else "is in limbo with it"
            typer.echo(f"bookie {bookie} {why}, hence fenced")
        for line in _given_up(accepted.entries, accepted.deleted):
            typer.echo(line)
    typer.echo(
        f"ledger {ledger} is closed: last entry {closed.last_entry_id}, {closed.length} bytes"
    )


def _given_up(entries: Mapping[int, tuple[str, ...]], deleted: Container[str]) -> Iterator[str]:
    """Yield a line for each range of entries that the same bookies may have held, of which some
    have ``deleted`` the ledger."""
    first: int | None = None
    for entry_id, bookies in sorted(entries.items()):
        first = entry_id if first is None else first
        if entries.get(entry_id + 1) != bookies:
            which = f"entry {first}" if first == entry_id else f"entries {first}..{entry_id}"
            parts = {
                "in limbo": [bookie for bookie in bookies if bookie not in deleted],
                "deleted": [bookie for bookie in bookies if bookie in deleted],
            }
            said = "; ".join(f"{what}: {', '.join(who)}" for what, who in parts.items() if who)
            yield f"given up: {which} ({said})"
            first = None


async def _recover(
    cluster: ClusterAccess, ledger: int, accepted: AcceptedLoss | None
) -> LedgerMetadata:
    from fencelog.ledgers.errors import ErrorCode, FencelogError
    from fencelog.ledgers.host import SystemHost
    from fencelog.ledgers.placement.placement import Placement
    from fencelog.ledgers.recovery.recovery import recover_ledger

    try:
        return await recover_ledger(
            ledger,
            ledgers=cluster.ledgers,
            bookies=cluster.bookies,
            placement=Placement(cluster.bookies, host=SystemHost()),
            accepted=accepted,
        )
    except FencelogError as error:
        lost = {
            "in limbo": error.extra.get("bookies_in_limbo", []),
            "deleted": error.extra.get("bookies_without_ledger", []),
        }
        said = "; ".join(f"{what}: {', '.join(who)}" for what, who in lost.items() if who)
        if error.code is not ErrorCode.RECOVERY_INCOMPLETE or not said:
            raise
        advice = (
            "if what they held is lost for good, --accept-loss ends the ledger without it"
            if sum(map(len, lost.values())) == len(error.extra["missing_bookies"])
            else "the others have to answer first"
        )
        raise FencelogError(
            error.code, f"{error.detail}; {said}: {advice}", **error.extra
        ) from error


def _run(
    metadata: str, secret_file: Path | None, request: Callable[[ClusterAccess], Awaitable[T]]
) -> T:
    from fencelog.api.local_cluster.cluster_access import with_cluster

    return with_cluster(metadata, secret_file, request)
