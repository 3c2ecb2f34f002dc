"""The bookies that are away, and since when: which of them count as lost. Pure.

A restart must copy nothing, so a bookie counts as lost only after a grace time in which it was seen
to be absent again and again. Each bookie has its own: several that are absent at once are a rolling
restart, or a rack without power, and no reason to hurry. The clocks begin anew where absence says
nothing about the bookie: when the auditor's own session has ended (so may have all others), when
its connection was broken, and when it could not look for a while. So does the clock of a new
auditor, which knows nothing of before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

MAX_LOOK_GAP_S = 30.0
"""The longest time between two looks at the registrations, which are 10 s apart, after which the
clocks go on: what was not looked at may have been there."""


@dataclass(frozen=True, slots=True)
class Absences:
    """The absent bookies by the last look. ``since``: the look that found each of them absent
    first, in seconds of the event loop; ``seen_at``: the last look; ``session_id``: that of the
    metadata session."""

    since: Mapping[str, float] = field(default_factory=dict)
    seen_at: float = float("-inf")
    session_id: int = 0

    def after_look(
        self, expected: Collection[str], present: Collection[str], *, session_id: int, now: float
    ) -> Absences:
        """Return the absences after a look. ``expected``: the bookies that belong to the cluster;
        ``present``: those that are registered, writable or read-only."""
        goes_on = session_id == self.session_id and now - self.seen_at <= MAX_LOOK_GAP_S
        before = self.since if goes_on else {}
        since = {b: before.get(b, now) for b in sorted(set(expected) - set(present))}
        return Absences(since, now, session_id)

    def lost(self, *, grace_s: float, now: float) -> frozenset[str]:
        """Return the bookies that have been absent for the grace time; none if the last look is too
        long ago: an auditor that was suspended has to look first."""
        if now - self.seen_at > MAX_LOOK_GAP_S:
            return frozenset()
        return frozenset(b for b, since in self.since.items() if now >= since + grace_s)

    def next_lost_at(self, *, grace_s: float, now: float) -> float | None:
        """Return the time at which the next bookie will be lost, None if none is about to be."""
        due = (since + grace_s for since in self.since.values())
        return min((at for at in due if at > now), default=None)
