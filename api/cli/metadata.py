"""``fencelog metadata``: initialise a metadata store, make a restored one safe, and set the access
lists of its nodes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fencelog.api.console import MetadataOption

if TYPE_CHECKING:
    from fencelog.ledgers.metastore.port import MetadataStore

T = TypeVar("T")

_NEW_FILE_SYSTEM = "lost+found"

DEFAULT_SKIPPED_IDS = 1_000_000
"""A thousand ledgers a second for a quarter of an hour, or ten for a day."""
MAX_SKIPPED_IDS = 1_000_000_000_000
"""Far from the end of ids (2⁶³), however often a store is restored."""


def add_to(app: typer.Typer) -> None:
    metadata = typer.Typer(
        rich_markup_mode=None, help="Initialise a store, protect it, or skip ids after a restore."
    )
    metadata.callback()(_group)
    metadata.command()(init)
    metadata.command()(skip_ledger_ids)
    metadata.command()(protect)
    app.add_typer(metadata, name="metadata")


def _group() -> None:
    """Initialise the store of a new cluster, protect it, or skip ids in one that was restored."""


def init(
    metadata: MetadataOption,
    surely_a_new_cluster: Annotated[
        bool,
        typer.Option(
            "--surely-a-new-cluster",
            help="Even if bookies are registered; they have to be emptied.",
        ),
    ] = False,
    unless_holds: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Do nothing if DIR holds anything: a bookie's data."),
    ] = None,
) -> None:
    """Give the store of a new cluster its instance id.

    Once, for good: a bookie starts only over the instance that its data belongs to. Running it
    again changes nothing."""
    if unless_holds is not None and holds_data(unless_holds):
        typer.echo(f"{unless_holds} holds data, so there is a cluster: nothing was changed")
        return

    async def run(store: MetadataStore) -> tuple[str, bool]:
        from fencelog.bookie.identity.cookie_registry import initialise_cluster
        from fencelog.ledgers.host import SystemHost

        return await initialise_cluster(store, SystemHost(), is_surely_new=surely_a_new_cluster)

    instance, is_new = with_metadata(metadata, run, create=True)
    typer.echo(f"the instance id is {'' if is_new else 'already '}{instance}")


def skip_ledger_ids(
    metadata: MetadataOption,
    count: Annotated[
        int, typer.Option(min=1, max=MAX_SKIPPED_IDS, help="More than were given since the backup.")
    ] = DEFAULT_SKIPPED_IDS,
) -> None:
    """Never give the ids again that were given after a backup.

    Once, after a restore, before any bookie or broker starts: bookies hold ledgers that the
    restored store does not know, and new ledgers would get their ids."""

    async def run(store: MetadataStore) -> int:
        from fencelog.ledgers.ledger_metadata.ids import skip_ids

        return await skip_ids(store, count, name=metadata)

    typer.echo(f"ledger ids up to {with_metadata(metadata, run)} are skipped")


def protect(
    metadata: MetadataOption,
    is_open: Annotated[
        bool, typer.Option("--open", help="Open them to everybody, before credentials go.")
    ] = False,
) -> None:
    """Give all nodes in ZooKeeper the access list of new ones.

    They are for the users in the file that the URL names (?credentials=FILE), and for nobody else.
    After every change of that file, once all processes have it; while they run. Running it again
    changes nothing."""

    async def run(store: MetadataStore) -> tuple[int, int]:
        from fencelog.ledgers.errors import ErrorCode, FencelogError
        from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore

        if not isinstance(store, ZooKeeperMetadataStore):
            raise FencelogError(ErrorCode.BAD_REQUEST, "only nodes in ZooKeeper have access lists")
        result = await store.protect(is_open=is_open)
        return result.nodes, result.changed

    nodes, changed = with_metadata(metadata, run)
    typer.echo(f"{nodes} nodes: {changed} changed, {nodes - changed} as they are to be")


def holds_data(directory: Path) -> bool:
    """Tell whether a directory holds anything but what a new file system has."""
    return directory.is_dir() and any(
        entry.name != _NEW_FILE_SYSTEM for entry in directory.iterdir()
    )


def with_metadata(
    metadata: str, work: Callable[[MetadataStore], Awaitable[T]], *, create: bool = False
) -> T:
    """Return the result of ``work`` with the store of a URL, which has to be there unless
    ``create``. Raises FencelogError."""
    from fencelog.api.processes.lifecycle import run_on_uvloop

    async def main() -> T:
        async with _store(metadata, create) as store:
            return await work(store)

    return run_on_uvloop(main())


@contextlib.asynccontextmanager
async def _store(metadata: str, create: bool) -> AsyncIterator[MetadataStore]:
    from fencelog.ledgers.host import SystemHost
    from fencelog.ledgers.metastore.open import check_metadata_file, open_metadata_store

    if not create:
        check_metadata_file(metadata)
    store = open_metadata_store(metadata, host=SystemHost())
    await store.start()
    try:
        yield store
    finally:
        await store.close()
