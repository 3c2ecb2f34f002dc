"""Cookies: the identity of a bookie, and the directories that belong to it.

A disk that was replaced, mounted elsewhere or brought back after years looks like a working one. A
bookie that served from it would deny acknowledged entries, and a recovery would rely on that (seed
000, operator example 2; seed 002, "A note on cookies"). So a bookie is identified by

* its identity, in the data directory: the *cookie*, and the state of its creation;
* a mark in every journal and ledger directory that it was given;
* the cookie in the metadata store, under its id.

``identity/cookies_core.py`` compares the three, ``identity/claim.py`` carries out the decision.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from fencelog.bookie.format.small_file import decode_small_file, encode_small_file
from fencelog.ledgers.errors import ErrorCode, FencelogError

T = TypeVar("T")

_IDENTITY_MAGIC = b"FLID"
_MARK_MAGIC = b"FLCK"


class Kind(Enum):
    DATA = "data"
    JOURNAL = "journal"
    LEDGER = "ledger"


Place = tuple[Kind, int]
"""A directory of a bookie: its kind, and its number (from 0) among those of its kind."""

DATA: Place = (Kind.DATA, 0)


class State(Enum):
    """The state of a data directory. NEW: being made, never served from. FORGOT: complete, but
    acknowledged data may be missing: its ledgers are to be fenced before it is served from
    (``engine/boot.py``). READY: it holds all that was promised."""

    NEW = "new"
    FORGOT = "forgot"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Cookie:
    """The identity of a bookie. ``incarnation``: 32 hex digits, new when data may have been lost
    (PROTOCOL.md rule 10). ``directory``: the incarnation in which its data was begun; journals and
    entry logs name it. ``journals``, ``ledgers``: the incarnation in which each given directory was
    made, in order."""

    bookie_id: str
    instance: str
    incarnation: str
    directory: str
    journals: tuple[str, ...] = ()
    ledgers: tuple[str, ...] = ()

    def made_in(self, place: Place) -> str:
        kind, number = place
        return (self.journals if kind is Kind.JOURNAL else self.ledgers)[number]

    def remade(self, places: frozenset[Place], incarnation: str) -> Cookie:
        """Return the cookie of a new incarnation, in which some of the directories are made
        again."""

        def ids(kind: Kind, old: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(
                incarnation if (kind, number) in places else id for number, id in enumerate(old)
            )

        is_all = len(places) == 1 + len(self.journals) + len(self.ledgers)
        return replace(
            self,
            incarnation=incarnation,
            directory=incarnation if is_all else self.directory,
            journals=ids(Kind.JOURNAL, self.journals),
            ledgers=ids(Kind.LEDGER, self.ledgers),
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of a data directory's identity file. ``replaces``: the incarnation that is
    registered as long as this one is not; empty where there is none."""

    cookie: Cookie
    state: State
    replaces: str = ""

    @property
    def bookie_id(self) -> str:
        return self.cookie.bookie_id

    @property
    def incarnation(self) -> str:
        return self.cookie.incarnation

    @property
    def directory_bytes(self) -> bytes:
        return bytes.fromhex(self.cookie.directory)

    @property
    def may_have_forgotten(self) -> bool:
        return self.state is not State.READY


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the mark in a journal or ledger directory. ``is_made`` False: its making was
    not finished."""

    bookie_id: str
    place: Place
    made_in: str
    is_made: bool


def encode_cookie(cookie: Cookie) -> bytes:
    """Encode a cookie as the metadata store holds it: a JSON object."""
    return json.dumps(asdict(cookie), sort_keys=True).encode()


def decode_cookie(where: str, data: bytes) -> Cookie:
    """Decode a cookie of the metadata store. Raises FencelogError(CORRUPT)."""
    return _checked(where, lambda: _cookie(json.loads(data)))


def encode_identity(identity: Identity) -> bytes:
    fields = {**asdict(identity.cookie), "state": identity.state.value}
    return encode_small_file(_IDENTITY_MAGIC, {**fields, "replaces": identity.replaces})


def decode_identity(path: Path, data: bytes) -> Identity:
    """Decode an identity file. Raises FencelogError(CORRUPT, UNSUPPORTED_VERSION)."""
    fields = decode_small_file(path, _IDENTITY_MAGIC, data)
    if "instance" not in fields:
        raise FencelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{path} is of a version that had no cookies, before 0.1.0: this one does not go on "
            "with its data",
        )
    return _checked(
        str(path),
        lambda: Identity(_cookie(fields), State(fields["state"]), str(fields["replaces"])),
    )


def encode_mark(mark: Mark) -> bytes:
    kind, number = mark.place
    return encode_small_file(
        _MARK_MAGIC,
        {
            "bookie_id": mark.bookie_id,
            "kind": kind.value,
            "number": number,
            "made_in": mark.made_in,
            "is_made": mark.is_made,
        },
    )


def decode_mark(path: Path, data: bytes) -> Mark:
    """Decode a mark. Raises FencelogError(CORRUPT, UNSUPPORTED_VERSION)."""
    fields = decode_small_file(path, _MARK_MAGIC, data)
    return _checked(
        str(path),
        lambda: Mark(
            str(fields["bookie_id"]),
            (Kind(fields["kind"]), int(fields["number"])),
            str(fields["made_in"]),
            bool(fields["is_made"]),
        ),
    )


def _cookie(fields: dict[str, Any]) -> Cookie:
    bytes.fromhex(fields["directory"])
    return Cookie(
        str(fields["bookie_id"]),
        str(fields["instance"]),
        str(fields["incarnation"]),
        str(fields["directory"]),
        tuple(fields["journals"]),
        tuple(fields["ledgers"]),
    )


def _checked(where: str, decode: Callable[[], T]) -> T:
    try:
        return decode()
    except (ValueError, KeyError, TypeError) as error:
        raise FencelogError(
            ErrorCode.CORRUPT, f"{where} is not valid: {type(error).__name__} {error}"
        ) from error
