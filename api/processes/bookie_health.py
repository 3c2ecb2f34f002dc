"""The health of a bookie, for its supervisor: what only a restart mends, and what it waits for."""

from __future__ import annotations

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import JOURNAL_STUCK_MS

REGISTRATION = "registration"
"""The part of a bookie's status that tells whether it is ``registered``, so that clients find
it."""


class BookieHealth:
    """The checks of one bookie that serves.

    A bookie that is read-only is well: it serves reads, and its registration says that it takes no
    adds. One in limbo serves, too, but is not ready: as long as it lacks copies, no other bookie
    should be stopped. (It lacks none of ledgers that only others are to have.) The metadata store
    does not count, unless it says that the registration is gone: its outage is no fault of any
    bookie.
    """

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie

    def check_live(self) -> None:
        """Check that the journal moves. Raises FencelogError(STORAGE_FAILED)."""
        stalled_s = max(shard.journal.stalled_s for shard in self._bookie.shards)
        if stalled_s * 1000 >= JOURNAL_STUCK_MS:
            raise FencelogError(
                ErrorCode.STORAGE_FAILED,
                f"the journal of bookie {self._bookie.bookie_id} has not moved for {stalled_s:.0f} "
                "s: its disk does not answer",
            )

    async def check_ready(self) -> None:
        """Check that the bookie is registered, lacks no copies, and that its journal moves. Raises
        FencelogError(BOOKIE_UNAVAILABLE, LEDGER_IN_LIMBO, STORAGE_FAILED)."""
        self.check_live()
        bookie_id = self._bookie.bookie_id
        if not self._bookie.status_parts[REGISTRATION]()["registered"]:
            raise FencelogError(
                ErrorCode.BOOKIE_UNAVAILABLE, f"bookie {bookie_id} is not registered: none finds it"
            )
        in_limbo = sum(shard.states.lacking for shard in self._bookie.shards)
        if in_limbo:
            raise FencelogError(
                ErrorCode.LEDGER_IN_LIMBO,
                f"bookie {bookie_id} still has to copy what it may have lost of {in_limbo} ledgers",
            )
