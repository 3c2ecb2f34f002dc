"""Every state that the metadata tree has had, so that a server that lags behind can be asked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.metastore.memory import MemoryCluster
from fencelog.ledgers.metastore.paths import parent_of
from fencelog.ledgers.metastore.port import Versioned


class TreeHistory:
    """Changes of a tree, numbered from 1 (ZooKeeper's zxid); state 0 is what was there before. What
    is committed together has one number: no server shows a part of it."""

    def __init__(self, cluster: MemoryCluster, now_us: Callable[[], int]) -> None:
        self._cluster = cluster
        self._now_us = now_us
        self._values: dict[str, list[tuple[int, Versioned | None]]] = {}
        self._names: dict[str, dict[str, None]] = {}
        self._times_us: list[int] = []
        self._transactions = 0
        self._take("")
        cluster.subscribe(self._changed)

    @property
    def newest(self) -> int:
        return len(self._times_us)

    def applied(self, lag_us: int) -> int:
        """The state of a server that is so far behind."""
        return bisect_right(self._times_us, self._now_us() - lag_us)

    def value(self, path: str, state: int) -> Versioned | None:
        """The node in that state; None if it was not there."""
        values = self._values.get(path)
        if values is None:
            return None
        if values[-1][0] <= state:  # mostly
            return values[-1][1]
        at = bisect_right(values, state, key=lambda item: item[0])
        return values[at - 1][1] if at else None

    def children(self, path: str, state: int) -> list[str] | None:
        """Sorted names in that state; None if the node was not there."""
        if self.value(path, state) is None:
            return None
        names = self._names.get(path, {})
        return sorted(name for name in names if self.value(f"{path}/{name}", state) is not None)

    def _take(self, path: str) -> None:
        """Record the nodes that exist at the beginning."""
        self._record(path)
        for name in self._cluster.children(path):
            self._take(f"{path}/{name}")

    def _changed(self, path: str) -> None:
        if self._transactions != self._cluster.transactions:
            self._transactions = self._cluster.transactions
            self._times_us.append(self._now_us())
        self._record(path)

    def _record(self, path: str) -> None:
        try:
            value = self._cluster.get(path)
        except FencelogError:
            value = None
        self._values.setdefault(path, []).append((self.newest, value))
        if path:
            self._names.setdefault(parent_of(path), {})[path.rpartition("/")[2]] = None
