"""``fencelog bookie COMMAND``: the data of a bookie that does not run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataOption = Annotated[Path, typer.Option(metavar="DIR", help="Where the bookie's data is.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def add_to(bookie: typer.Typer) -> None:
    """Add the commands to the group that runs a bookie where none of them is named."""
