"""Dead letters, their replay, delayed messages, and messages as events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fencelog.api.subscriptions.dead_letters import dead_letter, replayed
from fencelog.broker.append.conditions import AppendFuture
from fencelog.broker.names import TopicName
from fencelog.broker.subscriptions.answers import PulledMessage
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_HEADERS
from fencelog.ledgers.record_batch import Message
from tests.support.subscription_service import (
    Site,
    append,
    ids,
    ok,
    post,
    pull,
    pull_all,
    subscribe,
    texts,
    verb,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def kill(site: Site, deliveries: int = 2) -> None:
    """Refuse everything that there is, so often."""
    for _ in range(deliveries):
        messages = await pull_all(site)
        await verb(site, "nack", ack_ids=ids(messages), delay_ms=0)
    await pull(site)  # sees that it is hopeless


async def dead(site: Site, topic: str, count: int) -> list[dict[str, Any]]:
    """The messages of a dead letter topic, once there are so many."""
    path = f"/v1/topics/ns/{topic}/partitions/0/messages"
    async with asyncio.timeout(5):
        while True:
            answer = await site.http.get(path)
            if answer.is_success and len(answer.json()["messages"]) >= count:
                found: list[dict[str, Any]] = answer.json()["messages"]
                return found
            await asyncio.sleep(0.01)


async def test_what_fails_too_often_goes_to_a_topic_of_its_own_and_back(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, max_deliveries=2)
    await subscribe(a, "other")
    head = {"Fencelog-Key": "k", "Fencelog-Header-Trace": "7"}
    await post(a, "bad", partition=1, headers=head)
    await kill(a)
    name = f"{a.name.topic}-s-dead"
    (letter,) = await dead(b, name, 1)
    assert (letter["text"], letter["key"]) == ("bad", "k")
    assert letter["headers"] == {
        "fencelog-origin-topic": str(a.name),
        "fencelog-origin-partition": "1",
        "fencelog-origin-offset": "0",
        "fencelog-origin-attempts": "2",
        "fencelog-origin-subscription": "s",
        "trace": "7",
    }
    assert await pull_all(a) == []
    stats = (await ok(await a.http.get(f"{a.sub}/stats")))["partitions"]
    assert [s["backlog_messages"] for s in stats] == [0, 0]
    assert await verb(b, "replay-dead-letters") == {"replayed": 1}
    assert await verb(b, "replay-dead-letters") == {"replayed": 0}
    (again,) = await pull_all(a)
    assert (again["partition"], again["offset"], again["attempt"]) == (1, 1, 1)
    assert again["headers"] == {"trace": "7", "fencelog-replay-for": "s"}
    other = await ok(await a.http.post(f"{a.topic}/subscriptions/other:pull?partition=1"))
    assert [m["offset"] for m in other["messages"]] == [0]  # the replay is not for it
    assert (await a.http.delete(a.sub)).status_code == 204
    left = await ok(await a.http.get(f"/v1/topics/ns/{name}/subscriptions"))
    assert left == {"subscriptions": []}


async def test_a_replay_takes_its_own_letters_up_to_its_limit(two: list[Site]) -> None:
    a, b = two
    letters: dict[str, Any] = {
        "max_deliveries": 1,
        "dead_letter_topic": f"ns/shared-{a.name.topic}",
    }
    await subscribe(a, **letters)
    await subscribe(a, "other", **letters)
    await post(a, *"xyz")
    await kill(a, 1)
    messages = (await ok(await a.http.post(f"{a.topic}/subscriptions/other:pull")))["messages"]
    path = f"{a.topic}/subscriptions/other:nack"
    await ok(await a.http.post(path, json={"ack_ids": ids(messages), "delay_ms": 0}))
    await a.http.post(f"{a.topic}/subscriptions/other:pull")
    assert len(await dead(a, f"shared-{a.name.topic}", 6)) == 6
    assert await verb(b, "replay-dead-letters", limit=2) == {"replayed": 2}
    assert await verb(b, "replay-dead-letters") == {"replayed": 1}
    assert sorted(texts(await pull_all(b))) == ["x", "y", "z"]


@pytest.mark.parametrize("partition", ["9" * 5000, "2", "-1", "x", ""])
async def test_a_letter_of_a_partition_that_cannot_be_holds_up_no_others(
    one: Site, partition: str
) -> None:
    """Anybody may append to the topic of dead letters."""
    await subscribe(one, max_deliveries=2)
    await ok(await one.http.put(f"/v1/topics/ns/{one.name.topic}-s-dead"))
    origin = {"topic": str(one.name), "subscription": "s", "partition": partition}
    head = {f"Fencelog-Header-fencelog-origin-{name}": told for name, told in origin.items()}
    forged = f"/v1/topics/ns/{one.name.topic}-s-dead/messages"
    await ok(await one.http.post(forged, content=b"forged", headers=head))
    await post(one, "bad")
    await kill(one)
    await dead(one, f"{one.name.topic}-s-dead", 2)
    assert await verb(one, "replay-dead-letters") == {"replayed": 1}
    assert texts(await pull_all(one)) == ["bad"]


async def test_nothing_has_died_yet(two: list[Site]) -> None:
    await subscribe(two[0], max_deliveries=2)
    assert await verb(two[1], "replay-dead-letters") == {"replayed": 0}


@pytest.mark.parametrize("owner", [0, 1])
async def test_a_burial_that_is_repeated_writes_once(two: list[Site], owner: int) -> None:
    a, name = two[0], TopicName("ns", f"{two[0].name.topic}-s-dead")
    await subscribe(a, max_deliveries=2)
    await ok(await a.http.put(f"/v1/topics/ns/{name.topic}"))
    await two[owner].broker.partition(name, 0)
    await pull(a)
    letters = (await a.broker.partition(a.name, 0)).subscriptions.dead_letters
    assert letters is not None
    topic = await a.broker.topic(a.name)
    info = (await a.broker.subscriptions.get(topic.topic_id, "s")).info
    for attempts in (2, 2, 3):
        await letters.forward(info, 0, pulled(Message(b"bad"))._replace(attempt=attempts))
    assert len(await dead(a, name.topic, 1)) == 1


async def test_a_burial_is_repeated_where_it_was_before_the_topic_grew(two: list[Site]) -> None:
    """The outcome of the first attempt is not known, and there are more partitions since."""
    a, name = two[0], TopicName("ns", f"{two[0].name.topic}-s-dead")
    path = f"/v1/topics/ns/{name.topic}"
    await subscribe(a, max_deliveries=2)
    await ok(await a.http.put(path))
    await two[1].broker.partition(name, 0)
    await pull(a)
    letters = (await a.broker.partition(a.name, 0)).subscriptions.dead_letters
    assert letters is not None
    topic = await a.broker.topic(a.name)
    info = (await a.broker.subscriptions.get(topic.topic_id, "s")).info
    first, later = pulled(Message(b"bad")), pulled(Message(b"worse"))._replace(offset=8)
    await letters.forward(info, 1, first)
    await ok(await a.http.patch(path, json={"partitions": 2}))
    for attempt in (3, 4):
        await letters.forward(info, 1, first._replace(attempt=attempt))
        await letters.forward(info, 1, later._replace(attempt=attempt))
    found = [
        [
            message["text"]
            for message in (await ok(await a.http.get(f"{path}/partitions/{n}/messages")))[
                "messages"
            ]
        ]
        for n in range(2)
    ]
    assert found == [["bad"], ["worse"]]
    # At the same offset, of two partitions: two keys of the replay.
    assert await verb(two[1], "replay-dead-letters") == {"replayed": 2}
    assert sorted(texts(await pull_all(a))) == ["bad", "worse"]


async def test_a_letter_that_cannot_go_back_stays(
    two: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two
    await subscribe(a, max_deliveries=1)
    await post(a, "bad")
    await kill(a, 1)
    await dead(a, f"{a.name.topic}-s-dead", 1)
    real = a.broker.partition

    async def refuse(topic: Any, partition: int) -> Any:
        if topic == a.name:
            raise FencelogError(ErrorCode.OVERLOADED, "too much to do")
        return await real(topic, partition)

    monkeypatch.setattr(a.broker, "partition", refuse)
    answer = await a.http.post(f"{a.sub}:replay-dead-letters")
    assert (answer.status_code, answer.json()["replayed"]) == (503, 0)
    monkeypatch.undo()
    assert await verb(b, "replay-dead-letters") == {"replayed": 1}


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_letter_of_unknown_outcome_goes_back_once(
    two: list[Site], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    a, b = two
    await subscribe(a, max_deliveries=1)
    await post(a, "bad")
    await kill(a, 1)
    await dead(a, f"{a.name.topic}-s-dead", 1)
    log = await a.broker.partition(a.name, 0)
    real = log.append_message

    def unknown(message: Message, conditions: Any = None) -> AppendFuture:
        if is_there:
            real(message, conditions)
        future: AppendFuture = asyncio.get_running_loop().create_future()
        future.set_exception(FencelogError(ErrorCode.APPEND_UNKNOWN, "the answer was lost"))
        return future

    monkeypatch.setattr(log, "append_message", unknown)
    answer = await a.http.post(f"{a.sub}:replay-dead-letters")
    assert (answer.status_code, answer.json()["replayed"]) == (504, 0)
    monkeypatch.undo()
    assert await verb(b, "replay-dead-letters") == {"replayed": 1}
    assert texts(await pull_all(a)) == ["bad"]


async def test_letters_do_not_go_where_others_may_not_append(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, max_deliveries=1)
    await post(a, "bad")
    await post(a, "worse", partition=1)
    await kill(a, 1)
    await dead(a, f"{a.name.topic}-s-dead", 2)
    access = (await a.broker.partition(a.name, 0)).access
    await access.fence("mine")
    refused = await b.http.post(f"{b.sub}:replay-dead-letters")
    assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed")
    assert refused.json()["replayed"] == 1  # that of the other partition
    await access.fence(None)
    epoch = await access.claim("alone", "exclusive", wait_ms=0)
    refused = await b.http.post(f"{b.sub}:replay-dead-letters")
    assert (refused.status_code, refused.json()["code"]) == (409, "producer_busy")
    await access.release("alone", epoch)
    assert await verb(b, "replay-dead-letters") == {"replayed": 1}
    assert sorted(texts(await pull_all(a))) == ["bad", "worse"]


def pulled(message: Message) -> PulledMessage:
    return PulledMessage(7, 0, message, "id", 3)


async def test_headers_that_find_no_room_are_counted() -> None:
    many = tuple((f"h{n}", b"x") for n in range(MAX_HEADERS))
    letter = dead_letter(TopicName("ns", "t"), "s", 0, pulled(Message(b"v", None, None, many)))
    assert len(letter.headers) == MAX_HEADERS
    assert dict(letter.headers)["fencelog-headers-omitted"] == b"6"
    back = replayed(letter, "s")
    assert back.headers == (*many[: MAX_HEADERS - 6], ("fencelog-replay-for", b"s"))
    large = (("large", bytes(32 * 1024 - 5)),)
    letter = dead_letter(TopicName("ns", "t"), "s", 0, pulled(Message(b"v", None, None, large)))
    assert dict(letter.headers)["fencelog-headers-omitted"] == b"1"


async def test_a_letter_that_dies_again_has_its_latest_origin_alone() -> None:
    first = dead_letter(TopicName("ns", "t"), "s", 0, pulled(Message(b"v")))
    again = dead_letter(TopicName("ns", "u"), "s", 1, pulled(replayed(first, "s")))
    names = [name for name, _ in again.headers]
    assert len(names) == len(set(names)) == 5
    assert dict(again.headers)["fencelog-origin-topic"] == b"ns/u"


async def test_a_message_for_later_is_handed_out_when_it_is_due(two: list[Site]) -> None:
    a = two[0]
    await subscribe(a)
    times = await ok(await a.http.post(f"{a.topic}/messages?partition=0", content=b"now"))
    due = times["publish_time"] + 400_000
    for text, due_us in ((b"soon", due), (b"much later", due + 3_600_000_000)):
        header = ("fencelog-deliver-at", b"%d" % due_us)
        await append(a, Message(text, None, None, (header,)))
    assert texts(await pull(a, max=1)) == ["now"]
    assert texts(await pull(a, wait=50)) == ["soon"]
    assert a.broker.host.now_us() >= due
    assert await pull_all(a) == []


async def test_events_are_messages_with_leases(two: list[Site]) -> None:
    a, b = two
    await subscribe(a, max_outstanding=2)
    await post(a, *"wxyz", partition=1)
    seen: list[dict[str, Any]] = []
    async with a.http.stream("GET", f"{a.sub}/events?limit=4&consumer=c") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        async for line in answer.aiter_lines():
            if line.startswith("data: {") and len(line) > len("data: {}"):
                seen.append(json.loads(line.removeprefix("data: ")))
                if len(seen) == 2:  # no more come before these are acknowledged
                    assert await verb(b, "ack", ack_ids=ids(seen)) == {"acked": 2, "stale": []}
    assert [message["text"] for message in seen] == list("wxyz")
    assert (await verb(a, "ack", ack_ids=ids(seen)))["acked"] == 4


async def test_a_frame_in_another_page_leases_nothing(two: list[Site]) -> None:
    """A hidden frame has a browser follow any link; at this one, reading takes messages."""
    a = two[0]
    await subscribe(a)
    await post(a, "x")
    frame = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    answer = await a.http.get(f"{a.sub}/events?limit=1", headers=frame)
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_origin")
    assert texts(await pull(a)) == ["x"]


async def test_a_stream_that_cannot_begin_is_a_problem(two: list[Site]) -> None:
    a = two[0]
    for path, status in (
        (f"{a.sub}/events", 404),
        (f"{a.topic}/subscriptions/s/events?limit=0", 400),
    ):
        assert (await a.http.get(path)).status_code == status


async def test_a_stream_ends_with_a_problem_when_its_subscription_goes(two: list[Site]) -> None:
    a, b = two
    await subscribe(a)
    async with a.http.stream("GET", f"{a.sub}/events") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "event: ping"
        await post(b, "x")
        assert (await b.http.delete(b.sub)).status_code == 204
        rest = [line async for line in lines]
    assert "event: problem" in rest
    assert "subscription_not_found" in rest[rest.index("event: problem") + 1]


async def test_a_delivery_time_comes_as_header_as_member_or_as_a_delay(two: list[Site]) -> None:
    a, b = two
    await subscribe(a)
    path = f"{a.topic}/messages"
    for query, headers in (("&delay_ms=60000", {}), ("", {"Fencelog-Deliver-At": str(2**60)})):
        posted = b.http.post(f"{path}?partition=0{query}", content=b"later", headers=headers)
        await ok(await posted)
    many = {"messages": [{"text": "later", "deliver_at": 2**60}, {"text": "now"}]}
    await ok(await b.http.post(f"{path}:batch?partition=0", json=many))
    assert texts(await pull_all(a)) == ["now"]
    (stats,) = (await ok(await a.http.get(f"{a.sub}/stats?partition=0")))["partitions"]
    assert (stats["delayed"], stats["backlog_messages"]) == (3, 4)


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("&delay_ms=-1", {}),
        ("&delay_ms=soon", {}),
        ("", {"Fencelog-Deliver-At": "soon"}),
        ("", {"Fencelog-Deliver-At": "-1"}),
    ],
)
async def test_a_delivery_time_that_is_none_is_refused(
    two: list[Site], query: str, headers: dict[str, str]
) -> None:
    path = f"{two[0].topic}/messages?partition=0{query}"
    answer = await two[0].http.post(path, content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
