"""Local states as values: copied, compared, and seen with bookies renamed.

The cores are mutable objects. A step copies one (``fork``), runs the real code on the copy, and the
copy is filed under its picture: what looks the same is the same state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import MethodType, NoneType
from typing import Any

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import Entry
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata
from fencelog.ledgers.reader.core import LacRound
from fencelog.ledgers.recovery.machine import Abort, Close, ReadCopy
from fencelog.ledgers.recovery.rules import Copy, FenceRound, Told
from fencelog.ledgers.rpc.bookie_port import FenceAnswer
from fencelog.ledgers.writer.core import ChangeEnsemble, PendingRun, WriterCore
from tests.explore.messages import Link

IMMUTABLE = (
    NoneType,
    int,
    str,
    bytes,
    memoryview,
    Enum,
    FencelogError,
    LedgerMetadata,
    Fragment,
    Entry,
    Copy,
    Told,
    FenceAnswer,
    ReadCopy,
    Close,
    Abort,
    ChangeEnsemble,
)

SHARED: set[type] = set()
"""The types that were met, and those derived from them."""


@dataclass(frozen=True, slots=True)
class Renaming:
    """Bookies by other names, ensembles in another order: position ``i`` is ``positions[i]``."""

    names: Mapping[str, str]
    positions: tuple[int, ...]


def fork(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """A copy that shares what never changes; what is one object stays one object."""
    kind = type(value)
    if kind in SHARED:
        return value
    if issubclass(kind, IMMUTABLE):
        SHARED.add(kind)
        return value
    memo = {} if memo is None else memo
    found = memo.get(id(value))
    if found is not None:
        return found
    if kind in (list, set, deque, tuple, frozenset):
        made = kind([fork(part, memo) for part in value])
    elif kind is dict:
        made = {key: fork(part, memo) for key, part in value.items()}
    else:
        made = object.__new__(kind)
        memo[id(value)] = made
        for name in _names(value):
            object.__setattr__(made, name, fork(getattr(value, name), memo))
    memo[id(value)] = made
    return made


def picture(value: Any, renaming: Renaming) -> Hashable:
    """All that tells this value from another, with its bookies renamed. Of an error the code tells,
    of a copy its bytes, of metadata what changes; the words of errors mean nothing to the cores."""
    kind = type(value)
    if kind in PLAIN:
        plain: Hashable = value
        return plain
    how = _HOW.get(kind)
    if how is None:
        how = _HOW[kind] = _how(value)
    return how(value, renaming)


PLAIN = frozenset({int, bool, bytes, NoneType})

How = Callable[[Any, Renaming], Hashable]


def _text(value: str, renaming: Renaming) -> Hashable:
    return renaming.names.get(value, value)


def _row(value: Any, renaming: Renaming) -> Hashable:
    return tuple([part if type(part) in PLAIN else picture(part, renaming) for part in value])


def _set(value: Any, renaming: Renaming) -> Hashable:
    return ("set", *_in_order([picture(part, renaming) for part in value]))


def _table(value: Mapping[Any, Any], renaming: Renaming) -> Hashable:
    items = [(picture(key, renaming), picture(part, renaming)) for key, part in value.items()]
    return ("table", *_in_order(items))


def _in_order(parts: list[Any]) -> list[Any]:
    """Sort values, in an order that does not depend on the one in which they came."""
    return parts if len(parts) < 2 else sorted(parts, key=repr)


def _link(value: Link, renaming: Renaming) -> Hashable:
    answers = _in_order([picture(answer, renaming) for answer in value.answers])
    return ("link", _row(value.requests, renaming), *answers)


def _metadata(value: LedgerMetadata, renaming: Renaming) -> Hashable:
    return (
        _row(value.fragments, renaming),
        value.state.name,
        value.last_entry_id,
        value.length,
    )


_HOW: dict[type, How] = {
    str: _text,
    list: _row,
    tuple: _row,
    deque: _row,
    set: _set,
    frozenset: _set,
    dict: _table,
    Link: _link,
    LedgerMetadata: _metadata,
    Copy: lambda value, renaming: ("copy", value.run),
    Entry: lambda value, renaming: ("entry", value.entry_id, bytes(value.payload)),
}


def _how(value: Any) -> How:
    """Make the function for a type that is met for the first time."""
    if isinstance(value, Enum):
        return lambda one, renaming: one.name
    if isinstance(value, FencelogError):
        return lambda one, renaming: ("error", one.code.name)
    if isinstance(value, MethodType | memoryview):
        raise TypeError(f"{value} is no part of a state")
    kind = type(value)
    names = _names(value)
    readers = [_ROLES.get((kind, name), _ROLES.get((object, name), picture)) for name in names]
    fields_of = tuple(zip(names, readers, strict=True))
    title = kind.__name__

    def parts(one: Any, renaming: Renaming) -> Hashable:
        seen: list[Any] = [title]
        for name, read in fields_of:
            part = getattr(one, name)
            if read is picture and type(part) in PLAIN:
                seen.append(part)
            else:
                seen.append(read(part, renaming))
        return tuple(seen)

    return parts


def _positions(value: Any, renaming: Renaming) -> Hashable:
    """Indices into an ensemble, or a table by them."""
    where = renaming.positions
    if isinstance(value, Mapping):
        return _table({where[index]: part for index, part in value.items()}, renaming)
    return _set({where[index] for index in value}, renaming)


def _ensemble(value: tuple[str, ...], renaming: Renaming) -> Hashable:
    members = dict(zip(renaming.positions, value, strict=True))
    return tuple([renaming.names[members[index]] for index in range(len(value))])


def _position(value: int, renaming: Renaming) -> Hashable:
    return renaming.positions[value]


_ROLES: dict[tuple[type, str], How] = {
    (object, "index"): _position,
    (Fragment, "bookies"): _ensemble,
    (WriterCore, "ensemble"): _ensemble,
    (PendingRun, "acks"): _positions,
    (PendingRun, "failed"): _positions,
    (WriterCore, "_failed"): _positions,
    (WriterCore, "_delayed"): _positions,
    (ChangeEnsemble, "failed"): _positions,
    (FenceRound, "fenced"): _positions,
    (FenceRound, "failed"): _positions,
    (LacRound, "answered"): _positions,
    (LacRound, "failed"): _positions,
}
"""Attributes that are, or hold, indices into an ensemble, and ensembles. ``PendingRun.members`` is
none of them: with E = Qw it is always all, and with E > Qw positions are never exchanged."""


def _names(value: Any) -> tuple[str, ...]:
    """The attributes that make up a value; of a type they are always the same."""
    kind = type(value)
    if kind not in _NAMES:
        known = [part.name for part in fields(value)] if is_dataclass(value) else vars(value)
        _NAMES[kind] = tuple(known)
    return _NAMES[kind]


_NAMES: dict[type, tuple[str, ...]] = {}


class Table:
    """Values by number. Values that look the same have one number.

    ``looks``: for each renaming, by a value's number, a number of what the renamed value looks
    like; equal where the renamed values are.
    """

    def __init__(self, renamings: tuple[Renaming, ...]) -> None:
        self.values: list[Any] = []
        self.looks: list[list[int]] = [[] for _ in renamings]
        self._renamings = renamings
        self._numbers: dict[Hashable, int] = {}
        self._pictures: dict[Hashable, int] = {}

    def number(self, value: Any) -> int:
        key = picture(value, self._renamings[0])
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
            pictures = self._pictures
            for looks, renaming in zip(self.looks, self._renamings, strict=True):
                seen = key if renaming is self._renamings[0] else picture(value, renaming)
                looks.append(pictures.setdefault(seen, len(pictures)))
        return number
