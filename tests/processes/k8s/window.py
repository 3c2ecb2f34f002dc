"""The availability that clients saw in one scenario: acknowledgements, errors, the longest gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Gap:
    """A time between two acknowledgements of one client. ``after_s``: since the window began."""

    client: str
    after_s: float
    seconds: float


class Window:
    """What happened to appends since ``began_at``, in seconds of any clock.

    A gap is a client's own: each has one append in flight at a time, so that one which nobody
    answers counts in full. It begins with the window, or with an acknowledgement; it ends with the
    next one, or with the window.
    """

    def __init__(self, began_at: float, clients: Iterable[str]) -> None:
        self._began_at = began_at
        self._served_at = dict.fromkeys(clients, began_at)
        self._longest: dict[str, Gap] = {}
        self.acknowledged = 0
        self.errors: Counter[str] = Counter()

    def on_acknowledged(self, client: str, now: float) -> None:
        """Count an acknowledged append."""
        self.acknowledged += 1
        self._end_gap(client, now)
        self._served_at[client] = now

    def on_error(self, client: str, code: str) -> None:
        """Count an append that was refused, or got no answer."""
        self.errors[f"{client.partition(' ')[0]}: {code}"] += 1

    def report(self, now: float) -> dict[str, Any]:
        """End the window, and return what clients saw, as JSON has it."""
        for client in self._served_at:
            self._end_gap(client, now)
        gaps = sorted(self._longest.values(), key=lambda gap: -gap.seconds)
        return {
            "seconds": round(now - self._began_at, 1),
            "acknowledged": self.acknowledged,
            "errors": dict(sorted(self.errors.items())),
            "gaps": [
                {
                    "client": gap.client,
                    "after_s": round(gap.after_s, 1),
                    "seconds": round(gap.seconds, 3),
                }
                for gap in gaps
            ],
        }

    def _end_gap(self, client: str, now: float) -> None:
        since = self._served_at[client]
        longest = self._longest.get(client)
        if longest is None or now - since > longest.seconds:
            self._longest[client] = Gap(client, since - self._began_at, now - since)
