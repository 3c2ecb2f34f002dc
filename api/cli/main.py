"""The command line: ``fencelog COMMAND``.

Each command's module imports what it needs when it runs, since most commands need little. Exit
codes: 0 done; 1 an error, in one line on stderr; 2 a wrong command line; 3 the outcome is unknown;
130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from typer.exceptions import TyperException

from fencelog.api.cli import append as cli_append
from fencelog.api.cli import bookies as cli_bookies
from fencelog.api.cli import brokers as cli_brokers
from fencelog.api.cli import cookie as cli_cookie
from fencelog.api.cli import drill as cli_drill
from fencelog.api.cli import ledger as cli_ledger
from fencelog.api.cli import metadata as cli_metadata
from fencelog.api.cli import namespace as cli_namespace
from fencelog.api.cli import read as cli_read
from fencelog.api.cli import run as cli_run
from fencelog.api.cli import subscription as cli_subscription
from fencelog.api.cli import topic as cli_topic
from fencelog.api.console import EXIT_ERROR, EXIT_UNKNOWN, complain
from fencelog.ledgers.errors import Effects, FencelogError

app = typer.Typer(
    name="fencelog",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A durable, replicated, fenced log service over plain HTTP.",
)
cli_run.add_to(app)
cli_bookies.add_to(app)
cli_brokers.add_to(app)
cli_ledger.add_to(app)
cli_metadata.add_to(app)
cli_cookie.add_to(app)
cli_topic.add_to(app)
cli_namespace.add_to(app)
cli_append.add_to(app)
cli_read.add_to(app)
cli_subscription.add_to(app)
cli_drill.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fencelog {version('fencelog')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options of all commands."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit code. Every failure is one line on stderr."""
    shown = list(arguments) or ["--help"]
    try:
        return int(app(shown, prog_name="fencelog", standalone_mode=False) or 0)
    except Exception as error:
        return _explain(error)


def _explain(error: Exception) -> int:
    """Print what went wrong and return the exit code. An unexpected error is raised again."""
    match error:
        case TyperException():
            command = getattr(getattr(error, "ctx", None), "command_path", "fencelog")
            complain(f"{error.format_message()} (try: {command} --help)")
            return error.exit_code
        case FencelogError():
            complain(error.detail)
            return EXIT_UNKNOWN if error.code.effects is Effects.MAYBE else EXIT_ERROR
        case OSError():
            complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            return EXIT_ERROR
        case _:
            raise error


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
