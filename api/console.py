"""The options and helpers that all commands share. Imports stay light here: ``fencelog --help``
answers at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from fencelog.ledgers.errors import ErrorCode, FencelogError

if TYPE_CHECKING:
    from rich.table import Table

ServerOption = Annotated[
    str,
    typer.Option(
        "--server",
        envvar="FENCELOG_SERVER",
        metavar="URL",
        help="The service; several URLs with commas: the next one when one cannot be reached.",
    ),
]
"""``--server`` of every command that talks to a running service."""

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="NAMESPACE/NAME; NAME alone is default/NAME.")
]

MetadataOption = Annotated[
    str, typer.Option(metavar="URL", help="zk:// or zks://HOST:PORT,HOST:PORT/ROOT of the cluster.")
]

JournalDirsOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="Where a journal is; again for each. Never to be changed."),
]

LedgerDirsOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="Where entries are; again for each. Never to be changed."),
]

DataOption = Annotated[Path, typer.Option(metavar="DIR", help="Where everything is stored.")]

BookiesOption = Annotated[int, typer.Option(min=1, max=32, help="Storage nodes.")]

SessionOption = Annotated[
    int, typer.Option(min=1000, max=60_000, help="How long a silent process counts as there.")
]

SecretOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A secret that bookies and brokers ask of each other."),
]

AcceptedSecretOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Another one that others may know instead: to change it."),
]

AnyPartitionOption = Annotated[int | None, typer.Option(min=0, help="By default all.")]

FollowOption = Annotated[bool, typer.Option("--follow", help="Wait for more at the end.")]

LimitOption = Annotated[int | None, typer.Option(min=1, help="End after so many messages.")]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without being asked first.")]
"""``--yes`` of the commands that ``ask_first``."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
"""``--json`` of every command whose output is otherwise a text or a table."""

ChildOption = Annotated[bool, typer.Option("--child", hidden=True)]
"""The mark of a process that another fencelog process has started: see
``lifecycle.run_service``."""

SERVER = "http://127.0.0.1:8080"

_STDERR = 2

PIPED_COLUMNS = 10_000
"""The width of a table that no terminal shows: nothing is cut, nor wrapped."""

MAX_DIGITS = 20

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
"""The exit code of an unknown outcome: the command may have taken effect."""

EXIT_BROKEN_PIPE = 141
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def keep_standard_descriptors() -> None:
    """Open ``/dev/null`` as each of stdin, stdout and stderr that is closed. Else the next file
    that is opened, perhaps a journal, would have its number, and take what a library prints."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def bytes_in() -> BinaryIO:
    """Return stdin. Raises FencelogError(BAD_REQUEST): the command was started without one."""
    if sys.stdin is None:
        raise FencelogError(ErrorCode.BAD_REQUEST, "stdin is closed")
    return sys.stdin.buffer


def bytes_out() -> BinaryIO:
    """Return stdout. Raises FencelogError(BAD_REQUEST): the command was started without one."""
    if sys.stdout is None:
        raise FencelogError(ErrorCode.BAD_REQUEST, "stdout is closed")
    return sys.stdout.buffer


def is_typed_in() -> bool:
    """Tell whether stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def ending_with_its_reader() -> Iterator[None]:
    """End the command with EXIT_BROKEN_PIPE, and quietly, when the reader of its output has closed
    it, as `head` does."""
    try:
        yield
    except BrokenPipeError:
        drop_output()
        raise typer.Exit(EXIT_BROKEN_PIPE) from None


def drop_output() -> None:
    """Forget what stdout does not take, so that Python's own flush at exit does not fail, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(what: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"fencelog: {' '.join(what.split())}", err=True)


def print_table(table: Table) -> None:
    """Print a table: as wide as the terminal, and whole where it is piped or redirected."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPED_COLUMNS
    Console(highlight=False, width=width).print(table)


def topic_name(name: str) -> str:
    """Return ``NAMESPACE/NAME`` of what was typed; ``NAME`` alone is in the namespace
    ``default``."""
    if name.count("/") > 1:
        raise typer.BadParameter(f"{name!r} is not NAMESPACE/NAME, or NAME", param_hint="'TOPIC'")
    return name if "/" in name else f"default/{name}"


def ask_first(what: str, yes: bool) -> None:
    """Ask the person at the terminal before something is lost. A script, which has none, was
    written to do it."""
    if yes or not is_typed_in():
        return
    try:
        is_wanted, code = typer.confirm(f"{what} Go on?", err=True), EXIT_ERROR
    except typer.Abort:  # Ctrl-C, or Ctrl-D
        typer.echo(err=True)
        is_wanted, code = False, EXIT_INTERRUPTED
    if not is_wanted:
        complain("nothing is done")
        raise typer.Exit(code)


def is_number(text: str) -> bool:
    """Tell whether a text is a whole number without a sign, in ASCII digits and no more of them
    than 64 bits have."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def told(created: bool) -> str:
    """Return what a command says of the thing that it was to create."""
    return "is created" if created else "is there already"


def absolute(directories: list[Path] | None) -> tuple[Path, ...]:
    """Return the given directories as absolute paths, which can be compared."""
    return tuple(path.absolute() for path in directories or ())
