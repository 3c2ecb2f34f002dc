"""The timeline as it is asked for, and events in words."""

from __future__ import annotations

from typing import Any

import pytest

from fencelog.api.admin.events.core import EventQuery, read_query, shown, summary
from fencelog.broker.cluster.events_core import Event, EventKind, OwnerEnd, PreviousOwner
from fencelog.broker.limits import MAX_EVENTS_PAGE
from fencelog.ledgers.errors import ErrorCode, FencelogError


def event(kind: str = "roll", **members: Any) -> Event:
    given: dict[str, Any] = {"time_us": 5, "broker_id": "b", "topic": "ns/t", "partition": 3}
    return Event(kind=kind, **(given | members))


def test_a_query_without_parameters_asks_for_the_newest() -> None:
    assert read_query({}) == EventQuery()


def test_a_query_with_everything() -> None:
    given = {
        "limit": "5",
        "kind": "roll,trim",
        "topic": "ns/t",
        "since": "7",
        "until": "8",
        "after": "9",
        "wait": "0.5",
    }
    kinds = frozenset(("roll", "trim"))
    assert read_query(given) == EventQuery(5, kinds, "ns/t", 7, 8, None, 9, 500)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": str(MAX_EVENTS_PAGE + 1)}, "limit"),
        ({"kind": "roll,eclipse"}, "kind"),
        ({"kind": ""}, "kind"),
        ({"since": "yesterday"}, "since"),
        ({"until": "-1"}, "until"),
        ({"before": "-1"}, "before"),
        ({"before": "1", "after": "1"}, "after"),
        ({"wait": "1"}, "wait"),
        ({"after": "1", "wait": "61"}, "wait"),
    ],
)
def test_a_query_that_is_wrong_names_its_parameter(query: dict[str, str], parameter: str) -> None:
    with pytest.raises(FencelogError) as raised:
        read_query(query)
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert raised.value.extra["parameter"] == parameter


def test_a_topic_has_to_be_a_name() -> None:
    with pytest.raises(FencelogError) as raised:
        read_query({"topic": "orders"})
    assert raised.value.code is ErrorCode.INVALID_NAME


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        (EventQuery(), True),
        (EventQuery(kinds=frozenset(("trim",))), False),
        (EventQuery(kinds=frozenset(("roll", "trim"))), True),
        (EventQuery(topic="ns/t"), True),
        (EventQuery(topic="ns/other"), False),
        (EventQuery(since_us=5), True),
        (EventQuery(since_us=6), False),
        (EventQuery(until_us=6), True),
        (EventQuery(until_us=5), False),
    ],
)
def test_filters(query: EventQuery, matches: bool) -> None:
    assert query.matches(event()) is matches


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            event(
                "takeover",
                epoch=7,
                previous=PreviousOwner("a", "session_ended"),
                detail={"took_us": 48_211, "recovered": [17, 18]},
            ),
            (
                "ns/t/3: taken over by b from a, whose session had ended; epoch 7, 2 ledgers "
                "recovered, took 48 ms"
            ),
        ),
        (
            event("takeover", epoch=1, detail={"took_us": 900, "recovered": []}),
            "ns/t/3: taken over by b for the first time; epoch 1, took 1 ms",
        ),
        (
            event("takeover_failed", detail={"error": "none"}),
            "ns/t/3: could not be taken over: none",
        ),
        (event("lost", detail={"error": "gone"}), "ns/t/3: lost by b: gone"),
        (event("fenced", ledger_id=9), "ns/t/3: ledger 9 fenced while b wrote it"),
        (
            event("conflict", detail={"error": "two\nlines"}),
            "ns/t/3: ledger list changed by another broker: two lines",
        ),
        (
            event("roll", ledger_id=9, detail={"previous_ledger": 8}),
            "ns/t/3: rolled from ledger 8 to 9",
        ),
        (
            event("repair", ledger_id=9, detail={"previous_ledger": 8}),
            "ns/t/3: ledger 8, which failed, replaced by 9",
        ),
        (
            event("recovery", ledger_id=8, detail={"last_entry": 4}),
            "ns/t/3: ledger 8 recovered, ends with entry 4",
        ),
        (
            event("ensemble_change", ledger_id=8, detail={"removed": ["b1"], "added": ["b4"]}),
            "ns/t/3: ledger 8: b1 replaced by b4",
        ),
        (
            event("trim", detail={"count": 1, "ledgers": [1], "start_offset": 20}),
            "ns/t/3: trimmed: 1 ledger removed, begins at offset 20",
        ),
        (event("terminate", detail={"end_offset": 30}), "ns/t/3: terminated at offset 30"),
        (
            event("drain", topic=None, detail={"is_done": False, "partitions": 4, "not_taken": 0}),
            "b: drain of 4 partitions begun",
        ),
        (
            event("drain", topic=None, detail={"is_done": True, "partitions": 4, "not_taken": 1}),
            "b: drained, 1 partition not taken by others",
        ),
        (
            event("drain", topic=None, detail={"is_done": True, "not_taken": 1, "still_open": 2}),
            "b: not drained in time: 2 partitions still there, 1 partition not taken by others",
        ),
        (event("undrain", topic=None), "b: takes partitions again"),
        (
            event("owner_unreachable", detail={"owner": "a", "url": "http://a"}),
            "ns/t/3: owner a refuses connections at http://a",
        ),
        (
            event("events_lost", topic=None, detail={"events": 12}),
            "b: 12 events before this one are lost",
        ),
    ],
)
def test_events_in_words(given: Event, words: str) -> None:
    assert summary(given) == words


@pytest.mark.parametrize("end", OwnerEnd)
def test_every_end_of_an_owner_has_words(end: OwnerEnd) -> None:
    assert "from a, w" in summary(event("takeover", previous=PreviousOwner("a", end.value)))


def test_another_end_of_an_owner_is_left_out() -> None:
    given = event("takeover", epoch=2, previous=PreviousOwner("a", "eclipsed"))
    assert summary(given) == "ns/t/3: taken over by b from a; epoch 2, took 0 ms"


@pytest.mark.parametrize("kind", [*EventKind, "eclipse"])
def test_what_others_have_appended_is_shown_all_the_same(kind: str) -> None:
    odd = {"recovered": 5, "took_us": "x", "removed": 7, "ledgers": None, "error": {}}
    for detail in ({}, odd):
        assert summary(event(kind, detail=detail)).startswith("ns/t/3: ")


def test_an_event_is_shown_with_its_place() -> None:
    given = event(ledger_id=9, detail={"previous_ledger": 8})
    found = shown(41, given)
    assert (found.offset, found.kind, found.detail) == (41, "roll", given.detail)
    assert found.summary == summary(given)
