"""The auditor's balancing: it reads all metadata, and marks what is to be moved.

Off unless the cluster has a rate for it (``AutorecoverySettings.balance_bytes_per_s``). Lost copies
come first: nothing is planned while any ledger is marked, and moves in progress are left alone
until they are over. A mark for a move is nothing but a proposal: the worker decides by the metadata
and the registrations of its own moment (``replication/repair.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fencelog.bookie.auditor.registered import read_bookies
from fencelog.bookie.auditor.scan import scan_ledgers
from fencelog.bookie.balance.core import BalanceVerdict, Fills, MovePlanner, stored_bytes
from fencelog.bookie.balance.limits import (
    AVOID_MS,
    BEGIN_SHARE,
    END_SHARE,
    INTERVAL_MS,
    LOOK_MS,
    MAX_MOVES,
    ROUND_MS,
    SCAN_SHARE,
)
from fencelog.bookie.replication.settings import AutorecoverySettings, watch_settings
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import MetadataStore

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BalanceConfig:
    """The settings of balancing. Shares are those of the mean."""

    begin_share: float = BEGIN_SHARE
    end_share: float = END_SHARE
    max_moves: int = MAX_MOVES
    round_ms: int = ROUND_MS
    look_ms: int = LOOK_MS
    interval_ms: int = INTERVAL_MS


class BalancePhase(Enum):
    """The present work of the balancer."""

    OFF = "off"
    WAITING = "waiting"
    """Ledgers lack copies, or a bookie that has copies is away."""
    MOVING = "moving"
    EVEN = "even"
    STUCK = "stuck"
    """Bookies differ, and no fragment can be moved: each is too large, or needed where it is."""


class BookieBalancer:
    """The balancing of the process that is the auditor. ``key``: that of the ledgers, where they
    have one; ``marked``: the ledgers marked since the start of the process."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        host: Host,
        config: BalanceConfig | None = None,
        key: bytes = b"",
    ) -> None:
        self._store = store
        self._host = host
        self._config = config or BalanceConfig()
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._marks = UnderReplicatedLedgers(store)
        self._settings = AutorecoverySettings()
        self._changed = asyncio.Event()
        self._is_begun = False
        """The distance was above ``begin_share``, and has not come down to ``end_share`` since."""
        self._planned_at: dict[tuple[int, int, str], float] = {}
        """The moves that were planned, and when: one that is possible again was dropped."""
        self._fills: Fills | None = None
        self.phase = BalancePhase.OFF
        self.marked = 0

    async def run(self) -> None:
        """Balance until cancelled. Errors of the store pass."""
        self._is_begun, self._fills, self.phase = False, None, BalancePhase.OFF
        watch = watch_settings(self._store, self._on_settings)
        try:
            while True:
                self._changed.clear()
                try:
                    pause_s = await self._step()
                except FencelogError as error:
                    _log.warning("balance: %s", error.detail)
                    pause_s = self._config.look_ms / 1000
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._changed.wait()
        finally:
            watch.close()

    def status(self) -> dict[str, Any]:
        """Return what it does, and how full bookies were when all metadata was last read, as
        JSON-compatible values."""
        fills = self._fills
        return {
            "phase": self.phase.value,
            "marked": self.marked,
            "ledger_bytes": {} if fills is None else dict(sorted(fills.stored.items())),
            "distance_share": _share(fills),
        }

    def _on_settings(self, settings: AutorecoverySettings) -> None:
        if settings != self._settings:
            self._settings = settings
            self._changed.set()

    async def _step(self) -> float:
        """Plan moves, unless something else is to be done first; return the pause."""
        rate = self._settings.balance_bytes_per_s
        if rate is None or self._settings.is_disabled:
            self._is_begun, self._fills, self.phase = False, None, BalancePhase.OFF
            return self._config.interval_ms / 1000
        look_s = self._config.look_ms / 1000
        if (phase := await self._marked_phase()) is not None:
            self.phase = phase
            return look_s
        began = self._loop.time()
        fills = await self._read_fills()
        share = self._config.end_share if self._is_begun else self._config.begin_share
        verdict = fills.verdict(above_share=share)
        self._is_begun = verdict is BalanceVerdict.UNEVEN
        if verdict is BalanceVerdict.UNEVEN:
            self.phase = await self._plan(fills, rate)
        else:
            self.phase = (
                BalancePhase.EVEN if verdict is BalanceVerdict.EVEN else BalancePhase.WAITING
            )
        pause_s = look_s if self.phase is BalancePhase.MOVING else self._config.interval_ms / 1000
        return max(pause_s, SCAN_SHARE * (self._loop.time() - began))

    async def _marked_phase(self) -> BalancePhase | None:
        """Tell what there is to wait for: ledgers that lack copies, or moves; None: nothing. A
        mark that cannot be read may be one of a ledger that lacks copies."""
        phase = None
        unreadable: list[FencelogError] = []
        async with contextlib.aclosing(self._marks.list(unreadable.append)) as marks:
            async for mark in marks:
                if not mark.is_for_balance:
                    return BalancePhase.WAITING
                phase = BalancePhase.MOVING
        return BalancePhase.WAITING if unreadable else phase

    async def _read_fills(self) -> Fills:
        """Read all bookies, and all metadata."""
        known = await read_bookies(self._store)
        stored = Counter[str]()
        async for metadata in scan_ledgers(self._store, unreadable=[]):
            stored.update(stored_bytes(metadata))
        bookies = {b: info for b, info in known.registered.items() if info is not None}
        self._fills = Fills(bookies, stored)
        return Fills(bookies, stored)

    async def _plan(self, fills: Fills, rate: int) -> BalancePhase:
        """Choose moves, of the newest ledgers first, which stay the longest; and mark them."""
        now = self._loop.time()
        still_s = AVOID_MS / 1000
        self._planned_at = {m: at for m, at in self._planned_at.items() if at > now - still_s}
        planner = MovePlanner(
            fills,
            most=self._config.max_moves,
            most_bytes=rate * self._config.round_ms // 1000,
            end_share=self._config.end_share,
            avoid=self._planned_at.keys(),
        )
        scan = scan_ledgers(self._store, unreadable=[], newest_first=True)
        async with contextlib.aclosing(scan) as ledgers:
            async for metadata in ledgers:
                if metadata.digest_type is not DigestType.HMAC_SHA256 or self._key:
                    planner.offer(metadata)
                if planner.is_done:
                    break
        if await self._marked_phase() is not None:
            return BalancePhase.WAITING  # something was marked meanwhile
        for ledger_id, moves in planner.planned.items():
            if await self._marks.mark_moves(ledger_id, moves, now_us=self._host.now_us()):
                self.marked += 1
            for move in moves:
                key = (ledger_id, move.first_entry_id, move.bookie_id)
                self._planned_at[key] = now
        if planner.planned:
            _log.info(
                "balance: %d ledgers are to be moved, %d bytes",
                len(planner.planned),
                planner.planned_bytes,
            )
        return BalancePhase.MOVING if planner.planned else BalancePhase.STUCK


def _share(fills: Fills | None) -> float | None:
    """Return the distance of fullest and emptiest as a share of the mean; None: not known."""
    if fills is None or not fills.mean:
        return None
    return round(fills.distance / fills.mean, 3)
