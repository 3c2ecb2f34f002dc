"""The forecast of a full disk, from the space that was left at earlier times. Pure.

A flush, a garbage collection or a deleted topic moves the free space in steps, so the forecast is
the line through all samples of the last hours, not through the last two.
"""

from __future__ import annotations

from collections import deque

SAMPLE_INTERVAL_S = 60.0
MAX_SAMPLES = 360
"""A sample each minute of the last six hours: a daily peak shows, and yesterday's does not."""

MIN_SPAN_S = 600.0
"""The shortest time that says anything: a start replays a journal, and preallocates files."""

FARTHEST_S = 90 * 86_400.0
"""The end of what is foretold: nobody acts today on a disk that is full in a year."""


class DiskForecast:
    """The samples of one disk, and what follows from them."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=MAX_SAMPLES)

    def note(self, now_s: float, left_bytes: int) -> None:
        """Note the space that is left; called as often as one likes."""
        if not self._samples or now_s - self._samples[-1][0] >= SAMPLE_INTERVAL_S:
            self._samples.append((now_s, left_bytes))

    def full_in_s(self) -> int | None:
        """Return the time from the last sample until no space is left; None: it does not shrink,
        will last for long, or has been watched for too short a time."""
        if not self._samples:
            return None
        last_s, left = self._samples[-1]
        if last_s - self._samples[0][0] < MIN_SPAN_S:
            return None
        shrinks_by = -self._slope()
        if shrinks_by <= 0 or left > shrinks_by * FARTHEST_S:
            return None
        return round(max(0, left) / shrinks_by)

    def _slope(self) -> float:
        """Return the slope of the line with the least squares, in bytes a second."""
        count, (last_s, last) = len(self._samples), self._samples[-1]
        # Both are relative to the last sample: their squares stay exact.
        points = [(at_s - last_s, left - last) for at_s, left in self._samples]
        mean_s = sum(at_s for at_s, _ in points) / count
        mean = sum(left for _, left in points) / count
        spread = sum((at_s - mean_s) ** 2 for at_s, _ in points)
        return sum((at_s - mean_s) * (left - mean) for at_s, left in points) / spread
