"""The command line: ``fencelog COMMAND``.

A command line loads the module of its first word, and that module imports what a command needs when
it runs, since most commands need little. Exit codes: 0 done; 1 an error, in one line on stderr; 2 a
wrong command line; 3 the outcome is unknown; 130 interrupted; 143 ended by SIGTERM (a bench, which
cleans up).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer.exceptions import TyperException

from fencelog.api.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_UNKNOWN,
    complain,
    keep_standard_descriptors,
)
from fencelog.ledgers.errors import FencelogError

# httpx imports its own command line too, and with it two libraries for colours, where they are
# there: a fifth of what most commands take. Without it, it works the same.
sys.modules["httpx._main"] = None  # type: ignore[assignment]  # None: not to be imported

MODULES: Mapping[str, tuple[str, ...]] = {
    "run": ("standalone", "broker", "zookeeper", "cluster", "bookie"),
    "autorecovery": ("autorecovery",),
    "bookies": ("bookies",),
    "brokers": ("brokers",),
    "doctor": ("doctor",),
    "events": ("events",),
    "healing.check": ("check",),
    "ledger": ("ledger",),
    "metadata": ("metadata",),
    "cookie": ("cookie",),
    "topic": ("topic",),
    "namespace": ("namespace",),
    "append": ("append",),
    "read": ("read",),
    "subscription": ("subscription",),
    "drill": ("drill", "demo", "bench"),
}
"""The commands that each module beside this one adds, in the order of ``--help``."""

_MODULE_OF = {command: name for name, commands in MODULES.items() for command in commands}


def application(first_word: str = "") -> typer.Typer:
    """Return the commands of the module that has this one; of all modules, if none has it."""
    app = typer.Typer(
        name="fencelog",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="A durable, replicated, fenced log service over plain HTTP.",
    )
    app.callback()(_options)
    module = _MODULE_OF.get(first_word)
    for name in MODULES if module is None else (module,):
        import_module(f"fencelog.api.cli.{name}").add_to(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fencelog {version('fencelog')}")
        raise typer.Exit


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
        return int(application(shown[0])(shown, prog_name="fencelog", standalone_mode=False) or 0)
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
            return EXIT_UNKNOWN if error.may_have_effect else EXIT_ERROR
        case typer.Abort():  # a question was answered with Ctrl-C or Ctrl-D
            typer.echo(err=True)
            return EXIT_INTERRUPTED
        case TimeoutError() if not str(error):
            complain("a part of the command took too long")
            return EXIT_ERROR
        case UnicodeEncodeError(encoding="utf-8"):
            complain(f"{error.object[:200]!r} is not UTF-8")
            return EXIT_ERROR
        case OSError():
            complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            return EXIT_ERROR
        case _:
            raise error


def main() -> None:
    """The console script."""
    keep_standard_descriptors()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
