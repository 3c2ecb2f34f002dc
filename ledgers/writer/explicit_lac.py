"""The LAC that a writer sends by itself: the timer of an idle ledger, and the answers of bookies.

The LAC travels with the next add. Where no add follows, the last entries would stay invisible to
readers of the bookies; so it is sent once by itself. Safety does not depend on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.writer.core import WriterCore


class ExplicitLac:
    """The timer of one writer: it is set by acknowledgements and expires at most once an interval,
    however many adds there are. ``interval_ms`` 0: never."""

    def __init__(self, core: WriterCore, *, interval_ms: int, tell: Callable[[int], None]) -> None:
        self._core = core
        self._interval_s = interval_ms / 1000
        self._tell = tell
        self._last_add_pushed = core.last_add_pushed
        self._timer: asyncio.TimerHandle | None = None

    def acknowledged(self) -> None:
        """Schedule the LAC, which has grown, to be sent unless an add carries it."""
        if self._timer is None and self._interval_s > 0:
            self._wait()

    def stop(self) -> None:
        """Stop the timer permanently: the writer is closing or finished."""
        self._interval_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._last_add_pushed = self._core.last_add_pushed
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._time_is_over)

    def _time_is_over(self) -> None:
        self._timer = None
        core = self._core
        if core.has_pending:
            return  # its acknowledgement begins anew
        if core.last_add_pushed != self._last_add_pushed:
            self._wait()
        else:
            self._tell(core.lac)


class LacReplies:
    """The answers of an ensemble to one LAC. ``enough``: Qa members of every write set know it, so
    that a recovery hears it from one of those that it fences; or all have answered."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self._waiting = metadata.ensemble_size
        self._needed = metadata.ensemble_size - metadata.write_quorum + metadata.ack_quorum
        self.enough = asyncio.Event()

    def take(self, error: FencelogError | None) -> None:
        """Count the answer of one bookie."""
        self._waiting -= 1
        self._needed -= error is None
        if self._needed <= 0 or self._waiting == 0:
            self.enough.set()
