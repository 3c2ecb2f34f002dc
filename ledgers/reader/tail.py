"""The wait for the LAC of an open ledger to advance: long polls to the members of its last
fragment.

A bookie answers a long poll when its LAC has passed the LAC in the request, at the end of the wait,
or when the ledger is fenced. Bookies are not notified that a writer closed its ledger or replaced a
member: after an answer without news, and after each round, the reader reads metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.reader.core import LacRound
from fencelog.ledgers.reader.fan_out import cancel_all
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

GRACE_S = 0.1
"""The time for which a round waits for answers that were sent at the end of the wait."""


@dataclass(slots=True)
class _Poll:
    task: asyncio.Task[int | FencelogError]
    round: LacRound
    """The round in which it was sent."""


class LacPolls:
    """The long polls of one reader. One at a time is in flight to each bookie: it stays for the
    next round when its round is over, so that polls do not accumulate at a bookie that hangs."""

    def __init__(self, bookies: BookieDirectory) -> None:
        self._bookies = bookies
        self._polls: dict[str, _Poll] = {}

    async def round(
        self,
        metadata: LedgerMetadata,
        above: int,
        *,
        wait_ms: int,
        has_changed: Callable[[], Awaitable[bool]],
    ) -> LacRound:
        """Ask all members; ends at the first LAC greater than ``above``, when all have answered or
        failed, when the wait is over, or when metadata has changed: ``has_changed`` is called once,
        after the first answer without news."""
        round_ = LacRound(metadata)
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000 + GRACE_S
        is_checked = False
        while not round_.is_over and round_.highest <= above:
            done = await self._next(round_, above, wait_ms, deadline)
            if not done:
                break
            if is_checked or not round_.answered:
                continue
            is_checked = True
            if round_.highest <= above and await has_changed():
                break
        return round_

    async def _next(self, round_: LacRound, above: int, wait_ms: int, deadline: float) -> bool:
        """Wait for the next answers; False when there are none before the deadline."""
        loop = asyncio.get_running_loop()
        open_members = [
            (index, bookie)
            for index, bookie in enumerate(round_.members)
            if index not in round_.answered and index not in round_.failed
        ]
        for _, bookie in open_members:
            if bookie not in self._polls:
                ask = self._ask(bookie, round_.metadata.ledger_id, above, wait_ms)
                self._polls[bookie] = _Poll(loop.create_task(ask), round_)
        done, _ = await asyncio.wait(
            [self._polls[bookie].task for _, bookie in open_members],
            timeout=max(0.0, deadline - loop.time()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        for index, bookie in open_members:
            if self._polls[bookie].task in done:
                poll = self._polls.pop(bookie)
                answer = poll.task.result()
                # A poll from an earlier round was about an earlier LAC: without news ask again.
                is_news = isinstance(answer, int) and answer > above
                if poll.round is round_ or is_news:
                    round_.answer(index, answer)
        return bool(done)

    async def _ask(
        self, bookie_id: str, ledger_id: int, above: int, wait_ms: int
    ) -> int | FencelogError:
        try:
            return await self._bookies.client(bookie_id).read_lac(
                ledger_id, above=above, wait_ms=wait_ms
            )
        except FencelogError as error:
            return error

    async def close(self) -> None:
        """End the polls in flight."""
        polls, self._polls = self._polls, {}
        await cancel_all([poll.task for poll in polls.values()])
