"""The check of an owner whose log is only read whether the log still belongs to it.

An owner that was replaced learns it by its next entry, or by the next change of the ledger list.
The owner node says it too, but not always: a broker that paused between claiming the node and
reading the list takes the log from the node's next holder, and gives it up again when it sees that
node. What it has acknowledged in between is in the log, and the holder of the node does not know of
it.
"""

from __future__ import annotations

import asyncio
import logging

from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.broker.limits import QUIET_CHECK_MS
from fencelog.broker.read.log_reader import LogReader
from fencelog.ledgers.errors import FencelogError

log = logging.getLogger(__name__)


class QuietCheck:
    """Looks at the ledger list if the log was asked for messages and has acknowledged none for
    QUIET_CHECK_MS. ``node.call_when_lost`` reports a loss."""

    def __init__(self, node: LedgerListStore, reader: LogReader) -> None:
        self._node = node
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._tail_offset = reader.tail_offset
        self._since_s = self._loop.time()

    def is_due(self) -> bool:
        """Tell whether the next call of ``check`` looks. Called now and then."""
        if self._reader.tail_offset != self._tail_offset:
            self._restart()  # it was not replaced before it acknowledged that
        waited_s = self._loop.time() - self._since_s
        return self._reader.was_asked and waited_s * 1000 >= QUIET_CHECK_MS

    async def check(self) -> None:
        """Look. Raises LedgerListLost if another owner has taken the log over; while the store does
        not answer, nothing is known."""
        self._reader.was_asked = False
        self._restart()
        try:
            await self._node.check_epoch()
        except LedgerListLost:
            raise
        except FencelogError as error:
            log.info("%s: cannot tell whether it is still ours: %s", self._node.path, error)

    def _restart(self) -> None:
        self._tail_offset, self._since_s = self._reader.tail_offset, self._loop.time()
