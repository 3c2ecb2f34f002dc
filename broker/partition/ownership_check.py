"""The check of an owner whether the log still belongs to it, made when an append builds on others
that it does not have, or names another token or claim than it knows of; when an offset is beyond
the tail; when an ack id comes from a later epoch; and when other consumers, cursors,
committers or ledgers leave no place for one more.

An owner that was replaced learns it from the bookies, by the next entry, or from the ledger list,
by the next change. One that only refuses appends touches neither, and a producer that has continued
with the new owner would get a sequence gap reported by the previous one, and one that fenced the
partition there would be told that it was fenced itself: definite answers, and wrong. So such a
request is refused only after a check that began when the request was there.
"""

from __future__ import annotations

import asyncio
import logging

from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore
from fencelog.ledgers.errors import FencelogError

PAUSE_S = 0.1
"""Pause between two checks: a faulty producer must not keep the metadata store busy."""

log = logging.getLogger(__name__)


class OwnershipCheck:
    """Checks the ownership of one partition's log. ``node.call_when_lost`` reports a loss; an
    idle check costs nothing."""

    def __init__(self, node: LedgerListStore, *, timeout_s: float) -> None:
        """Begin idle. ``timeout_s``: the limit for one check, while the metadata store does not
        answer."""
        self._node = node
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._asked: list[asyncio.Future[bool]] = []
        self._checking: asyncio.Task[None] | None = None
        self._not_before_s = 0.0
        self._closed = False

    def check_soon(self) -> asyncio.Future[bool]:
        """Read the ledger list, soon and after this call; the result tells whether the log still
        belongs to this owner, as far as can be known. Callers in the meantime share the next
        check."""
        asked: asyncio.Future[bool] = self._loop.create_future()
        if self._closed:
            asked.set_result(False)
            return asked
        self._asked.append(asked)
        if self._checking is None:
            self._checking = self._loop.create_task(self._run(), name=f"look at {self._node.path}")
        return asked

    async def close(self) -> None:
        """End all checks. Never raises."""
        self._closed = True
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait((self._checking,))
        self._answer(self._asked, is_ours=False)

    async def _run(self) -> None:
        try:
            while self._asked:
                await asyncio.sleep(self._not_before_s - self._loop.time())
                asked, self._asked = self._asked, []
                self._not_before_s = self._loop.time() + PAUSE_S
                is_ours = False
                try:
                    is_ours = await self._is_ours()
                finally:
                    self._answer(asked, is_ours=is_ours)
        finally:
            self._checking = None

    async def _is_ours(self) -> bool:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._node.check_unchanged()
        except LedgerListLost as lost:
            log.info("%s: %s", self._node.path, lost)
        except TimeoutError:
            log.warning("%s: cannot tell whether it is still ours: no answer", self._node.path)
        except FencelogError as error:
            log.warning("%s: cannot tell whether it is still ours: %s", self._node.path, error)
        else:
            return True
        return False

    def _answer(self, asked: list[asyncio.Future[bool]], *, is_ours: bool) -> None:
        for future in asked:
            if not future.done():
                future.set_result(is_ours)
