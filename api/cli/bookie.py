"""``fencelog bookie COMMAND``: the data of a bookie that is not running."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.console import (
    EXIT_ERROR,
    JournalDirsOption,
    JsonOption,
    LedgerDirsOption,
    absolute,
    complain,
)

if TYPE_CHECKING:
    from fencelog.bookie.offline.offline import Offline

DataOption = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="Where the bookie's data is.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it, do not only say what.")]
FileArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Only this file.", show_default=False)
]


def add_to(bookie: typer.Typer) -> None:
    """Add the commands to the group that runs a bookie where none of them is named."""
    inspect = typer.Typer(rich_markup_mode=None, help="Show what is on disk, record by record.")
    inspect.callback()(lambda: None)
    for command in (journal, entrylog, index, ledger):
        inspect.command()(command)
    bookie.add_typer(inspect, name="inspect")
    bookie.command()(verify)
    bookie.command()(rebuild_index)
    bookie.command("format")(format_data)


def journal(
    data: DataOption,
    file: FileArgument = None,
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every record of the journal; where a start would begin and end with it, and why."""
    from fencelog.bookie.offline.inspect_journal import inspect_journal

    shown = 0
    with _looking(data, journal_dir, ledger_dir) as found:
        incarnation = found.identity().directory_bytes
        for shard in found.shards:
            items = inspect_journal(found.disk, shard, incarnation, file)
            shown += _print(items, as_json=as_json)
    _check_shown(shown, file)


def entrylog(
    data: DataOption,
    file: FileArgument = None,
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every record of the entry logs, and the contents of their footers."""
    from fencelog.bookie.offline.inspect_entry_log import inspect_entry_logs

    shown = 0
    with _looking(data, journal_dir, ledger_dir) as found:
        for shard in found.shards:
            shown += _print(inspect_entry_logs(found.disk, shard, file), as_json=as_json)
    _check_shown(shown, file)


def index(
    data: DataOption,
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every run and every ledger that the index knows."""
    from fencelog.bookie.offline.inspect_index import inspect_index

    with _looking(data, journal_dir, ledger_dir) as found:
        for shard in found.shards:
            store = found.disk.open_store(shard.paths.index, create=False)
            try:
                _print(inspect_index(store), as_json=as_json)
            finally:
                store.close()


def ledger(
    data: DataOption,
    ledger_id: Annotated[int, typer.Argument(metavar="LEDGER", min=0, help="Its id.")],
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all that is known of one ledger."""
    from fencelog.bookie.offline.inspect_ledger import inspect_ledger

    with _looking(data, journal_dir, ledger_dir) as found:
        incarnation = found.identity().directory_bytes
        shard = found.shard_of(ledger_id)
        _print(inspect_ledger(found.disk, shard, incarnation, ledger_id), as_json=as_json)


def verify(
    data: DataOption,
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
) -> None:
    """Check every byte that means something; change nothing.

    One line for each problem; exit code 1 if there is one."""
    from fencelog.bookie.offline.verify import verify as problems_of

    count = 0
    with _looking(data, journal_dir, ledger_dir) as found:
        for problem in problems_of(found):
            typer.echo(str(problem))
            count += 1
    typer.echo(f"{data}: {count or 'no'} problem{'' if count == 1 else 's'}")
    if count:
        raise typer.Exit(EXIT_ERROR)


def rebuild_index(
    data: DataOption,
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
    yes: YesOption = False,
) -> None:
    """Make a lost or damaged index anew.

    It is made from entry logs and journal. The bookie then counts as one that may have lost
    entries: with its next start it fences its ledgers, and denies none of their entries until they
    were copied from other bookies."""
    from fencelog.bookie.disk.posix import PosixDisk
    from fencelog.bookie.offline.rebuild_index import damaged_indexes, rebuild_indexes
    from fencelog.ledgers.host import SystemHost

    with _offline(PosixDisk(), data, journal_dir, ledger_dir) as found:
        damaged = damaged_indexes(found)
        for _shard, problem in damaged:
            typer.echo(str(problem))
        if not damaged:
            typer.echo(f"{data}: every index is whole, nothing to rebuild")
        elif not yes:
            _refuse("nothing was changed: give --yes to make these indexes anew")
        else:
            _print(rebuild_indexes(found, SystemHost()), as_json=False)
            typer.echo("the next start fences all ledgers of this bookie before it serves")


def format_data(
    data: DataOption,
    journal_dir: JournalDirsOption = None,
    ledger_dir: LedgerDirsOption = None,
    yes: YesOption = False,
) -> None:
    """Remove all that a bookie keeps. Its records in the metadata store stay."""
    from fencelog.bookie.disk.posix import PosixDisk
    from fencelog.bookie.offline.format_data import remove_data, what_goes

    with _offline(PosixDisk(), data, journal_dir, ledger_dir) as found:
        goes = what_goes(found)
        _print([goes], as_json=False)
        if not yes:
            _refuse("nothing was removed: give --yes to remove all this for good")
        remove_data(found)
    typer.echo(
        f"removed. The metadata store still knows bookie {goes['bookie']}: to go on with it, "
        "empty, `fencelog cookie repair`, which makes it one that may have forgotten; to be rid of "
        "it, once no ledger names it, `fencelog cookie delete`"
    )


def _refuse(why: str) -> None:
    complain(why)
    raise typer.Exit(EXIT_ERROR)


@contextmanager
def _looking(
    data: Path, journal_dirs: list[Path] | None, ledger_dirs: list[Path] | None
) -> Iterator[Offline]:
    """Open the data, locked, through a read-only disk."""
    from fencelog.bookie.disk.posix import PosixDisk
    from fencelog.bookie.offline.inspect_disk import ReadOnlyDisk

    with _offline(ReadOnlyDisk(PosixDisk()), data, journal_dirs, ledger_dirs) as found:
        yield found


@contextmanager
def _offline(
    disk: Any, data: Path, journal_dirs: list[Path] | None, ledger_dirs: list[Path] | None
) -> Iterator[Offline]:
    from fencelog.bookie.config import BookieConfig
    from fencelog.bookie.offline.offline import offline

    config = BookieConfig(data.absolute(), absolute(journal_dirs), absolute(ledger_dirs))
    with offline(disk, config) as found:
        yield found


def _check_shown(count: int, file: Path | None) -> None:
    if file is not None and not count:
        _refuse(f"there is no file {file.name} of this kind")


def _print(items: Iterable[dict[str, object]], *, as_json: bool) -> int:
    """Print the items and return their number."""
    count = 0
    for item in items:
        count += 1
        if as_json:
            typer.echo(json.dumps({name.replace(" ", "_"): value for name, value in item.items()}))
        else:
            typer.echo("  ".join(f"{name} {value}" for name, value in item.items()))
    return count
