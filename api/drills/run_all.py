"""``fencelog drill all``: one drill after the other, each in a process of its own, and a table."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from fencelog.api.local_cluster.child_process import fencelog_command
from fencelog.ledgers.errors import ErrorCode, FencelogError

SAFE = ("load", "unload")
"""The drills that need a service and nothing else."""

DRILLS = (
    *SAFE,
    "drain",
    "kill-broker",
    "pause-broker",
    "partition",
    "rolling-restart",
    "zookeeper-restart",
    "kill-bookie",
    "pause-bookie",
    "lose-bookie-disk",
    "rolling-restart --bookies",
    "lose-bookie",
    "two-lost",
    "lose-zone",
    "stuck-repair",
    "decommission",
    "add-bookies",
    "full-disk",
    "full-standalone",
)

OPTIONS: Mapping[str, Sequence[str]] = {
    "drain": ("--times", "4"),
    "kill-broker": ("--times", "3"),
    "kill-bookie": ("--times", "20"),
    "pause-bookie": ("--times", "1"),
}
"""The options with which a round of all drills stays short."""


@dataclass(frozen=True, slots=True)
class DrillOutcome:
    """The outcome of a drill. ``report``: its printed report; None: it could not be run, for the
    ``reason``."""

    drill: str
    report: Mapping[str, Any] | None
    is_clean: bool
    reason: str = ""

    def as_json(self) -> dict[str, object]:
        return {"drill": self.drill, "clean": self.is_clean, "reason": self.reason} | dict(
            self.report or {}
        )


Runner = Callable[[str, Sequence[str]], Awaitable[DrillOutcome]]
"""A function that runs a drill with options."""


def chosen(names: Sequence[str], cluster: str | None) -> list[str]:
    """Return the drills to run: ``names``, or all; on an existing ``cluster``, the safe ones of
    all.

    Raises FencelogError(BAD_REQUEST) for one that does not exist, or may not be run there.
    """
    for name in names:
        if name not in DRILLS:
            known = ", ".join(DRILLS)
            raise FencelogError(ErrorCode.BAD_REQUEST, f"there is no drill {name}, but {known}")
        if cluster and name not in SAFE:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"{name} ends processes, or cuts them off: it runs on a cluster of its own only; "
                f"on one that is there run {' and '.join(SAFE)}",
            )
    return list(names) or list(SAFE if cluster else DRILLS)


async def run_drills(
    names: Sequence[str],
    cluster: str | None,
    *,
    runner: Runner,
    on_outcome: Callable[[DrillOutcome], None],
) -> bool:
    """Run drills one after the other, and tell whether all were clean."""
    is_clean = True
    for name in names:
        options = [*OPTIONS.get(name, ()), *(["--cluster", cluster] if cluster else [])]
        outcome = await runner(name, options)
        on_outcome(outcome)
        is_clean &= outcome.is_clean
    return is_clean


async def run_in_process(name: str, options: Sequence[str]) -> DrillOutcome:
    """Run ``fencelog drill NAME --json`` to its end."""
    process = await asyncio.create_subprocess_exec(
        *fencelog_command("drill", *name.split(), "--json", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.terminate()  # its own children end with it
        await process.wait()
        raise
    lines = errors.decode(errors="replace").strip().splitlines()
    reason = lines[-1].removeprefix("fencelog: ") if lines else ""
    report = json.loads(output) if output.strip() else None
    return DrillOutcome(name, report, process.returncode == 0, reason)


class Printer:
    """Prints outcomes as they come: a line of JSON each, or at the end a table."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = Console(highlight=False)
        self._table = Table(box=None, pad_edge=False)
        self._table.add_column("drill", no_wrap=True)
        for name in ("acknowledged", "lost", "duplicated", "out of order", "failover ms"):
            self._table.add_column(name, justify="right")
        self._table.add_column("clean")

    def show(self, outcome: DrillOutcome) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps(outcome.as_json()) + "\n")
            sys.stdout.flush()
            return
        self._table.add_row(outcome.drill, *_metrics(outcome.report), _verdict(outcome))
        self._console.print(f"{outcome.drill}: {_verdict(outcome)}", style="dim")
        for note in (outcome.report or {}).get("notes", [outcome.reason]):
            self._console.print(f"  {note}", style="dim", soft_wrap=True)

    def end(self) -> None:
        if not self._as_json:
            self._console.print(self._table)


def _metrics(report: Mapping[str, Any] | None) -> list[str]:
    names = ("acknowledged", "lost", "duplicated", "out_of_order", "failover_ms")
    values = [(report or {}).get(name) for name in names]
    return ["-" if value is None else f"{value:,.0f}" for value in values]


def _verdict(outcome: DrillOutcome) -> str:
    if outcome.report is None:
        return "not run"
    return "yes" if outcome.is_clean else "NO"
