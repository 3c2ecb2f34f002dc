"""What a drill says at its end: one shape for scripts, a table for people."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.table import Table


class Report(Protocol):
    """``as_json`` holds every figure and the notes; a drill that is not clean exits with 1."""

    @property
    def notes(self) -> list[str]: ...

    @property
    def is_clean(self) -> bool: ...

    def as_json(self) -> dict[str, object]: ...


def print_table(report: Report) -> None:
    """The report for a person."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in report.as_json().items():
        if name != "notes":
            shown = f"{value:,}" if isinstance(value, int) else str(value)
            table.add_row(name.replace("_", " "), shown)
    console = Console(highlight=False)
    console.print(table)
    for note in report.notes:
        console.print(note, style="dim")
    console.print("nothing lost, doubled or out of order" if report.is_clean else "NOT CLEAN")
