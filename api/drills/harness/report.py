"""The report of a drill: one shape for scripts, a table for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.table import Table

from fencelog.api.drills.harness.account import Account


class Report(Protocol):
    """A report. ``as_json`` holds every metric and the notes; a drill that is not clean exits with
    1."""

    @property
    def notes(self) -> list[str]: ...

    @property
    def is_clean(self) -> bool: ...

    def as_json(self) -> dict[str, object]: ...


@dataclass(slots=True)
class DrillReport:
    """The outcome of a drill. ``failover_ms``: the longest of its interruptions, from the failure
    (the kill, the stop, the cut) to the first acknowledged append that was sent after it; where no
    interruption is expected, the longest wait of a client. None: the service did not recover.
    ``broken``: expectations of the drill that were not met, in words."""

    drill: str
    account: Account = field(default_factory=Account)
    failover_ms: float | None = 0.0
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        served = self.account.acknowledged > 0 and self.failover_ms is not None
        return self.account.is_clean and served and not self.broken

    def interrupted(self, failover_ms: float | None) -> None:
        """Count an interruption; None: it was followed by no acknowledgement."""
        if failover_ms is None or self.failover_ms is None:
            self.failover_ms = None
        else:
            self.failover_ms = max(self.failover_ms, failover_ms)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Note ``otherwise`` unless the condition holds: a drill that did not go as intended proves
        nothing."""
        if not holds:
            self.broken.append(otherwise)
            self.notes.append(otherwise)

    def as_json(self) -> dict[str, object]:
        """Return the shape that every drill prints."""
        return {
            "drill": self.drill,
            "acknowledged": self.account.acknowledged,
            "lost": self.account.lost,
            "duplicated": self.account.duplicated,
            "out_of_order": self.account.out_of_order,
            "failover_ms": self.failover_ms,
            "notes": self.notes,
        }


def milliseconds(value: float | None) -> str:
    """Format a time for people."""
    return "never" if value is None else f"{value:,.0f} ms"


def print_table(report: Report) -> None:
    """Print the report for people."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in report.as_json().items():
        if name != "notes" and value is not None:
            shown = f"{value:,}" if isinstance(value, int) else str(value)
            table.add_row(name.replace("_", " "), shown)
    console = Console(highlight=False)
    console.print(table)
    for note in report.notes:
        console.print(note, style="dim")
    console.print("nothing lost, doubled or out of order" if report.is_clean else "NOT CLEAN")
