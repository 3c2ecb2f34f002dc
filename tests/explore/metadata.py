"""The ledger's node in the metadata store, and the real loop of changes run against it.

A change runs in one step: the real coroutine is driven to its end, for nothing that others do in
between makes a difference that a compare-and-set would not find. Where the answer is lost it stops
there; later it is driven anew over what it was told so far (``told``), and goes on.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata import update as metadata_update
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, decode_metadata, encode_metadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import NO_VERSION, Version, Versioned

T = TypeVar("T")

_MOST_TURNS = 100


FIRST = Version(1, 0)


@dataclass(frozen=True, slots=True)
class Node:
    """The node in the store; ``metadata`` None: the ledger was deleted."""

    metadata: LedgerMetadata | None
    version: Version = FIRST


Told = tuple[Node | Version | ErrorCode, ...]
"""Answers of the store to one who makes a change, in their order."""


class Paused(BaseException):
    """The answer to a change was lost; whoever made it goes on at another time. It passes all that
    catches errors."""


@dataclass(slots=True)
class NodeStore:
    """The part of ``MetadataStore`` that a change uses. ``goes_wrong``: "lost reply" for the first
    change that is made, "away" for everything: whoever asks again in spite of a refusal pauses."""

    node: Node
    goes_wrong: str = ""
    told: list[Node | Version | ErrorCode] = field(default_factory=list)
    session_id: int = 1
    _replayed: int = 0
    was_lost: bool = False
    was_refused: bool = False

    def replay(self, told: Told) -> None:
        self.told = list(told)

    async def get(self, path: str) -> Versioned:
        node = self._again()
        if node is None:
            if self.was_lost:
                raise Paused
            self._refuse_if_away()
            node = self._tell(self.node)
        if not isinstance(node, Node):
            raise AssertionError("asked for something else this time")
        if node.metadata is None:
            raise FencelogError(ErrorCode.METADATA_NOT_FOUND, path)
        return Versioned(encode_metadata(node.metadata), node.version)

    async def set(self, path: str, value: bytes, version: Version) -> Version:
        if version == NO_VERSION:
            raise FencelogError(
                ErrorCode.METADATA_CONFLICT, path
            )  # the store's way to catch up: nothing is ever behind here
        told = self._again()
        if told is None:
            self._refuse_if_away()
            told = self._tell(self._set(value, version))
        if isinstance(told, ErrorCode):
            raise FencelogError(told, path)
        if not isinstance(told, Version):
            raise AssertionError("asked for something else this time")
        return told

    async def delete(self, path: str, version: Version) -> None:
        if self.node.metadata is None:
            raise FencelogError(ErrorCode.METADATA_NOT_FOUND, path)
        self.node = Node(None, self.node.version)

    def _set(self, value: bytes, version: Version) -> Version | ErrorCode:
        if self.node.metadata is None:
            return ErrorCode.METADATA_NOT_FOUND
        is_named = isinstance(version, Version)  # a wrong core may name none
        if is_named and version != self.node.version:
            return ErrorCode.METADATA_CONFLICT
        previous = self.node.version
        later = Version(previous.incarnation, previous.number + 1)
        self.node = Node(decode_metadata(value), later)
        if self.goes_wrong == "lost reply":
            self.was_lost = True
            return ErrorCode.METADATA_UNKNOWN
        return self.node.version

    def _tell(self, what: Any) -> Any:
        self.told.append(what)
        self._replayed += 1
        return what

    def _again(self) -> Node | Version | ErrorCode | None:
        if self._replayed == len(self.told):
            return None
        self._replayed += 1
        return self.told[self._replayed - 1]

    def _refuse_if_away(self) -> None:
        if self.goes_wrong == "away":
            if self.was_refused:
                raise Paused
            self.was_refused = True
            raise FencelogError(ErrorCode.METADATA_UNAVAILABLE, "away")


def ledgers_over(store: NodeStore) -> LedgerStore:
    return LedgerStore(store)  # type: ignore[arg-type]  # has the methods used


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end what never has to wait for anything but its own pauses. Raises what it
    raises."""
    with _no_pauses():
        try:
            for _ in range(_MOST_TURNS):
                work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            work.close()
    raise AssertionError("a change of metadata goes on without an end")


@contextmanager
def _no_pauses() -> Iterator[None]:
    """A pause of no time needs no event loop."""
    before = metadata_update.RETRY_MIN_S
    metadata_update.RETRY_MIN_S = 0.0
    try:
        yield
    finally:
        metadata_update.RETRY_MIN_S = before
