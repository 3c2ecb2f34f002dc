"""Events as values: which are kept, how an owner has ended, when an append is repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.broker.cluster.events_core import (
    EVENTS_SETTINGS,
    EVENTS_TOPIC,
    Event,
    EventKind,
    EventQueue,
    PreviousOwner,
    decode_event,
    encode_event,
    is_recorded,
    is_repeated,
    previous_owner,
)
from fencelog.broker.ledger_list.ledger_list import LedgerList, Sealed
from fencelog.broker.limits import EVENT_BATCH, EVENT_REPEAT_MS
from fencelog.broker.names import TopicName
from fencelog.broker.policy import Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError

SEALED = Sealed(entries=1, messages=1, size=1, last_publish_us=1, sealed_us=1)


def event(number: int) -> Event:
    return Event(time_us=number, kind="roll", broker_id="a", topic="ns/t", partition=0)


def times(batch: list[Event]) -> list[int]:
    return [each.time_us for each in batch]


def test_an_event_is_the_same_after_its_way_through_a_message() -> None:
    given = Event(
        time_us=1,
        kind=EventKind.TAKEOVER.value,
        broker_id="b",
        topic="ns/t",
        partition=2,
        epoch=3,
        ledger_id=4,
        previous=PreviousOwner("a", "fenced"),
        detail={"took_us": 5, "recovered": [6]},
    )
    value = encode_event(given)
    assert b'"from":{"broker_id":"a","ended":"fenced"}' in value
    assert decode_event(value) == given


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"[]", b"{}", b'{"time_us": "1", "kind": "roll", "broker_id": "a"}']
)
def test_what_is_no_event_is_none(value: bytes) -> None:
    assert decode_event(value) is None


def test_an_event_of_a_later_version_is_shown() -> None:
    value = b'{"time_us": 1, "kind": "eclipse", "broker_id": "a", "new": true}'
    assert decode_event(value) == Event(time_us=1, kind="eclipse", broker_id="a")


def test_of_the_topic_of_events_only_takeovers_are_recorded() -> None:
    assert [kind for kind in EventKind if is_recorded(kind, EVENTS_TOPIC)] == [EventKind.TAKEOVER]
    assert all(is_recorded(kind, TopicName("ns", "t")) for kind in EventKind)
    assert all(is_recorded(kind, None) for kind in EventKind)


def test_the_settings_of_the_topic_are_settings() -> None:
    policy = Policy().inherited_by(EVENTS_SETTINGS)
    assert policy.retention_ms is not None
    assert policy.retention_bytes is not None
    assert policy.roll_bytes * 4 <= policy.retention_bytes
    assert policy.idempotency_window_ms >= 2 * EVENT_REPEAT_MS


# -- the queue -------------------------------------------------------------------------------------


def test_events_leave_in_order_and_in_batches() -> None:
    queue = EventQueue("a")
    for number in range(EVENT_BATCH + 2):
        assert queue.add(event(number))
    assert times(queue.take(0)) == list(range(EVENT_BATCH))
    assert times(queue.take(0)) == [EVENT_BATCH, EVENT_BATCH + 1]
    assert queue.is_empty


def test_a_loss_is_reported_behind_what_waited() -> None:
    queue = EventQueue("a", limit=2)
    assert [queue.add(event(number)) for number in range(5)] == [True, True, False, False, False]
    *kept, lost = queue.take(9)
    assert times(kept) == [0, 1]
    assert (lost.kind, lost.time_us, lost.broker_id, lost.detail) == (
        EventKind.EVENTS_LOST,
        9,
        "a",
        {"events": 3},
    )
    assert queue.is_empty
    assert queue.add(event(6))
    assert times(queue.take(0)) == [6]


def test_a_loss_is_reported_before_what_came_later() -> None:
    queue = EventQueue("a", limit=EVENT_BATCH + 1)
    for number in range(EVENT_BATCH + 2):
        queue.add(event(number))
    assert len(queue.take(0)) == EVENT_BATCH
    queue.add(event(1000))
    assert [each.kind for each in queue.take(0)] == ["roll", "events_lost", "roll"]


def test_a_batch_that_is_lost_is_reported_with_the_losses_that_it_reported() -> None:
    queue = EventQueue("a", limit=2)
    for number in range(5):
        queue.add(event(number))
    assert queue.lose(queue.take(0)) == 2
    assert len(queue) == 0
    assert not queue.is_empty
    (lost,) = queue.take(0)
    assert lost.detail == {"events": 5}
    assert queue.is_empty


# -- owners ----------------------------------------------------------------------------------------

NEW = LedgerList().taken_over({}, ledger_id=1, created_us=100, owner="a")
CLOSED = NEW.with_sealed(1, SEALED)


@pytest.mark.parametrize(
    ("before", "own_id", "registered", "unreachable", "ended"),
    [
        (CLOSED, "b", "a", "a", "released"),
        (NEW, "b", "a", "a", "unreachable"),
        (NEW, "b", "a", "", "fenced"),
        (CLOSED.with_next(ledger_id=2, created_us=200), "b", "a", "", "fenced"),
        (NEW, "b", "", "", "session_ended"),
        (NEW, "a", "a", "", "fenced"),
        (
            replace(NEW, takeovers=(replace(NEW.takeovers[0], taken_us=49),)),
            "a",
            "a",
            "",
            "session_ended",
        ),
    ],
)
def test_the_previous_owner(
    before: LedgerList, own_id: str, registered: str, unreachable: str, ended: str
) -> None:
    found = previous_owner(
        before,
        own_id=own_id,
        started_us=50,
        is_registered=lambda broker_id: broker_id == registered,
        is_unreachable=lambda broker_id: broker_id == unreachable,
    )
    assert found == PreviousOwner("a", ended)


def test_a_new_partition_had_no_owner() -> None:
    assert (
        previous_owner(
            LedgerList(),
            own_id="a",
            started_us=0,
            is_registered=lambda _: True,
            is_unreachable=lambda _: True,
        )
        is None
    )


# -- repetitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "unknown_ms", "repeated"),
    [
        (ErrorCode.NO_OWNER, None, True),
        (ErrorCode.NOT_ENOUGH_BOOKIES, None, True),
        (ErrorCode.TOPIC_NOT_FOUND, None, True),
        (ErrorCode.APPEND_UNKNOWN, 0.0, True),
        (ErrorCode.NO_OWNER, EVENT_REPEAT_MS - 1, True),
        (ErrorCode.NO_OWNER, EVENT_REPEAT_MS, False),
        (ErrorCode.APPEND_UNKNOWN, EVENT_REPEAT_MS, False),
        (ErrorCode.TOPIC_TERMINATED, None, False),
        (ErrorCode.PAYLOAD_TOO_LARGE, None, False),
        (ErrorCode.BAD_REQUEST, None, False),
    ],
)
def test_what_is_repeated(code: ErrorCode, unknown_ms: float | None, repeated: bool) -> None:
    assert is_repeated(FencelogError(code, "why"), unknown_ms=unknown_ms) is repeated
