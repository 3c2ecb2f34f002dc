"""Every way in which directories may differ from what a bookie had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fencelog.bookie.format.small_file import encode_small_file
from fencelog.bookie.identity.cookies import (
    DATA,
    Cookie,
    Identity,
    Kind,
    Mark,
    Place,
    State,
    decode_cookie,
    decode_identity,
    decode_mark,
    encode_cookie,
    encode_identity,
    encode_mark,
)
from fencelog.bookie.identity.cookies_core import (
    Found,
    FoundDirectory,
    Make,
    Refuse,
    RegisteredCookie,
    Start,
    StartRequest,
    decide,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError

INSTANCE, OTHER_INSTANCE = "aa" * 16, "bb" * 16
OLD, MIDDLE, NOW, FRESH = ("01" * 16, "02" * 16, "03" * 16, "04" * 16)
JOURNAL: Place = (Kind.JOURNAL, 0)
LEDGERS: tuple[Place, Place] = ((Kind.LEDGER, 0), (Kind.LEDGER, 1))
GIVEN = (JOURNAL, *LEDGERS)
START = StartRequest("b1", FRESH)
REPAIR = replace(START, may_repair=True)

COOKIE = Cookie("b1", INSTANCE, NOW, OLD, (OLD,), (OLD, MIDDLE))
"""The cookie of a bookie whose second ledger directory was recreated, and which has lost data
since."""
READY = Identity(COOKIE, State.READY, MIDDLE)
REGISTERED = RegisteredCookie(INSTANCE, COOKIE)
NOTHING = RegisteredCookie(INSTANCE)


def marked(place: Place, *, cookie: Cookie = COOKIE, is_made: bool = True) -> FoundDirectory:
    mark = Mark(cookie.bookie_id, place, cookie.made_in(place), is_made)
    return FoundDirectory(place, f"/{place[0].value}{place[1]}", mark)


def empty(place: Place, *others: str) -> FoundDirectory:
    return FoundDirectory(place, f"/{place[0].value}{place[1]}", others=others)


def found(identity: Identity | None, *directories: FoundDirectory) -> Found:
    """``directories`` in the place of those that are whole."""
    instead = {directory.place: directory for directory in directories}
    return Found("/data", identity, (), tuple(instead.get(p, marked(p)) for p in GIVEN))


WHOLE = found(READY)
EMPTY = found(None, *map(empty, GIVEN))


def refusal(decision: object, code: ErrorCode) -> str:
    assert isinstance(decision, Refuse)
    assert decision.code is code
    return decision.reason


# -- nothing is wrong --------------------------------------------------------------------------


def test_all_new_and_nothing_registered_is_a_new_bookie() -> None:
    decision = decide(EMPTY, NOTHING, START)
    cookie = Cookie("b1", INSTANCE, FRESH, FRESH, (FRESH,), (FRESH, FRESH))
    assert decision == Make(Identity(cookie, State.NEW), frozenset({DATA, *GIVEN}))


def test_all_equal_starts_as_it_is() -> None:
    for start_request in (START, REPAIR):
        assert decide(WHOLE, REGISTERED, start_request) == Start(READY)
        assert decide(WHOLE, replace(REGISTERED, is_serving=True), start_request) == Start(READY)


def test_an_identity_whose_incarnation_was_not_registered_yet_goes_on() -> None:
    before = replace(REGISTERED, cookie=replace(COOKIE, incarnation=MIDDLE))
    assert decide(WHOLE, before, START) == Start(READY)


def test_unsynced_adds_take_a_new_incarnation_in_the_same_directories() -> None:
    decision = decide(replace(WHOLE, is_unsynced=True), REGISTERED, START)
    cookie = replace(COOKIE, incarnation=FRESH)
    assert decision == Start(Identity(cookie, State.FORGOT, replaces=NOW))


def test_one_that_nobody_registers_believes_its_identity() -> None:
    cookie = replace(COOKIE, instance="")
    here = found(Identity(cookie, State.READY))
    assert decide(here, RegisteredCookie("", cookie), START) == Start(Identity(cookie, State.READY))


# -- a making that was not finished ------------------------------------------------------------

NEW_COOKIE = Cookie("b1", INSTANCE, NOW, NOW, (NOW,), (NOW, NOW))
NEW = Identity(NEW_COOKIE, State.NEW)


@pytest.mark.parametrize("registered", [NOTHING, RegisteredCookie(INSTANCE, NEW_COOKIE)])
def test_a_making_goes_on_wherever_it_was(registered: RegisteredCookie) -> None:
    half = found(
        NEW,
        marked(JOURNAL, cookie=NEW_COOKIE),
        marked(LEDGERS[0], cookie=NEW_COOKIE, is_made=False),
        empty(LEDGERS[1]),
    )
    assert decide(half, registered, START) == Make(NEW, frozenset({DATA, *LEDGERS}))
    made = found(NEW, *(marked(place, cookie=NEW_COOKIE) for place in GIVEN))
    assert decide(made, registered, START) == Make(NEW, frozenset({DATA}))


def test_a_repair_of_everything_goes_on_without_being_asked_again() -> None:
    identity = replace(NEW, replaces=MIDDLE)
    before = RegisteredCookie(INSTANCE, replace(COOKIE, incarnation=MIDDLE))
    here = found(identity, *map(empty, GIVEN))
    assert decide(here, before, START) == Make(identity, frozenset({DATA, *GIVEN}))


def test_a_repair_does_not_go_on_once_the_lost_disk_is_back_and_served_from() -> None:
    """The repair died before it was registered; then the old disk was found, and started."""
    here = found(replace(NEW, replaces=MIDDLE), *map(empty, GIVEN))
    serving = RegisteredCookie(INSTANCE, replace(COOKIE, incarnation=MIDDLE), is_serving=True)
    for start_request in (START, REPAIR):
        assert "stop it" in refusal(decide(here, serving, start_request), ErrorCode.BAD_REQUEST)


def test_a_new_directory_that_lost_the_race_is_lost() -> None:
    """Another process registered first; what was made here was never served from."""
    here = found(NEW, *(marked(place, cookie=NEW_COOKIE) for place in GIVEN))
    other = RegisteredCookie(INSTANCE, replace(COOKIE, incarnation=OLD))
    assert "lost" in refusal(decide(here, other, START), ErrorCode.CORRUPT)
    assert "stop it" in refusal(
        decide(here, replace(other, is_serving=True), REPAIR), ErrorCode.BAD_REQUEST
    )
    assert isinstance(decide(here, other, REPAIR), Make)


# -- what was lost -----------------------------------------------------------------------------


@pytest.mark.parametrize("place", GIVEN)
@pytest.mark.parametrize("left", ["nothing", "half"])
def test_a_lost_directory_is_refused_and_made_anew_when_asked(place: Place, left: str) -> None:
    gone = empty(place) if left == "nothing" else marked(place, is_made=False)
    here = found(READY, gone)
    reason = refusal(decide(here, REGISTERED, START), ErrorCode.CORRUPT)
    assert gone.path in reason
    assert "fencelog cookie repair" in reason
    decision = decide(here, REGISTERED, REPAIR)
    assert isinstance(decision, Make)
    assert decision.places == {place}
    assert (decision.identity.state, decision.identity.replaces) == (State.FORGOT, NOW)
    cookie = decision.identity.cookie
    assert (cookie.incarnation, cookie.directory) == (FRESH, OLD)
    assert {p: cookie.made_in(p) for p in GIVEN} == {p: COOKIE.made_in(p) for p in GIVEN} | {
        place: FRESH
    }


def test_a_lost_data_directory_keeps_the_others() -> None:
    here = found(None)
    assert "/data" in refusal(decide(here, REGISTERED, START), ErrorCode.CORRUPT)
    decision = decide(here, REGISTERED, REPAIR)
    cookie = replace(COOKIE, incarnation=FRESH)
    assert decision == Make(Identity(cookie, State.NEW, NOW), frozenset({DATA}))


def test_a_bookie_that_lost_everything_begins_anew() -> None:
    reason = refusal(decide(EMPTY, REGISTERED, START), ErrorCode.CORRUPT)
    assert all(path in reason for path in ("/data", "/journal0", "/ledger0", "/ledger1"))
    cookie = Cookie("b1", INSTANCE, FRESH, FRESH, (FRESH,), (FRESH, FRESH))
    decision = decide(EMPTY, REGISTERED, REPAIR)
    assert decision == Make(Identity(cookie, State.NEW, NOW), frozenset({DATA, *GIVEN}))


def test_nothing_is_repaired_while_a_process_runs_under_the_id() -> None:
    decision = decide(EMPTY, replace(REGISTERED, is_serving=True), REPAIR)
    assert "stop it" in refusal(decision, ErrorCode.BAD_REQUEST)


# -- what is refused, repair or not ------------------------------------------------------------


def wrong_mark(where: Place, wrong: Callable[[Mark], Mark]) -> FoundDirectory:
    directory = marked(where)
    assert directory.mark is not None
    return replace(directory, mark=wrong(directory.mark))


OTHERS = replace(READY, cookie=replace(COOKIE, bookie_id="b2"))
FOREIGN = replace(READY, cookie=replace(COOKIE, instance=OTHER_INSTANCE))
REFUSED = {
    "another bookie's data": (found(OTHERS), REGISTERED, "belongs to bookie b2, not to b1"),
    "another cluster's data": (found(FOREIGN), REGISTERED, "is of another cluster"),
    "another cluster's new data": (
        found(replace(FOREIGN, state=State.NEW)),
        NOTHING,
        "is of another cluster",
    ),
    "a cookie of another instance": (
        WHOLE,
        RegisteredCookie(OTHER_INSTANCE, COOKIE),
        "`fencelog cookie delete b1` and give empty directories",
    ),
    "no cookie registered": (WHOLE, NOTHING, "has no cookie of it. If it was decommissioned"),
    "another data directory": (
        WHOLE,
        RegisteredCookie(INSTANCE, replace(COOKIE, directory=NOW)),
        "registered with another data directory",
    ),
    "an old copy": (
        WHOLE,
        RegisteredCookie(INSTANCE, replace(COOKIE, incarnation=FRESH)),
        "is an older copy",
    ),
    "a directory of another bookie": (
        found(READY, wrong_mark(JOURNAL, lambda mark: replace(mark, bookie_id="b2"))),
        REGISTERED,
        "/journal0 belongs to bookie b2, not to b1",
    ),
    "directories in another order": (
        found(READY, wrong_mark(LEDGERS[0], lambda mark: replace(mark, place=LEDGERS[1]))),
        REGISTERED,
        "/ledger0 is ledger directory 2 of bookie b1 and was given as ledger directory 1: the dir",
    ),
    "a disk that had been replaced": (
        found(READY, wrong_mark(LEDGERS[1], lambda mark: replace(mark, made_in=OLD))),
        REGISTERED,
        "/ledger1 was ledger directory 2 of bookie b1 at another time",
    ),
    "marks, and nothing else": (found(None), NOTHING, "at another time"),
    "one directory less": (
        replace(WHOLE, directories=WHOLE.directories[:2]),
        REGISTERED,
        "was made with 2 --ledger-dir and is started with 1: the directory of a ledger follows",
    ),
    "no journal directory": (
        replace(WHOLE, directories=WHOLE.directories[1:]),
        REGISTERED,
        "was made with 1 --journal-dir and is started with none",
    ),
    "a directory more": (
        replace(
            found(replace(READY, cookie=replace(COOKIE, journals=()))),
            directories=WHOLE.directories,
        ),
        replace(REGISTERED, cookie=replace(COOKIE, journals=())),
        "was made with no --journal-dir and is started with 1",
    ),
}
DAMAGED = {
    "no identity, but data": (
        replace(EMPTY, others=("entrylog", "index")),
        REGISTERED,
        "/data/identity is missing, but /data holds entrylog, index",
    ),
    "no identity, but data, of a bookie that is not registered": (
        replace(EMPTY, others=("checkpoint",)),
        NOTHING,
        "/data/identity is missing, but /data holds checkpoint",
    ),
    "no mark, but data": (
        found(READY, empty(LEDGERS[1], "index")),
        REGISTERED,
        "/ledger1 has no cookie, but holds index",
    ),
}


@pytest.mark.parametrize("start_request", [START, REPAIR], ids=["start", "repair"])
@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str, start_request: StartRequest) -> None:
    here, registered, reason = REFUSED[case]
    assert reason in refusal(decide(here, registered, start_request), ErrorCode.BAD_REQUEST)


@pytest.mark.parametrize("start_request", [START, REPAIR], ids=["start", "repair"])
@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_there_is_never_made_anew(case: str, start_request: StartRequest) -> None:
    here, registered, reason = DAMAGED[case]
    assert reason in refusal(decide(here, registered, start_request), ErrorCode.CORRUPT)


# -- formats -----------------------------------------------------------------------------------


def test_all_is_read_as_it_was_written() -> None:
    path = Path("/data/identity")
    assert decode_cookie("/cookies/b1", encode_cookie(COOKIE)) == COOKIE
    mark = Mark("b1", LEDGERS[1], OLD, is_made=False)
    assert decode_mark(path, encode_mark(mark)) == mark
    for state in State:
        identity = Identity(COOKIE, state, MIDDLE)
        assert decode_identity(path, encode_identity(identity)) == identity
        assert identity.may_have_forgotten is (state is not State.READY)
    assert (READY.bookie_id, READY.incarnation) == ("b1", NOW)
    assert READY.directory_bytes == bytes.fromhex(OLD)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"directory": "xy"}'])
def test_a_registered_cookie_that_makes_no_sense_is_corrupt(data: bytes) -> None:
    with pytest.raises(FencelogError, match="/cookies/b1 is not valid") as caught:
        decode_cookie("/cookies/b1", data)
    assert caught.value.code is ErrorCode.CORRUPT


def test_files_that_make_no_sense_are_corrupt() -> None:
    path = Path("/data/x")
    for decode, magic in ((decode_identity, b"FLID"), (decode_mark, b"FLCK")):
        with pytest.raises(FencelogError, match="/data/x is not valid") as caught:
            decode(path, encode_small_file(magic, {"instance": "", "state": "somewhat"}))
        assert caught.value.code is ErrorCode.CORRUPT


def test_an_identity_without_a_cookie_is_of_an_earlier_version() -> None:
    data = encode_small_file(b"FLID", {"bookie_id": "b1", "incarnation": OLD, "state": "ready"})
    with pytest.raises(FencelogError, match="of a version that had no cookies") as caught:
        decode_identity(Path("/data/identity"), data)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
