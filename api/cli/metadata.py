"""``fencelog metadata``: initialise a metadata store for a cluster."""

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


def add_to(app: typer.Typer) -> None:
    metadata = typer.Typer(rich_markup_mode=None, help="Make a store that of a new cluster.")
    metadata.callback()(_group)
    metadata.command()(init)
    app.add_typer(metadata, name="metadata")


def _group() -> None:
    """Initialise the store of a new cluster."""


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

    instance, is_new = with_metadata(metadata, run)
    typer.echo(f"the instance id is {'' if is_new else 'already '}{instance}")


def holds_data(directory: Path) -> bool:
    """Tell whether a directory holds anything but what a new file system has."""
    return directory.is_dir() and any(
        entry.name != _NEW_FILE_SYSTEM for entry in directory.iterdir()
    )


def with_metadata(metadata: str, work: Callable[[MetadataStore], Awaitable[T]]) -> T:
    """Return the result of ``work`` with the store of a URL. Raises FencelogError."""
    from fencelog.api.processes.lifecycle import run_on_uvloop

    async def main() -> T:
        async with _store(metadata) as store:
            return await work(store)

    return run_on_uvloop(main())


@contextlib.asynccontextmanager
async def _store(metadata: str) -> AsyncIterator[MetadataStore]:
    from fencelog.ledgers.host import SystemHost
    from fencelog.ledgers.metastore.open import open_metadata_store

    store = open_metadata_store(metadata, host=SystemHost())
    await store.start()
    try:
        yield store
    finally:
        await store.close()
