"""The effects of a program on its disks, and the parts of them that a crash may leave.

A disk is an ``Image``: names, bytes, stores. ``Progress`` follows a sequence of effects and knows
at each point what is durable (STORAGE.md, "Assumptions about the disk") and what is pending:
written, created, renamed or removed, and not synced since. A crash keeps of the pending effects
whatever it likes; a ``Choice`` says what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

Store = dict[bytes, bytes]
"""Never changed: a write makes another one."""


@dataclass(frozen=True, slots=True)
class Write:
    file: int
    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reserve:
    """The file has at least so many bytes."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    file: int


@dataclass(frozen=True, slots=True)
class Link:
    """A name for a file, instead of whatever had it."""

    directory: Path
    name: str
    file: int


@dataclass(frozen=True, slots=True)
class Unlink:
    directory: Path
    name: str
    file: int


@dataclass(frozen=True, slots=True)
class Rename:
    directory: Path
    old: str
    new: str
    file: int


@dataclass(frozen=True, slots=True)
class SyncDirectory:
    directory: Path


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Durable at once, as the Disk port promises."""

    directory: Path


@dataclass(frozen=True, slots=True)
class StoreWrite:
    """Atomic, and durable at once: the promise of RocksDB that STORAGE.md names."""

    store: Path
    items: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    delete: tuple[tuple[bytes, bytes], ...] = field(repr=False, default=())


DataEffect = Write | Reserve
NameEffect = Link | Unlink | Rename
Pending = DataEffect | NameEffect
Effect = Pending | Sync | SyncDirectory | MakeDirectory | StoreWrite


@dataclass(slots=True)
class Image:
    """The contents of the disks. Files are known by number: a name may go and come back."""

    directories: dict[Path, dict[str, int]] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)
    stores: dict[Path, Store] = field(default_factory=dict)
    next_file: int = 1

    def copy(self) -> Image:
        directories = {path: dict(names) for path, names in self.directories.items()}
        return Image(directories, dict(self.files), dict(self.stores), self.next_file)

    def take(self, effect: Effect) -> None:
        """Apply an effect."""
        match effect:
            case Write(file, offset, data):
                old = self.files.get(file, b"").ljust(offset, b"\0")
                self.files[file] = old[:offset] + data + old[offset + len(data) :]
            case Reserve(file, size):
                self.files[file] = self.files.get(file, b"").ljust(size, b"\0")
            case Link(directory, name, file):
                self.directories[directory][name] = file
                self.next_file = max(self.next_file, file + 1)
            case Unlink(directory, name, file):
                # Should the name mean another file in this image, that one is not what was removed.
                if self.directories[directory].get(name) == file:
                    del self.directories[directory][name]
            case Rename(directory, old_name, new, file):
                names = self.directories[directory]
                if names.get(old_name) == file:
                    del names[old_name]
                names[new] = file
            case MakeDirectory(directory):
                self.directories.setdefault(directory, {})
            case StoreWrite(store, items, delete):
                before = self.stores.get(store, {})
                kept = {
                    key: value
                    for key, value in before.items()
                    if not any(first <= key < end for first, end in delete)
                }
                self.stores[store] = {**kept, **dict(items)}

    def digest(self) -> bytes:
        """Equal for images that no program can tell apart."""
        whole = blake2b(digest_size=16)
        for path in sorted(self.directories):
            whole.update(f"{path}/".encode())
            for name, file in sorted(self.directories[path].items()):
                whole.update(f"{name}\0".encode())
                whole.update(_digest(self.files.get(file, b"")))
        for path in sorted(self.stores):
            whole.update(f"{path}=".encode())
            for item in sorted(self.stores[path].items()):
                whole.update(b"%d,%d:" % (len(item[0]), len(item[1])) + b"".join(item))
        return whole.digest()


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


_CHOICE = re.compile(r"([01]*)(?:t(\d+)-(\d+))?")


@dataclass(frozen=True, slots=True)
class Choice:
    """The pending effects that are kept, in their order; all others are lost. With ``torn`` the
    one behind ``kept`` is a write of which only these bytes are kept."""

    kept: tuple[bool, ...]
    torn: tuple[int, int] | None = None

    def __str__(self) -> str:
        bits = "".join("01"[bit] for bit in self.kept)
        return bits if self.torn is None else f"{bits}t{self.torn[0]}-{self.torn[1]}"

    @classmethod
    def parse(cls, text: str) -> Choice:
        """The inverse of ``str``. Raises ValueError."""
        if (match := _CHOICE.fullmatch(text)) is None:
            raise ValueError(f"{text!r} says nothing of what is kept")
        bits, start, end = match.groups()
        torn = None if start is None else (int(start), int(end))
        return cls(tuple(bit == "1" for bit in bits), torn)


class Progress:
    """A sequence of effects so far."""

    def __init__(self, image: Image) -> None:
        self._durable = image.copy()
        self.pending: list[Pending] = []

    def take(self, effect: Effect) -> None:
        """The next effect takes place."""
        match effect:
            case Sync(file):
                self._settle(lambda one: isinstance(one, DataEffect) and one.file == file)
            case SyncDirectory(directory):
                self._settle(lambda one: isinstance(one, NameEffect) and one.directory == directory)
            case MakeDirectory() | StoreWrite():
                self._durable.take(effect)
            case _:
                self.pending.append(effect)
                if isinstance(effect, Link):
                    # The number is given away, whether or not the name is kept.
                    self._durable.next_file = max(self._durable.next_file, effect.file + 1)

    def _settle(self, is_synced: Callable[[Pending], bool]) -> None:
        for effect in self.pending:
            if is_synced(effect):
                self._durable.take(effect)
        self.pending = [effect for effect in self.pending if not is_synced(effect)]

    def image(self, choice: Choice) -> Image:
        """Return what a crash at this point leaves if it keeps that. Raises ValueError if the
        choice is not one of this point."""
        left = self._durable.copy()
        for effect in self._chosen(choice):
            left.take(effect)
        return left

    def everything(self) -> Image:
        """Return what a program that runs on sees: nothing is lost."""
        return self.image(Choice((True,) * len(self.pending)))

    def _chosen(self, choice: Choice) -> Iterable[Effect]:
        if len(choice.kept) + (choice.torn is not None) > len(self.pending):
            raise ValueError(f"{choice}: there are {len(self.pending)} pending effects")
        for effect, is_kept in zip(self.pending, choice.kept, strict=False):
            if is_kept:
                yield effect
        if choice.torn is not None:
            torn, (start, end) = self.pending[len(choice.kept)], choice.torn
            if not isinstance(torn, Write):
                raise ValueError(f"{choice}: {torn} cannot be torn")
            yield Write(torn.file, torn.offset + start, torn.data[start:end])
