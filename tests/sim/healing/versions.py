"""The versions of each ledger's metadata, and from when on each was the current one."""

from __future__ import annotations

import asyncio

from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from tests.sim.oracle.history import History


class MetadataVersions:
    """All versions of one history. None stands for a ledger that was deleted."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._versions: dict[int, list[tuple[float, LedgerMetadata | None]]] = {}

    def changed(self, ledger_id: int) -> None:
        """Note what the metadata store has of the ledger now."""
        now = asyncio.get_running_loop().time()
        latest = self._history.latest(ledger_id)
        self._versions.setdefault(ledger_id, []).append((now, latest))

    def latest(self, ledger_id: int) -> LedgerMetadata | None:
        """Return the version that was noted last; None: the ledger does not exist."""
        versions = self._versions.get(ledger_id)
        return versions[-1][1] if versions else None

    def since(self, ledger_id: int, begin_s: float) -> list[LedgerMetadata | None]:
        """Return the versions that were current at this time or later, the oldest first."""
        versions = self._versions.get(ledger_id, [])
        ends = [begun_s for begun_s, _ in versions[1:]]
        return [
            version
            for (_, version), end_s in zip(versions, [*ends, float("inf")], strict=True)
            if end_s >= begin_s
        ]
