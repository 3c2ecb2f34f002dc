"""The decision whether the directories given to a bookie are those that it had. Pure.

The only inputs are the content of the directories, the registration, and the start request.
``identity/claim.py`` carries out the decision, and explains why a crash at any point is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from fencelog.bookie.identity.cookies import DATA, Cookie, Identity, Kind, Mark, Place, State
from fencelog.ledgers.errors import ErrorCode

REPAIR = (
    "Bring the disk back if it still exists. If it is lost: `fencelog cookie repair` makes the "
    "directory anew; the bookie then fences all its ledgers and denies nothing until their "
    "entries were copied from other bookies"
)
ROUTING = (
    "the directory of a ledger follows from its id and the directories' number and order, so its "
    "entries would be looked for where they are not. Give the directories as before; for others, "
    "decommission the bookie and start a new one"
)


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """A journal or ledger directory. ``others``: the names in it, except the mark."""

    place: Place
    path: str
    mark: Mark | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """The content of a bookie's directories. ``path``: the data directory; ``others``: the names in
    it that are not expected in one without an identity; ``is_unsynced``: adds were answered before
    they were synced."""

    path: str
    identity: Identity | None = None
    others: tuple[str, ...] = ()
    directories: tuple[FoundDirectory, ...] = ()
    is_unsynced: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredCookie:
    """The registration in the metadata store. ``is_serving``: a process is registered under the
    id."""

    instance: str
    cookie: Cookie | None = None
    is_serving: bool = False


@dataclass(frozen=True, slots=True)
class StartRequest:
    """The bookie that is to start. ``fresh``: an incarnation that was never used, in case one is
    needed."""

    bookie_id: str
    fresh: str
    may_repair: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """The decision to start as ``identity``, which may be new."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Make:
    """The decision to make ``places``, then start as ``identity``."""

    identity: Identity
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The decision to refuse the start. ``reason``: the problem, and its remedy."""

    code: ErrorCode
    reason: str


Decision = Start | Make | Refuse


def decide(found: Found, registered: RegisteredCookie, request: StartRequest) -> Decision:
    """Decide whether a bookie may start with the directories that it was given, and with which
    identity."""
    refusal = next(_of_identity(found, registered, request), None)
    if refusal is not None:
        return refusal
    identity, current = found.identity, registered.cookie
    expected = current
    if identity and (current is None or current.incarnation in _incarnations(identity)):
        expected = identity.cookie
    against = chain(_of_layout(found, expected), _of_directories(found, expected, request))
    if (refusal := next(against, None)) is not None:
        return refusal
    lost = frozenset(_lost(found, expected))
    if expected is None:
        return Make(_first(found, registered, request), lost)
    if identity is not None and identity.state is State.NEW and expected is identity.cookie:
        return _in_use(found, request, lost) if registered.is_serving else Make(identity, lost)
    replaces = "" if current is None else current.incarnation
    if not lost and identity is not None:
        if found.is_unsynced:
            cookie = identity.cookie.remade(frozenset(), request.fresh)
            identity = Identity(cookie, State.FORGOT, replaces)
        return Start(identity)
    if not request.may_repair:
        return Refuse(
            ErrorCode.CORRUPT, f"{_who(request)} has lost {_names(found, lost)}. {REPAIR}"
        )
    if registered.is_serving:
        return _in_use(found, request, lost)
    state = State.NEW if DATA in lost else State.FORGOT
    return Make(Identity(expected.remade(lost, request.fresh), state, replaces), lost)


def _of_identity(
    found: Found, registered: RegisteredCookie, request: StartRequest
) -> Iterator[Refuse]:
    """Yield the objections of the identity and the registered cookie to a start."""
    identity, current = found.identity, registered.cookie
    if current is not None and current.instance != registered.instance:
        yield Refuse(
            ErrorCode.BAD_REQUEST,
            f"the cookie registered of {_who(request)} is of another cluster: its instance is "
            f"{current.instance}, that of the metadata store is {registered.instance}. If this "
            "cluster has taken the place of the other one for good, `fencelog cookie delete "
            f"{request.bookie_id}` and give empty directories",
        )
    if identity is None:
        if found.others:
            yield Refuse(
                ErrorCode.CORRUPT,
                f"{found.path}/identity is missing, but {found.path} holds "
                f"{', '.join(found.others)}: bring the file back, or, if all of it may go, "
                f"empty the directory. {REPAIR}",
            )
        return
    who = f"data directory {found.path}"
    if identity.cookie.bookie_id != request.bookie_id:
        yield Refuse(
            ErrorCode.BAD_REQUEST,
            f"{who} belongs to bookie {identity.cookie.bookie_id}, not to {request.bookie_id}: "
            "give the directory or the --id that belong together",
        )
    if identity.cookie.instance != registered.instance:
        yield Refuse(
            ErrorCode.BAD_REQUEST,
            f"{who} of {_who(request)} is of another cluster: its instance is "
            f"{identity.cookie.instance}, that of the metadata store is {registered.instance}. "
            "Name the store it belongs to, or give empty directories",
        )
    if identity.state is State.NEW:
        return
    if current is None:
        yield Refuse(
            ErrorCode.BAD_REQUEST,
            f"{who} holds data of {_who(request)}, but the metadata store has no cookie of it. If "
            "it was decommissioned, empty its directories; if --metadata names the wrong store, "
            "name the right one; if the store was emptied, restore it first",
        )
    elif current.directory != identity.cookie.directory:
        yield Refuse(
            ErrorCode.BAD_REQUEST,
            f"{_who(request)} is registered with another data directory than {found.path}: either "
            "another process runs under this id (give each its own --id), or this is a disk that "
            "was replaced (empty it; what was on it is on other bookies)",
        )
    elif current.incarnation not in _incarnations(identity):
        yield Refuse(
            ErrorCode.BAD_REQUEST,
            f"{who} is an older copy of {_who(request)}: it is incarnation "
            f"{identity.cookie.incarnation}, {current.incarnation} is registered. Give the newest; "
            f"if that is lost, empty this one. {REPAIR}",
        )


def _of_layout(found: Found, expected: Cookie | None) -> Iterator[Refuse]:
    if expected is None:
        return
    kinds = [directory.place[0] for directory in found.directories]
    for kind, had in (
        (Kind.JOURNAL, len(expected.journals)),
        (Kind.LEDGER, len(expected.ledgers)),
    ):
        if (count := kinds.count(kind)) != had:
            yield Refuse(
                ErrorCode.BAD_REQUEST,
                f"bookie {expected.bookie_id} was made with {had or 'no'} --{kind.value}-dir and "
                f"is started with {count or 'none'}: {ROUTING}",
            )


def _of_directories(
    found: Found, expected: Cookie | None, request: StartRequest
) -> Iterator[Refuse]:
    """Yield the objections of the marks, or of missing marks, to a start."""
    for directory in found.directories:
        path, mark = directory.path, directory.mark
        if mark is None:
            if directory.others:
                yield Refuse(
                    ErrorCode.CORRUPT,
                    f"{path} has no cookie, but holds {', '.join(directory.others)}: look what it "
                    "is. A directory that is given to a bookie has to be empty at first",
                )
        elif mark.bookie_id != request.bookie_id:
            yield Refuse(
                ErrorCode.BAD_REQUEST,
                f"{path} belongs to bookie {mark.bookie_id}, not to {request.bookie_id}",
            )
        elif mark.place != directory.place:
            yield Refuse(
                ErrorCode.BAD_REQUEST,
                f"{path} is {_ordinal(mark.place)} of {_who(request)} and was given as "
                f"{_ordinal(directory.place)}: {ROUTING}",
            )
        elif mark.is_made and mark.made_in not in _known(found.identity, expected, mark.place):
            yield Refuse(
                ErrorCode.BAD_REQUEST,
                f"{path} was {_ordinal(mark.place)} of {_who(request)} at another time: it was "
                "replaced, or what it belongs to is gone. Give the right one, or empty this one",
            )


def _known(identity: Identity | None, expected: Cookie | None, place: Place) -> Iterator[str]:
    """Yield the incarnations in which a directory may have been made. A directory of the identity's
    incarnation, if the registered cookie does not name it, was never served from."""
    if expected is not None:
        yield expected.made_in(place)
    if identity is not None and identity.state is State.NEW:
        yield identity.cookie.incarnation


def _lost(found: Found, expected: Cookie | None) -> Iterator[Place]:
    """Yield the places that have to be made (again)."""
    if found.identity is None or found.identity.state is State.NEW:
        yield DATA
    for directory in found.directories:
        mark, place = directory.mark, directory.place
        made_in = mark.made_in if mark is not None and mark.is_made else None
        if expected is None or made_in != expected.made_in(place):
            yield place


def _first(found: Found, registered: RegisteredCookie, request: StartRequest) -> Identity:
    kinds = [directory.place[0] for directory in found.directories]
    journals, ledgers = (
        (request.fresh,) * kinds.count(kind) for kind in (Kind.JOURNAL, Kind.LEDGER)
    )
    cookie = Cookie(
        request.bookie_id, registered.instance, request.fresh, request.fresh, journals, ledgers
    )
    return Identity(cookie, State.NEW)


def _incarnations(identity: Identity) -> tuple[str, str]:
    return identity.cookie.incarnation, identity.replaces


def _in_use(found: Found, request: StartRequest, lost: frozenset[Place]) -> Refuse:
    return Refuse(
        ErrorCode.BAD_REQUEST,
        f"{_who(request)} has lost {_names(found, lost)}, but a process is registered as this "
        "bookie: stop it, or wait until its session has expired, before a repair",
    )


def _names(found: Found, lost: frozenset[Place]) -> str:
    paths = [found.path] if DATA in lost else []
    paths += [directory.path for directory in found.directories if directory.place in lost]
    return f"what was in {', '.join(paths)}"


def _ordinal(place: Place) -> str:
    return f"{place[0].value} directory {place[1] + 1}"


def _who(request: StartRequest) -> str:
    return f"bookie {request.bookie_id}"
