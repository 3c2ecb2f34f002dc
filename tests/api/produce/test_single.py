"""Single messages: the body verbatim, metadata in headers, and every way to refuse one."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from fencelog.api.produce.post import Post
from fencelog.api.produce.single import Produce
from fencelog.broker.append.pending import AppendResult
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c
from fencelog.ledgers.limits import MAX_MESSAGE_BYTES
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over
from tests.support.network.http_client import http_client

URL = "/v1/topics/ns/t/messages"
ONE = "/v1/topics/ns/t/partitions/0/messages"
T = TopicName("ns", "t")


async def test_a_body_comes_back_byte_for_byte(http: httpx.AsyncClient) -> None:
    body = bytes(range(256)) + b"\r\n"
    answer = await http.post(URL, content=body)
    assert answer.status_code == 201
    assert answer.json() == {"partition": 0, "offset": 0, "publish_time": 1_700_000_000_000_000}
    read = await http.get(f"{ONE}/0")
    assert read.content == body
    assert read.headers["content-type"] == "application/octet-stream"


async def test_metadata_travels_in_headers(http: httpx.AsyncClient) -> None:
    headers = {"Fencelog-Key": "k1", "Fencelog-Event-Time": "-5", "Fencelog-Header-Trace": "a=b"}
    await http.post(URL, content=b"x", headers=headers)
    read = await http.get(f"{ONE}/0")
    assert read.headers["fencelog-key"] == "k1"
    assert read.headers["fencelog-event-time"] == "-5"
    assert read.headers["fencelog-header-trace"] == "a=b"
    assert read.headers["fencelog-publish-time"] == "1700000000000000"


async def test_a_key_of_any_bytes_travels_in_the_query(http: httpx.AsyncClient) -> None:
    await http.post(f"{URL}?key=%00%ff%0a", content=b"x")
    read = await http.get(f"{ONE}/0")
    assert read.headers["fencelog-key-base64"] == b64encode(b"\x00\xff\n").decode()


async def test_an_empty_message_is_a_message(http: httpx.AsyncClient) -> None:
    assert (await http.post(URL, content=b"")).json()["offset"] == 0
    assert (await http.get(f"{ONE}/0")).content == b""


async def test_keys_choose_partitions_and_the_rest_takes_turns(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    many = TopicName("ns", "many")
    await fake_broker.topics.create(many, TopicConfig(partitions=3))
    url = "/v1/topics/ns/many/messages"
    answers = [await http.post(url, headers={"Fencelog-Key": "k"}) for _ in range(3)]
    assert {a.json()["partition"] for a in answers} == {crc32c(b"k") % 3}
    turns = [(await http.post(url)).json()["partition"] for _ in range(6)]
    assert sorted(turns) == [0, 0, 1, 1, 2, 2]
    named = await http.post(f"{url}?partition=2", headers={"Fencelog-Key": "k"})
    assert named.json()["partition"] == 2


async def test_a_key_is_not_passed_on_at_once(
    fake_broker: FakeBroker, fake_bookies: FakeBookies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among how many partitions it has chosen this one is for the owner to check."""
    await fake_broker.topics.create(T, TopicConfig())
    fake_broker.elsewhere[T, 0] = "http://owner"
    app = app_over(fake_broker, fake_bookies)
    passed_on: list[Post] = []

    def append_elsewhere(self: Produce, post: Post, *rest: object) -> None:
        passed_on.append(post)

    monkeypatch.setattr(Produce, "append_elsewhere", append_elsewhere)
    plain = app.posts.single_post(URL.encode(), [])
    keyed = app.posts.single_post(URL.encode(), [(b"idempotency-key", b"k")])
    assert plain is not None
    assert keyed is not None
    for post in (plain, keyed):
        assert app.append_now(post, b"x") is None
    assert passed_on == [plain]


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ("?partition=1", {}, 404, "not_found"),
        ("?partition=x", {}, 400, "bad_request"),
        ("?partitoin=0", {}, 400, "bad_request"),
        ("?partition=0&partition=0", {}, 400, "bad_request"),
        ("?%ff=0", {}, 400, "bad_request"),
        ("?key=a", {"Fencelog-Key": "a"}, 400, "bad_request"),
        ("", {"Fencelog-Event-Time": "yesterday"}, 400, "bad_request"),
        ("", {"Fencelog-Event-Time": "9223372036854775808"}, 400, "bad_request"),
        ("", {"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
    ],
)
async def test_refusals_say_what_is_wrong(
    http: httpx.AsyncClient,
    fake_broker: FakeBroker,
    query: str,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    answer = await http.post(URL + query, content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["side_effects"] == "none"
    assert (T, 0) not in fake_broker.logs or not fake_broker.logs[T, 0].entries


async def test_unknown_topics_and_invalid_names(http: httpx.AsyncClient) -> None:
    missing = await http.post("/v1/topics/ns/absent/messages", content=b"x")
    assert (missing.status_code, missing.json()["code"]) == (404, "topic_not_found")
    invalid = await http.post("/v1/topics/ns/-a/messages", content=b"x")
    assert (invalid.status_code, invalid.json()["code"]) == (400, "invalid_name")


async def test_a_body_over_the_limit_is_refused_before_it_is_read(service: str) -> None:
    """The test sends the announcement alone: the refusal comes without a byte of the body."""
    reader, writer = await asyncio.open_connection(*_address(service))
    writer.write(
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        % (URL.encode(), MAX_MESSAGE_BYTES + 1)
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert b" 413 " in head
    writer.close()
    await writer.wait_closed()


async def test_a_refused_client_that_waited_for_100_is_disconnected(service: str) -> None:
    reader, writer = await asyncio.open_connection(*_address(service))
    writer.write(
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        % (URL.encode(), MAX_MESSAGE_BYTES + 1)
    )
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()
    writer.close()
    await writer.wait_closed()


async def test_a_chunked_body_is_stopped_where_it_grows_past_the_limit(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    async def endless() -> Any:
        for _ in range(2 * MAX_MESSAGE_BYTES // 65536):
            yield bytes(65536)

    answer = await http.post(URL, content=endless())
    assert answer.status_code == 413
    assert (T, 0) not in fake_broker.logs


async def test_the_connection_lives_on_after_a_refusal(http: httpx.AsyncClient) -> None:
    assert (await http.post(URL, content=bytes(MAX_MESSAGE_BYTES + 1))).status_code == 413
    assert (await http.post(URL, content=b"x")).status_code == 201


async def test_overload_says_when_to_come_back(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    log = await fake_broker.partition(T, 0)
    log.failure = FencelogError(ErrorCode.OVERLOADED, "too much waits")
    answer = await http.post(URL, content=b"x")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["retryable"] is True
    assert answer.json()["side_effects"] == "none"


async def test_an_unknown_outcome_is_not_folded_into_a_failure(
    http: httpx.AsyncClient, fake_broker: FakeBroker
) -> None:
    log = await fake_broker.partition(T, 0)
    log.failure = FencelogError(ErrorCode.APPEND_UNKNOWN, "the ledger was fenced")
    answer = await http.post(URL, content=b"x")
    assert answer.status_code == 504
    assert answer.json()["side_effects"] == "maybe"
    assert answer.json()["retryable"] is False


async def test_an_unexpected_error_is_logged_and_not_shown(
    http: httpx.AsyncClient, fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fake_broker.failure = RuntimeError("secret")
    answer = await http.post(URL, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert any("secret" in str(record.exc_info) for record in caplog.records)


async def test_methods(http: httpx.AsyncClient) -> None:
    wrong = await http.get(URL)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, OPTIONS")
    assert wrong.json()["code"] == "method_not_allowed"
    options = await http.options(URL)
    assert (options.status_code, options.headers["allow"]) == (204, "POST, OPTIONS")


async def test_a_client_that_leaves_in_its_body_leaves_no_noise(
    service: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(_address(service)) as sock:
        sock.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx" % URL.encode()
        )
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    assert not caplog.records


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


async def test_an_append_that_a_closing_service_cuts_off_is_of_unknown_outcome(
    fake_broker: FakeBroker,
    fake_bookies: FakeBookies,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencelog.api.server.serve.SHUTDOWN_S", 0)
    await fake_broker.topics.create(T, TopicConfig())
    log = await fake_broker.partition(T, 0)
    handed = asyncio.Event()

    def hang(*_append: object) -> asyncio.Future[AppendResult]:
        handed.set()
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(log, "append_message", hang)
    async with http_client() as client:
        async with serve(app_over(fake_broker, fake_bookies)) as url:
            request = asyncio.create_task(client.post(url + URL, content=b"x"))
            await handed.wait()
        answer = await request
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json()["code"], answer.json()["side_effects"]) == ("append_unknown", "maybe")
