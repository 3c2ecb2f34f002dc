"""What the commands share. Imports stay light here: ``fencelog --help`` answers at once."""

from __future__ import annotations

from typing import Annotated

import typer

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

MetadataOption = Annotated[
    str, typer.Option(metavar="URL", help="zk://HOST:PORT,HOST:PORT/ROOT of the cluster.")
]

ChildOption = Annotated[bool, typer.Option("--child", hidden=True)]
"""Started by a process of ours: see ``lifecycle.run_service``."""

SERVER = "http://127.0.0.1:8080"

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
"""The outcome is unknown: it may have taken effect."""

EXIT_BROKEN_PIPE = 141
EXIT_INTERRUPTED = 130


def complain(what: str) -> None:
    """One line on stderr."""
    typer.echo(f"fencelog: {' '.join(what.split())}", err=True)


def topic_name(name: str) -> str:
    """``NAMESPACE/NAME`` of what was typed; ``NAME`` alone is in the namespace ``default``."""
    return name if "/" in name else f"default/{name}"
