"""``fencelog cookie``: the registered cookies of the bookies' directories, and their repair."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencelog.api.cli.metadata import with_metadata
from fencelog.api.console import (
    DataOption,
    JournalDirsOption,
    LedgerDirsOption,
    MetadataOption,
    YesOption,
    absolute,
    ask_first,
)

if TYPE_CHECKING:
    from fencelog.bookie.identity.cookies import Cookie, Identity
    from fencelog.ledgers.metastore.port import MetadataStore

IdOption = Annotated[str, typer.Option(metavar="NAME", help="The bookie.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The bookie.")]


def add_to(app: typer.Typer) -> None:
    cookie = typer.Typer(rich_markup_mode=None, help="Look after the cookies of bookies.")
    for command in (show, delete, repair):
        cookie.command()(command)
    cookie.command("list")(list_cookies)
    app.add_typer(cookie, name="cookie")


def list_cookies(metadata: MetadataOption) -> None:
    """List the bookies that have a cookie, one a line."""

    async def run(store: MetadataStore) -> list[str]:
        from fencelog.bookie.identity.cookie_registry import CookieRegistry
        from fencelog.ledgers.metastore.instance import require_instance

        await require_instance(store, metadata)
        return await CookieRegistry(store).names()

    for name in with_metadata(metadata, run):
        typer.echo(name)


def show(bookie: IdArgument, metadata: MetadataOption) -> None:
    """Show the cookie of a bookie, as JSON."""

    async def run(store: MetadataStore) -> Cookie:
        from fencelog.bookie.identity.cookie_admin import registered_cookie
        from fencelog.bookie.identity.cookie_registry import CookieRegistry

        return await registered_cookie(CookieRegistry(store), bookie)

    typer.echo(json.dumps(dataclasses.asdict(with_metadata(metadata, run)), indent=2))


def delete(
    bookie: IdArgument,
    metadata: MetadataOption,
    force: Annotated[
        bool,
        typer.Option("--force", help="Give up the only copies of entries that it may have."),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Take a bookie that no ledger names out of the cluster."""
    ask_first(f"Bookie {bookie} will be out of the cluster, and its data void.", yes)

    async def run(store: MetadataStore) -> None:
        from fencelog.bookie.identity.cookie_admin import delete_cookie

        await delete_cookie(store, bookie, force=force)

    with_metadata(metadata, run)
    typer.echo(f"the cookie of bookie {bookie} is deleted")


def repair(
    metadata: MetadataOption,
    id: IdOption,
    data: DataOption,
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
    surely_lost: Annotated[
        bool,
        typer.Option("--surely-lost", help="Even if there is no directory where its disk was."),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Make lost directories of a stopped bookie anew.

    They are to be there, empty. Their content is lost for good: a disk that comes back later is
    refused. The bookie then counts as one that may have lost entries."""
    from fencelog.bookie.config import BookieConfig
    from fencelog.bookie.disk.posix import PosixDisk
    from fencelog.ledgers.host import SystemHost

    directories = (data.absolute(), absolute(journal_dir), absolute(ledger_dir))
    config = BookieConfig(*directories, bookie_id=id, repair_cookie=True)

    async def look(store: MetadataStore) -> tuple[Path, ...]:
        from fencelog.bookie.identity.cookie_admin import lost_directories

        return await lost_directories(config, store, disk=PosixDisk())

    async def run(store: MetadataStore) -> tuple[Cookie, Identity]:
        from fencelog.bookie.identity.cookie_admin import repair_cookie

        return await repair_cookie(config, store, disk=PosixDisk(), host=SystemHost())

    # Not in one session: it would end while somebody thinks.
    if lost := with_metadata(metadata, look):
        for path in lost:
            typer.echo(f"lost: {path}")
        if not surely_lost:
            _check_mounted(lost, config.data_dir)
        ask_first(f"What bookie {id} had there is void for good, also if it is found again.", yes)
    before, now = with_metadata(metadata, run)
    if now.incarnation == before.incarnation:
        typer.echo(f"bookie {id} has lost nothing")
    else:
        typer.echo(
            f"bookie {id} is incarnation {now.incarnation} now; at its next start it fences all "
            "its ledgers and denies nothing until their entries were copied from other bookies"
        )


def _check_mounted(lost: tuple[Path, ...], data: Path) -> None:
    """Refuse paths where no disk can be mounted. Journal and ledger directories are often made
    within one that is, so theirs may have no more than a parent. Raises FencelogError(BAD_REQUEST).
    """
    from fencelog.ledgers.errors import ErrorCode, FencelogError

    for path in lost:
        needed = path if path == data else path.parent
        if not needed.is_dir():
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"there is no directory {needed}: name the one that the bookie had; if its disk is "
                "lost, mount an empty one there, or give --surely-lost. Nothing was changed",
            )
