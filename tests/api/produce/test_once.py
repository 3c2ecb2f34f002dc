"""Appends that a client may repeat are written once, and others are refused: over HTTP, at a real
service."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fencelog.api.produce.once import Once
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import encode_values
from tests.support.network.http_client import http_client
from tests.support.subscription_service import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = {"Idempotency-Key": "order 7"}
TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}


@pytest_asyncio.fixture(loop_scope="module")
async def http(real: str, request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a new topic of one partition."""
    base = f"{real}/v1/topics/ns/{request.node.name}"[:150]
    async with http_client(base) as client:
        assert (await client.put(base)).status_code == 201
        yield client


async def tail(http: httpx.AsyncClient) -> int:
    answer = await http.get("/partitions/0/messages?from=latest")
    return int(answer.headers["next-offset"])


async def test_a_key_with_other_contents_is_refused(http: httpx.AsyncClient) -> None:
    first = await http.post("/messages:batch", content=b"a\n", headers=KEY | TEXT)
    assert first.status_code == 201
    for content in (b"a\nb\n", b"b\n", b"a \n"):
        answer = await http.post("/messages:batch", content=content, headers=KEY | TEXT)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "idempotency_key_reused")
        assert (problem["retryable"], problem["side_effects"]) == (False, "none")
    for headers in (
        {"Fencelog-Key": "k"},
        {"Fencelog-Header-A": "1"},
        {"Fencelog-Event-Time": "1"},
    ):
        answer = await http.post("/messages", content=b"a", headers=KEY | headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert await tail(http) == 1


async def test_a_repetition_may_come_in_another_form(http: httpx.AsyncClient) -> None:
    batch = {"Content-Type": "application/vnd.fencelog.batch"}
    forms = [
        ("/messages", b"a", {}),
        ("/messages:batch", b"a\n", TEXT),
        ("/messages:batch", b'{"messages": [{"text": "a"}]}', JSON),
        ("/messages:batch", b'{"messages":[{"base64":"YQ=="}]}', JSON),
        ("/messages:batch", b'{"text":"a"}', {"Content-Type": "application/x-ndjson"}),
        ("/messages:batch", encode_values([b"a"]), batch),
    ]
    statuses = [
        (await http.post(path, content=body, headers=KEY | headers)).status_code
        for path, body, headers in forms
    ]
    assert statuses == [201, *[200] * 5]
    assert await tail(http) == 1


async def test_a_delay_is_repeated_as_it_was_given(http: httpx.AsyncClient) -> None:
    for delay, status in ((1000, 201), (1000, 200), (2000, 422)):
        answer = await http.post(f"/messages?delay_ms={delay}", content=b"a", headers=KEY)
        assert answer.status_code == status
    assert await tail(http) == 1


async def test_a_sequence_with_other_contents_is_refused(http: httpx.AsyncClient) -> None:
    for path in ("/messages", "/messages:batch"):
        headers = {"Producer-Id": path.replace("/", "").replace(":", "-"), "Producer-Seq": "0"}
        for content, status in ((b"a", 201), (b"a", 200), (b"b", 422)):
            answer = await http.post(path, content=content, headers=headers | TEXT)
            assert answer.status_code == status
        assert answer.json()["code"] == "sequence_reused"
    assert await tail(http) == 2


async def test_what_the_headers_say_is_kept_or_refused(http: httpx.AsyncClient) -> None:
    event = {
        "ce-id": "7",
        "Ce-Type": "order.paid",
        "Content-Type": "application/json; charset=utf-8",
        "Fencelog-Key-Base64": "AAE=",
    }
    assert (await http.post("/messages", content=b"{}", headers=event)).status_code == 201
    (message,) = (await http.get("/partitions/0/messages?as=json")).json()["messages"]
    assert message["json"] == {}
    assert message["headers"] == {
        "ce-id": "7",
        "ce-type": "order.paid",
        "content-type": "application/json; charset=utf-8",
    }
    one = await http.get("/partitions/0/messages/0")
    assert one.headers["content-type"] == "application/octet-stream"
    back = {
        name: value
        for name, value in one.headers.items()
        if name.startswith(("fencelog-header-", "fencelog-key"))
    }
    assert len(back) == 4
    assert (await http.post("/messages", content=one.content, headers=back)).status_code == 201
    again = await http.get("/partitions/0/messages/1")
    assert {name: again.headers[name] for name in back} == back
    refused = await http.post("/messages", headers={"Fencelog-Kye": "k"})
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
    assert "Fencelog-Kye" in refused.json()["detail"]
    assert await tail(http) == 2


async def test_a_key_is_written_once_although_partitions_are_added(http: httpx.AsyncClient) -> None:
    base = str(http.base_url).rstrip("/")
    requests = [
        (path, {"Idempotency-Key": f"{path}-{query}-{number}"} | TEXT)
        for number in range(8)
        for query in ("", f"?key=user-{number}")
        for path in (f"/messages{query}", f"/messages:batch{query}")
    ]
    places = []
    for partitions in (1, 4, 6, 7):
        assert (await http.patch(base, json={"partitions": partitions})).status_code == 200
        answers = [
            await http.post(path, content=b"once", headers=headers) for path, headers in requests
        ]
        written = 201 if partitions == 1 else 200
        assert {answer.status_code for answer in answers} == {written}
        places.append([_place(answer.json()) for answer in answers])
    assert places[1:] == places[:1] * 3
    path, headers = requests[0]
    other = await http.post(path, content=b"another", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    new = await http.post("/messages?key=user-1", content=b"x", headers={"Idempotency-Key": "new"})
    plain = await http.post("/messages?key=user-1", content=b"x")
    assert (new.status_code, new.json()["partition"]) == (201, plain.json()["partition"])


def _place(answer: dict[str, Any]) -> tuple[int, int]:
    (part,) = answer.get("appended", [answer])
    return part["partition"], part["offset"]


async def test_a_key_alone_is_certain_of_one_partition_only(http: httpx.AsyncClient) -> None:
    base = str(http.base_url).rstrip("/")
    await http.patch(base, json={"partitions": 4})
    keyed = b'{"text": "a", "key": "x"}'
    headers = KEY | {"Content-Type": "application/x-ndjson"}
    refused = await http.post("/messages:batch", content=keyed, headers=headers)
    assert refused.status_code == 400
    assert "?key= for all" in refused.json()["detail"]
    refused = await http.post("/messages", headers=KEY | {"Fencing-Token": "t"})
    assert refused.status_code == 400
    for path in (":find-key", ":find-key?partition=1"):
        wrong = await http.post(f"/partitions/0{path}", json={"id": "", "contents": ""})
        assert wrong.status_code == 400
    short = {"id": "AAAA", "contents": "", "topic_id": "", "partitions": 4}
    assert (await http.post("/partitions/0:find-key", json=short)).status_code == 400


async def test_what_a_broker_knows_of_a_deleted_topic_changes_nothing(
    http: httpx.AsyncClient,
) -> None:
    """Another topic has its name now, with fewer partitions."""
    base = str(http.base_url).rstrip("/")
    topic = (await http.get(base)).json()
    digest = base64.b64encode(bytes(16)).decode()
    look = {"id": digest, "contents": "", "topic_id": topic["topic_id"], "partitions": 1}
    for wrong in ({"topic_id": "deleted"}, {"partitions": 5}):
        refused = await http.post("/partitions/0:find-key", json=look | wrong)
        assert (refused.status_code, refused.json()["code"]) == (409, "metadata_conflict")
    assert (await http.post("/partitions/0:find-key", json=look)).json() == {"found": None}
    for path in ("/messages", "/messages:batch"):
        route = f"{path}?partition=0&routed_by=5"
        old = await http.post(route, content=b"a", headers=KEY | TEXT)
        assert (old.status_code, old.json()["code"]) == (409, "metadata_conflict")
    assert (await http.post("/messages", content=b"a", headers=KEY)).status_code == 201


async def test_a_former_partition_that_does_not_tell_leaves_no_append_unknown(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is appended before it has told whether it has the key."""
    base = str(http.base_url).rstrip("/")
    assert (await http.patch(base, json={"partitions": 4})).status_code == 200

    async def silent(*arguments: object) -> object:
        raise FencelogError(ErrorCode.STATE_UNKNOWN, "no answer")

    monkeypatch.setattr(Once, "_find", silent)
    codes = set()
    for number in range(8):
        for path in ("/messages", "/messages:batch"):
            key = {"Idempotency-Key": f"{path}-{number}"}
            answer = await http.post(path, content=b"a", headers=key | TEXT)
            if answer.status_code != 201:
                codes.add((answer.json()["code"], answer.json()["side_effects"]))
    assert codes == {("no_owner", "none")}


async def test_another_broker_asks_the_former_partition_and_an_old_route_is_refused() -> None:
    async with running() as service:
        a, b = await service.topic([await service.site("a"), await service.site("b")])
        partitions = 2
        first: dict[int, tuple[int, int]] = {}
        for step in range(3):
            for number in range(12):
                site = (a, b)[(number + step) % 2]
                path = f"{site.topic}/messages?key=user-{number}"
                headers = {"Idempotency-Key": f"k{number}"}
                answer = await site.http.post(path, content=b"once", headers=headers)
                place = _place(answer.json())
                assert answer.status_code == (201 if step == 0 else 200)
                assert first.setdefault(number, place) == place
            partitions += 3
            grown = await a.http.patch(a.topic, json={"partitions": partitions})
            assert grown.status_code == 200
        for site in (a, b):
            old = f"{site.topic}/messages?partition=1&routed_by=2"
            refused = await site.http.post(old, headers={"Idempotency-Key": "late"})
            assert (refused.status_code, refused.json()["code"]) == (409, "metadata_conflict")
            assert refused.json()["retryable"] is True
