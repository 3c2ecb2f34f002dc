"""``fencelog bookies``: look after running storage nodes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fencelog.api.console import JsonOption, MetadataOption, SecretOption, complain, print_table

if TYPE_CHECKING:
    from fencelog.ledgers.format.entry_list import EntryList
    from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies
    from fencelog.ledgers.rpc.bookie_port import BookieClient

T = TypeVar("T")

_GIB = 1024**3

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The bookie, as it is registered.")]


class CompactionAction(StrEnum):
    SUSPEND = "suspend"
    RESUME = "resume"


class OnOff(StrEnum):
    ON = "on"
    OFF = "off"


def add_to(app: typer.Typer) -> None:
    bookies = typer.Typer(rich_markup_mode=None, help="Look after running storage nodes.")
    for command in (status, gc, compaction, read_only, scrub, integrity, entries):
        bookies.command()(command)
    bookies.command("list")(list_bookies)
    app.add_typer(bookies, name="bookies")


def list_bookies(
    metadata: MetadataOption,
    as_json: JsonOption = False,
) -> None:
    """List the bookies that are registered."""

    async def ask(bookies: RegisteredBookies) -> list[dict[str, Any]]:
        infos = [(bookies.describe(i), address) for i, address in bookies.addresses().items()]
        return [
            {
                "id": info.bookie_id,
                "address": address,
                "rack": info.rack,
                "read_only": info.is_read_only,
                "free_bytes": info.free_bytes,
            }
            for info, address in sorted(infos, key=lambda pair: pair[0].bookie_id)
        ]

    found = _run(metadata, None, ask)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    from rich.table import Table

    table = Table("id", "address", "rack", "read-only", "free", box=None, pad_edge=False)
    for bookie in found:
        free = f"{bookie['free_bytes'] / _GIB:.1f} GiB" if bookie["free_bytes"] else "not known"
        read_only = "yes" if bookie["read_only"] else "no"
        table.add_row(bookie["id"], bookie["address"], bookie["rack"], read_only, free)
    print_table(table)


def status(bookie: IdArgument, metadata: MetadataOption, secret_file: SecretOption = None) -> None:
    """Show what a bookie is and what it is doing, as JSON."""
    _show(_admin(metadata, secret_file, bookie, {"do": "status"}))


def gc(
    bookie: IdArgument,
    metadata: MetadataOption,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Compact logs of which less than this is live."),
    ] = None,
    no_grace: Annotated[
        bool,
        typer.Option(
            "--no-grace",
            help="Take what was deleted a moment ago, too. A backup of the metadata from before "
            "cannot bring it back then.",
        ),
    ] = False,
    secret_file: SecretOption = None,
) -> None:
    """Begin to collect garbage, now.

    Entries of ledgers that were deleted an hour ago go, and their space comes back. The command
    status tells how far it has come."""
    request: dict[str, Any] = {"do": "gc"}
    if threshold is not None:
        request["below"] = threshold
    if no_grace:
        request["no_grace"] = True
    _show(_admin(metadata, secret_file, bookie, request))


def compaction(
    bookie: IdArgument,
    what: Annotated[CompactionAction, typer.Argument()],
    metadata: MetadataOption,
    secret_file: SecretOption = None,
) -> None:
    """Suspend the compaction of entry logs, or resume it."""
    _show(_admin(metadata, secret_file, bookie, {"do": f"{what.value}_compaction"}))


def read_only(
    bookie: IdArgument,
    switch: Annotated[OnOff, typer.Argument()],
    metadata: MetadataOption,
    secret_file: SecretOption = None,
) -> None:
    """Let a bookie take no new entries, or take them again.

    Reads and recoveries go on."""
    request = {"do": "read_only", "on": switch is OnOff.ON}
    reply = _admin(metadata, secret_file, bookie, request)
    if reasons := reply.get("read_only_for"):
        typer.echo(f"bookie {bookie} is read-only (reason: {', '.join(reasons)})")
    else:
        typer.echo(f"bookie {bookie} takes new entries")


def scrub(
    bookie: IdArgument,
    metadata: MetadataOption,
    ledger: Annotated[
        int | None, typer.Option(metavar="LEDGER", min=0, max=2**63 - 1, help="This one alone.")
    ] = None,
    secret_file: SecretOption = None,
) -> None:
    """Begin to read and check all that a bookie has stored.

    The command status tells what was found."""
    request: dict[str, Any] = {"do": "scrub"}
    if ledger is not None:
        request["ledger"] = ledger
    _show(_admin(metadata, secret_file, bookie, request))


def integrity(
    bookie: IdArgument, metadata: MetadataOption, secret_file: SecretOption = None
) -> None:
    """Begin to copy the entries that a bookie may have lost, now.

    The command status tells how far it has come."""
    _show(_admin(metadata, secret_file, bookie, {"do": "integrity"}))


def entries(
    bookie: IdArgument,
    ledger: Annotated[int, typer.Argument(metavar="LEDGER", min=0, max=2**63 - 1)],
    metadata: MetadataOption,
    hex: Annotated[
        bool, typer.Option("--hex", help="In BP-34's encoding: a line for each answer.")
    ] = False,
    secret_file: SecretOption = None,
) -> None:
    """List which entries of a ledger a bookie has.

    As ranges, one a line, from its index: none is read."""

    def show(part: EntryList) -> None:
        if hex:
            typer.echo(part.availability.encode().hex())
            return
        for first, last in part.availability.ranges():
            typer.echo(f"{first}..{last}")

    async def ask(client: BookieClient) -> bool:
        following: int | None = 0
        in_limbo = False
        while following is not None:
            part = await client.list_entries(ledger, following)
            show(part)
            in_limbo |= part.in_limbo
            following = part.next_entry
        return in_limbo

    if _run(metadata, secret_file, lambda bookies: ask(bookies.client(bookie))):
        complain(f"ledger {ledger} is in limbo: bookie {bookie} may have forgotten what is missing")


def _show(reply: dict[str, Any]) -> None:
    typer.echo(json.dumps(reply, indent=2))


def _admin(
    metadata: str, secret_file: Path | None, bookie: str, request: dict[str, Any]
) -> dict[str, Any]:
    return _run(metadata, secret_file, lambda bookies: bookies.client(bookie).admin(request))


def _run(
    metadata: str,
    secret_file: Path | None,
    request: Callable[[RegisteredBookies], Awaitable[T]],
) -> T:
    from fencelog.api.local_cluster.cluster_access import with_cluster

    return with_cluster(metadata, secret_file, lambda cluster: request(cluster.bookies))
