"""Subscriptions over HTTP: what consumers do, at any of two brokers that own a partition each."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.subscription_service import (
    Site,
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

SETTINGS = {"type": "failover", "start": {"offset": 3}, "max_deliveries": 2, "lease_ms": 5000}


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class TestDefinition:
    async def test_is_created_found_listed_and_deleted(self, one: Site) -> None:
        http = one.http
        made = await http.put(one.sub, json=SETTINGS)
        assert made.status_code == 201
        assert made.json() | SETTINGS == made.json()
        again = await http.put(one.sub, json=SETTINGS)
        assert (again.status_code, again.json()) == (200, made.json())
        assert problem(await http.put(one.sub)) == (409, "already_exists")
        assert (await http.get(one.sub)).json() == made.json()
        await ok(await http.put(f"{one.topic}/subscriptions/other", json={"start": {"time": 7}}))
        listed = await ok(await http.get(f"{one.topic}/subscriptions"))
        shown = [(s["subscription"], s["start"]) for s in listed["subscriptions"]]
        assert shown == [("other", {"time": 7}), ("s", {"offset": 3})]
        assert (await http.delete(one.sub)).status_code == 204
        assert problem(await http.delete(one.sub)) == (404, "subscription_not_found")
        assert problem(await http.get(one.sub)) == (404, "subscription_not_found")
        assert problem(await http.post(f"{one.sub}:pull")) == (404, "subscription_not_found")

    @pytest.mark.parametrize(
        ("body", "named"),
        [
            ({"type": "odd"}, "type"),
            ({"start": {"offset": -1}}, "start"),
            ({"lease_ms": 0}, "lease_ms"),
            ({"dead_letter_topic": "odd", "max_deliveries": 1}, "dead_letter_topic"),
            ({"colour": "red"}, "colour"),
        ],
    )
    async def test_settings_that_are_not_valid_are_named(
        self, one: Site, body: dict[str, Any], named: str
    ) -> None:
        answer = await one.http.put(one.sub, json=body)
        assert problem(answer) == (400, "bad_request")
        assert named in answer.json()["detail"]
        assert (await one.http.get(f"{one.topic}/subscriptions")).json() == {"subscriptions": []}

    async def test_needs_its_topic_and_a_valid_name(self, one: Site) -> None:
        missing = "/v1/topics/ns/missing/subscriptions/s"
        assert problem(await one.http.put(missing)) == (404, "topic_not_found")
        assert problem(await one.http.post(f"{missing}:pull")) == (404, "topic_not_found")
        assert problem(await one.http.put(f"{one.topic}/subscriptions/-")) == (400, "invalid_name")
        long = f"{one.topic}/subscriptions/{'s' * 128}"
        refused = await one.http.put(long, json={"max_deliveries": 1})
        assert problem(refused) == (400, "bad_request")

    @pytest.mark.parametrize("slash", ["%2F", "%2f"])
    async def test_a_slash_within_a_name_does_not_end_it(self, one: Site, slash: str) -> None:
        """Who deletes the topic ``t/subscriptions/s`` does not mean the subscription."""
        await subscribe(one)
        for path in (
            f"{one.topic}{slash}subscriptions{slash}s",
            f"{one.topic}/subscriptions{slash}s",
            one.topic.replace("/v1/topics/", f"/v1/topics{slash}"),
        ):
            assert problem(await one.http.delete(path)) == (400, "invalid_name")
            assert problem(await one.http.post(f"{path}:pull")) == (400, "invalid_name")
        assert (await one.http.get(one.sub)).status_code == 200

    async def test_a_topic_has_a_limit_of_them(self, one: Site) -> None:
        await ok(await one.http.patch(one.topic, json={"max_subscriptions": 1}))
        await subscribe(one)
        refused = await one.http.put(f"{one.topic}/subscriptions/more")
        assert problem(refused) == (409, "limit_reached")

    async def test_latest_is_the_moment_of_creation_in_every_partition(
        self, two: list[Site]
    ) -> None:
        for partition in (0, 1):
            await post(two[0], "before", partition=partition)
        await subscribe(two[0], start="latest")
        for partition in (0, 1):
            await post(two[1], f"after {partition}", partition=partition)
        assert sorted(texts(await pull_all(two[1]))) == ["after 0", "after 1"]

    async def test_partitions_that_come_later_are_read_from_their_beginning(
        self, one: Site
    ) -> None:
        await post(one, "before")
        await subscribe(one, start="latest")
        await ok(await one.http.patch(one.topic, json={"partitions": 2}))
        await post(one, "early", partition=1)
        assert texts(await pull(one)) == ["early"]

    async def test_a_new_one_of_the_same_name_knows_nothing_of_the_old_one(
        self, two: list[Site]
    ) -> None:
        a, b = two
        await subscribe(a)
        await post(a, "x", partition=1)
        await verb(b, "ack", ack_ids=ids(await pull(a)))
        assert (await a.http.delete(a.sub)).status_code == 204
        log = await b.broker.partition(b.name, 1)
        assert log.subscriptions.all() == []
        await subscribe(b)
        assert texts(await pull(b)) == ["x"]
        assert texts(await pull(b)) == []


class TestPull:
    async def test_what_is_leased_is_nobody_elses_until_it_is_given_back(self, one: Site) -> None:
        await subscribe(one)
        await post(one, "x", "y")
        first, second = await pull(one)
        assert (first["text"], first["offset"], first["partition"], first["attempt"]) == (
            "x",
            0,
            0,
            1,
        )
        assert await pull(one) == []
        assert await verb(one, "nack", ack_ids=[second["ack_id"]], delay_ms=0) == {"stale": []}
        (again,) = await pull(one)
        assert (again["text"], again["attempt"]) == ("y", 2)
        unused = {"ack_ids": [again["ack_id"]], "failed": False}
        assert await verb(one, "nack", **unused) == {"stale": []}
        (again,) = await pull(one)
        assert (again["text"], again["attempt"]) == ("y", 2)
        assert await verb(one, "nack", **unused) == {"stale": unused["ack_ids"]}
        both = [first["ack_id"], again["ack_id"]]
        assert await verb(one, "ack", ack_ids=both) == {"acked": 2, "stale": []}
        assert await verb(one, "ack", ack_ids=both) == {"acked": 2, "stale": []}
        assert await pull(one) == []

    async def test_a_lease_that_ran_out_brings_the_message_again(self, one: Site) -> None:
        await subscribe(one, backoff_min_ms=0)
        await post(one, "x")
        (first,) = await pull(one, lease_ms=60)
        (again,) = await pull(one, wait=5)
        assert (again["offset"], again["attempt"]) == (0, 2)
        stale = {"stale": [first["ack_id"]]}
        assert await verb(one, "extend", ack_ids=[first["ack_id"]], lease_ms=1000) == stale
        assert await verb(one, "extend", ack_ids=[again["ack_id"]], lease_ms=1000) == {"stale": []}
        # Late is not stale: the work is done.
        assert (await verb(one, "ack", ack_ids=[first["ack_id"]]))["acked"] == 1

    async def test_messages_show_as_in_reads(self, one: Site) -> None:
        await subscribe(one)
        await post(one, '{"a": 1}', headers={"Fencelog-Key": "k", "Fencelog-Header-Trace": "7"})
        (message,) = await pull(one, **{"as": "json"})
        assert (message["json"], message["key"], message["headers"]) == (
            {"a": 1},
            "k",
            {"trace": "7"},
        )

    async def test_bounds_are_kept_over_all_partitions(self, two: list[Site]) -> None:
        a, b = two
        await subscribe(a)
        for partition in (0, 1):
            await post(a, "x" * 1000, "y" * 1000, partition=partition)
        assert len(await pull(b, max_bytes=500)) == 1
        assert len(await pull(b, max=1)) == 1
        assert len(await pull_all(b)) == 2

    async def test_every_partition_gets_its_turn(self, two: list[Site]) -> None:
        a, b = two
        await subscribe(a)
        for partition in (0, 1):
            await post(a, *"abc", partition=partition)
        for site in (a, b):
            pulled = [(await pull(site, max=1))[0]["partition"] for _ in range(2)]
            assert sorted(pulled) == [0, 1]
        only = await ok(await b.http.post(f"{a.sub}:pull?partition=0"))
        assert [m["partition"] for m in only["messages"]] == [0]

    async def test_waits_for_the_first_message_of_any_partition(self, two: list[Site]) -> None:
        a, b = two
        await subscribe(a)
        for appender, partition in ((a, 1), (b, 0)):
            waiting = asyncio.create_task(pull(a, wait=10))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await post(appender, f"to {partition}", partition=partition)
            assert texts(await waiting) == [f"to {partition}"]

    async def test_a_wait_that_is_over_is_empty(self, two: list[Site]) -> None:
        await subscribe(two[0])
        assert await pull(two[0], wait=0.05) == []

    async def test_a_broker_says_which_of_its_partitions_are_ready(self, two: list[Site]) -> None:
        a, b = two
        await subscribe(a)
        assert await verb(b, "wait", partitions=[1], wait=0.05) == {"partitions": []}
        assert await verb(b, "wait", partitions=[0, 1], wait=5) == {"partitions": [0]}  # not its
        await post(a, "x", partition=1)
        assert await verb(b, "wait", partitions=[1], wait=5) == {"partitions": [1]}

    async def test_who_goes_away_while_waiting_has_leased_nothing(self, two: list[Site]) -> None:
        a, b = two
        await subscribe(a)
        with pytest.raises(httpx.ReadTimeout):
            await a.http.post(f"{a.sub}:pull", json={"wait": 10}, timeout=0.1)
        await post(b, "x", partition=1)
        assert texts(await pull(b)) == ["x"]

    async def test_a_second_consumer_of_an_exclusive_one_is_refused(self, one: Site) -> None:
        await subscribe(one, type="exclusive")
        await post(one, "x")
        assert len(await pull(one, consumer="c1")) == 1
        refused = await one.http.post(f"{one.sub}:pull", json={"consumer": "c2"})
        assert problem(refused) == (409, "subscription_busy")

    async def test_a_partition_that_fails_does_not_hide_the_others(
        self, two: list[Site], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a, b = two
        await subscribe(a)
        await post(a, "x", partition=0)
        break_partition(b, monkeypatch)
        assert texts(await pull(a)) == ["x"]
        refused = await a.http.post(f"{a.sub}:pull")
        assert problem(refused) == (503, "overloaded")
        refused = await a.http.post(f"{a.sub}:pull", json={"wait": 0.05})
        assert problem(refused) == (503, "overloaded")

    async def test_what_is_leased_is_delivered_though_another_partition_failed_first(
        self, two: list[Site], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each of two pulls begins at another partition."""
        a, _ = two
        await subscribe(a)
        await post(a, "x", "y", partition=0)
        break_partition(a, monkeypatch)
        assert texts(await pull(a, max=1)) + texts(await pull(a, max=1)) == ["x", "y"]


def break_partition(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request about partition 1 is refused by its owner."""
    real, real_log = site.broker.partition, site.broker.open_log

    async def partition(topic: Any, number: int) -> Any:
        if number == 1:
            raise FencelogError(ErrorCode.OVERLOADED, "too much to do")
        return await real(topic, number)

    monkeypatch.setattr(site.broker, "partition", partition)

    def open_log(topic: Any, number: int) -> Any:
        return None if number == 1 else real_log(topic, number)

    monkeypatch.setattr(site.broker, "open_log", open_log)


class TestLag:
    async def test_is_that_of_all_partitions_while_both_owners_have_samples(
        self, two: list[Site]
    ) -> None:
        a, b = two
        for site in two:
            await site.broker.lag_history.close()  # its own samples may come at any moment
        await subscribe(a)
        for partition in (0, 1):
            await post(a, *"xyz", partition=partition)
        empty = await ok(await b.http.get(f"{a.sub}/lag"))
        assert empty == {"interval_ms": 10_000, "since_us": None, "backlog_messages": []}
        tick = a.broker.host.now_us() // 10_000_000
        await a.broker.lag_history.sample(tick)
        assert await ok(await b.http.get(f"{a.sub}/lag")) == empty
        for site in two:
            await site.broker.lag_history.sample(tick)
        lag = await ok(await b.http.get(f"{a.sub}/lag"))
        assert lag["backlog_messages"][-1] == 6
        assert lag["since_us"] % 10_000_000 == 0
        alone = await ok(await b.http.get(f"{a.sub}/lag?partition=1"))
        assert alone["backlog_messages"] == [3]

    async def test_is_not_known_when_a_partition_is_not(
        self, two: list[Site], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a, b = two
        await subscribe(a)
        break_partition(b, monkeypatch)
        answer = await a.http.get(f"{a.sub}/lag")
        assert problem(answer) == (503, "read_unknown")


class TestAck:
    async def test_goes_to_every_owner(self, two: list[Site]) -> None:
        a, b = two
        await subscribe(a)
        for partition in (0, 1):
            await post(a, *"xyz", partition=partition)
        messages = await pull_all(a)
        assert len(messages) == 6
        assert await verb(b, "ack", ack_ids=ids(messages)) == {"acked": 6, "stale": []}
        stats = (await ok(await a.http.get(f"{a.sub}/stats")))["partitions"]
        assert [(s["partition"], s["backlog_messages"]) for s in stats] == [(0, 0), (1, 0)]

    async def test_tells_what_was_done_and_what_not(
        self, two: list[Site], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a, b = two
        await subscribe(a)
        for partition in (0, 1):
            await post(a, "x", partition=partition)
        messages = await pull_all(a)
        break_partition(b, monkeypatch)
        for name, done in (("ack", {"acked": 1, "stale": []}), ("nack", {"stale": []})):
            answer = await a.http.post(f"{a.sub}:{name}", json={"ack_ids": ids(messages)})
            assert problem(answer) == (504, "state_unknown")
            document = answer.json()
            assert document["retryable"]
            (failed,) = document["failed"]
            assert (failed["partition"], failed["code"]) == (1, "overloaded")
            assert {name: document[name] for name in done} == (
                done if name == "ack" else {"stale": [m["ack_id"] for m in messages][:1]}
            )
        alone = [m["ack_id"] for m in messages if m["partition"] == 1]
        refused = await a.http.post(f"{a.sub}:ack", json={"ack_ids": alone})
        assert problem(refused) == (503, "overloaded")
        monkeypatch.undo()
        assert await verb(a, "ack", ack_ids=ids(messages)) == {"acked": 2, "stale": []}

    async def test_through_a_message_of_each_partition(self, two: list[Site]) -> None:
        a, b = two
        await subscribe(a, type="failover")
        for partition in (0, 1):
            await post(a, *"xyz", partition=partition)
        held = {(m["partition"], m["offset"]): m for m in await pull_all(b, consumer="c")}
        through = [held[0, 0]["ack_id"], held[1, 1]["ack_id"]]
        assert await verb(a, "ack", through=through) == {"acked": 2, "stale": []}
        twice = [held[0, 0]["ack_id"], held[0, 1]["ack_id"]]
        refused = await a.http.post(f"{a.sub}:ack", json={"through": twice})
        assert problem(refused) == (400, "bad_request")
        await verb(a, "nack", ack_ids=ids(list(held.values())), delay_ms=0)
        messages = await pull_all(b, consumer="c")
        left = sorted((m["partition"], m["offset"]) for m in messages)
        assert left == [(0, 1), (0, 2), (1, 2)]
        await verb(a, "seek", to="earliest")
        assert await verb(a, "ack", through=through) == {"acked": 0, "stale": through}

    @pytest.mark.parametrize(
        ("name", "body"),
        [
            ("ack", {}),
            ("ack", {"ack_ids": []}),
            ("ack", {"ack_ids": ["x"]}),
            ("ack", {"ack_ids": ["9-1-0-0-1-00000000"]}),
            ("ack", {"ack_ids": ["0-1-0-0-1-00000000"]}),
            ("ack", {"ack_ids": ["0-1-0-0-1-0"], "through": ["0-1-0-0-1-0"]}),
            ("ack", {"through": [{"partition": 0, "offset": 0}]}),
            ("nack", {"ack_ids": ["x"]}),
            ("nack", {"ack_ids": ["0-1-0-0-1-00000000"], "failed": False, "delay_ms": 0}),
            ("extend", {"ack_ids": ["0-1-0-0-1-00000000"]}),
            ("pull", {"max": 0}),
            ("pull", {"wait": 61}),
            ("pull", {"maximum": 1}),
            ("seek", {}),
            ("seek", {"to": "there"}),
            ("seek", {"to": "latest", "time": 1}),
            ("replay-dead-letters", {"limit": 0}),
        ],
    )
    async def test_mistakes_are_refused(self, one: Site, name: str, body: dict[str, Any]) -> None:
        await subscribe(one)
        answer = await one.http.post(f"{one.sub}:{name}", json=body)
        assert problem(answer) == (400, "bad_request")

    async def test_other_mistakes(self, one: Site) -> None:
        await subscribe(one)
        text = await one.http.post(f"{one.sub}:pull", content=b"{}")
        assert problem(text) == (415, "unsupported_media_type")
        assert problem(await one.http.get(f"{one.sub}:pull")) == (405, "method_not_allowed")
        assert problem(await one.http.post(f"{one.sub}:pull?partition=1")) == (404, "not_found")
        assert problem(await one.http.post(f"{one.sub}:pull?x=1")) == (400, "bad_request")
        gone = await one.http.post(
            f"{one.sub}:seek", json={"offsets": [{"partition": 1, "offset": 0}]}
        )
        assert problem(gone) == (404, "not_found")


class TestSeek:
    async def test_moves_every_partition(self, two: list[Site]) -> None:
        a, b = two
        await subscribe(a)
        for partition in (0, 1):
            await post(a, *"xyz", partition=partition)
        messages = await pull_all(a)
        await verb(a, "ack", ack_ids=ids(messages))
        ends = {"offsets": [{"partition": p, "offset": 3} for p in (0, 1)]}
        assert await verb(b, "seek", to="latest") == ends
        assert await pull(a) == []
        await verb(b, "seek", to="earliest")
        assert len(await pull_all(a)) == 6
        assert (await verb(a, "ack", ack_ids=ids(messages)))["acked"] == 0  # given before
        to = [{"partition": 1, "offset": 2}]
        assert await verb(a, "seek", offsets=to) == {"offsets": to}
        assert [(m["partition"], m["offset"]) for m in await pull(a)] == [(1, 2)]
        beyond = await a.http.post(
            f"{a.sub}:seek", json={"offsets": [{"partition": 1, "offset": 9}]}
        )
        assert problem(beyond) == (416, "offset_beyond_tail")

    async def test_by_time(self, one: Site) -> None:
        await subscribe(one)
        await post(one, "x")
        await asyncio.sleep(0.002)
        await post(one, "y")
        messages = await pull(one)
        moved = await verb(one, "seek", time=messages[1]["publish_time"])
        assert moved == {"offsets": [{"partition": 0, "offset": 1}]}
        assert texts(await pull(one)) == ["y"]
