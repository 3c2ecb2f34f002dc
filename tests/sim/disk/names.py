"""The names in one directory of a simulated disk: what processes see, and what a crash leaves."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from tests.sim.disk.files import FileData


@dataclass(frozen=True, slots=True)
class _Change:
    """A name taken from a file, a name given to it, or both at once."""

    file: FileData
    removed: str | None = None
    added: str | None = None

    def apply(self, names: dict[str, FileData]) -> None:
        if self.removed is not None and names.get(self.removed) is self.file:
            del names[self.removed]
        if self.added is not None:
            names[self.added] = self.file


class Directory:
    """Files by name, and the changes that are not durable yet."""

    def __init__(self) -> None:
        self.names: dict[str, FileData] = {}
        self._durable: dict[str, FileData] = {}
        self._unsynced: list[_Change] = []

    def add(self, name: str, file: FileData) -> None:
        self._change(_Change(file, added=name))

    def remove(self, name: str) -> None:
        self._change(_Change(self.names[name], removed=name))

    def rename(self, name: str, to: str) -> None:
        file = self.names[name]
        self._change(_Change(file, removed=name, added=to))
        file.name = to

    def sync(self) -> None:
        self._durable = dict(self.names)
        self._unsynced.clear()

    def lose_power(self, random: Random) -> None:
        """Each change since the last sync is kept or not. A rename is one change."""
        share = random.choice((0.0, 0.5, 0.5, 1.0))
        names = dict(self._durable)
        for change in self._unsynced:
            if random.random() < share:
                change.apply(names)
        self.names = names
        self.sync()
        for name, file in names.items():
            file.name = name

    def files(self) -> list[FileData]:
        """Every file that has a name here, or may have one after a crash."""
        changed = [change.file for change in self._unsynced]
        return list(dict.fromkeys([*self._durable.values(), *self.names.values(), *changed]))

    def _change(self, change: _Change) -> None:
        change.apply(self.names)
        self._unsynced.append(change)
