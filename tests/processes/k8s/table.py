"""The result of a scenario, what it breaks of the promises, and the table of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_HEADER = (
    *("scenario", "s", "acknowledged", "errors", "longest gap", "lost", "doubled", "misplaced"),
    *("copies whole after", "result"),
)


@dataclass(frozen=True)
class Limits:
    """What clients may notice of a scenario. ``gap_s``: the longest time between two
    acknowledgements of a client; ``errors``: whether any append may fail; ``leader_s``: the time
    that is added where ZooKeeper's leader was on a node that is broken."""

    gap_s: float
    errors: bool
    leader_s: float = 0.0


@dataclass
class Result:
    """The result of a scenario. ``seconds``: until all pods were ready again, without the check of
    copies. ``whole_s``: after the load had ended; None: copies were still missing. ``broken``: each
    promise that did not hold, in words. ``notes``: what else was seen."""

    scenario: str
    seconds: float = 0.0
    window: dict[str, Any] | None = None
    account: dict[str, Any] | None = None
    whole_s: float | None = None
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def gap_s(self) -> float:
        gaps = (self.window or {}).get("gaps") or [{"seconds": 0.0}]
        return float(gaps[0]["seconds"])


def broken_promises(result: Result, limits: Limits | None) -> Iterator[str]:
    """Yield what a result breaks. Without limits there was no load."""
    counts = result.account
    if counts is not None:
        for name in ("lost", "duplicated", "out_of_order", "foreign"):
            if counts[name]:
                yield f"{counts[name]} messages {name.replace('_', ' ')}"
        if not counts["acknowledged"]:
            yield "nothing was acknowledged"
    if result.whole_s is None:
        yield "copies are missing"
    if limits is None or result.window is None:
        return
    if not result.window["acknowledged"]:
        yield "nothing was acknowledged meanwhile"
    if result.gap_s > limits.gap_s:
        longest = result.window["gaps"][0]
        yield (
            f"{longest['client']} waited {longest['seconds']:.1f} s from "
            f"{longest['after_s']:.0f} s on, {limits.gap_s:g} s are allowed"
        )
    if result.window["errors"] and not limits.errors:
        yield f"{sum(result.window['errors'].values())} errors"


def errors_text(errors: dict[str, int]) -> str:
    """Return the errors by kind of client and code, for a cell."""
    return ", ".join(f"{count} {name}" for name, count in errors.items()) or "0"


def table(results: Iterable[Result]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| {' | '.join(_HEADER)} |"
    yield "|" + "---|" * len(_HEADER)
    for result in results:
        yield f"| {' | '.join(_cells(result))} |"


def _cells(result: Result) -> list[str]:
    if result.skipped:
        return [f"`{result.scenario}`", *[""] * (len(_HEADER) - 2), f"not run: {result.skipped}"]
    window, counts = result.window, result.account
    return [
        f"`{result.scenario}`",
        f"{result.seconds:.0f}",
        f"{window['acknowledged']:,}" if window else "",
        errors_text(window["errors"]) if window else "",
        f"{result.gap_s:.2f} s" if window else "",
        *(str(counts[name]) if counts else "" for name in ("lost", "duplicated", "out_of_order")),
        "never" if result.whole_s is None else f"{result.whole_s:.0f} s",
        "; ".join([*(result.broken or ["as promised"]), *result.notes]),
    ]
