"""The Python client against servers that misbehave: what it concludes from each silence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from fencelog.api.client import FencelogClient, topic_path
from fencelog.api.client.commits import PartitionCommits
from fencelog.api.client.conditions import AppendPreconditions, Producer
from fencelog.api.client.http import (
    LOST_HOST_S,
    MAX_AT_ONCE,
    REQUEST_TIMEOUT_S,
    _certificates,
    partition_place,
)
from fencelog.api.client.producer import PartitionAccess
from fencelog.ledgers.errors import ErrorCode, FencelogError

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    """A server that does ``answer`` with each connection, and its URL."""
    handling: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await answer(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.add(asyncio.create_task(handle(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        await asyncio.gather(*handling)


def replying(status: str, body: object) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = body if isinstance(body, str) else json.dumps(body)
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()

    return answer


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


def unused_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


APPENDED = {"count": 1, "appended": [{"partition": 0, "offset": 7, "count": 1}]}


async def test_an_append_that_is_not_answered_has_an_unknown_outcome() -> None:
    async with server(hang_up) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError, match="did not answer") as raised:
            await client.append("orders", b"one")
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN


async def test_an_append_that_is_not_answered_is_not_sent_to_another_server() -> None:
    async with (
        server(hang_up) as lost,
        server(replying("201 Created", APPENDED)) as other,
        FencelogClient([lost, other]) as client,
    ):
        with pytest.raises(FencelogError) as raised:
            await client.append("orders", b"one")
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN


async def test_an_append_that_reached_nobody_goes_to_the_next_server() -> None:
    async with (
        server(replying("201 Created", APPENDED)) as url,
        FencelogClient(f"{unused_url()}, {url}") as client,
    ):
        appended = await client.append("orders", b"one")
    assert (appended.partition, appended.offset, appended.count) == (0, 7, 1)


async def test_that_no_server_can_be_reached_means_that_nothing_was_done() -> None:
    url = unused_url()
    async with FencelogClient(url) as client:
        with pytest.raises(FencelogError, match=f"cannot reach {url}") as raised:
            await client.append("orders", b"one")
    assert raised.value.code is ErrorCode.NO_OWNER


@pytest.mark.parametrize(
    "condition",
    [
        AppendPreconditions(idempotency_key="job 7 "),
        AppendPreconditions(producer=Producer(" job")),
        AppendPreconditions(fencing_token="one\ntwo"),
    ],
    ids=["end", "beginning", "middle"],
)
async def test_a_header_that_cannot_be_sent_is_refused(condition: AppendPreconditions) -> None:
    arrived: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.read())

    async with server(note) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError, match="cannot be sent") as raised:
            await client.append("orders", b"one", partition=0, **condition)
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert arrived == [b""]


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, "\ud800"])
async def test_a_setting_that_cannot_be_sent_is_refused(value: object) -> None:
    async with FencelogClient(unused_url()) as client:
        with pytest.raises(FencelogError, match="cannot be sent") as raised:
            await client.create_topic("t", retention_ms=value)
    assert raised.value.code is ErrorCode.BAD_REQUEST


async def test_a_client_that_is_closed_says_so() -> None:
    client = FencelogClient(unused_url())
    await client.close()
    with pytest.raises(FencelogError, match="the client is closed") as raised:
        await client.append("t", b"late")
    assert raised.value.code is ErrorCode.BAD_REQUEST


async def test_a_read_that_is_not_answered_may_be_repeated() -> None:
    async with server(hang_up) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError) as raised:
            await client.topic("orders")
    assert raised.value.code is ErrorCode.REQUEST_TIMEOUT
    assert not raised.value.may_have_effect


async def test_a_read_has_no_effect_whatever_it_is_answered() -> None:
    for status in ("500 Oh", "200 OK"):
        async with server(replying(status, "no JSON")) as url, FencelogClient(url) as client:
            with pytest.raises(FencelogError) as raised:
                await client.topic("orders")
        assert (raised.value.code, raised.value.may_have_effect) == (ErrorCode.INTERNAL, False)
        async with server(replying(status, "no JSON")) as url, FencelogClient(url) as client:
            with pytest.raises(FencelogError) as raised:
                await client.create_topic("orders")
        assert (raised.value.code, raised.value.may_have_effect) == (ErrorCode.INTERNAL, True)


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(wait) as url, FencelogClient(url, timeout_s=0.5) as client:
        with pytest.raises(FencelogError) as raised:
            await client.append("orders", b"one")
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has these options")
async def test_a_machine_that_is_lost_is_noticed_before_a_slow_answer_is_given_up() -> None:
    found: dict[str, int] = {}

    async def look(answer: httpx.Response) -> None:
        connection = answer.extensions["network_stream"].get_extra_info("socket")
        found["alive"] = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"):
            found[name] = connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))

    async with server(replying("200 OK", {})) as url, FencelogClient(url) as client:
        client._service._http.event_hooks["response"].append(look)
        await client._service.request("GET", "/healthz")
    assert found["alive"] == 1
    probes_s = found["TCP_KEEPINTVL"] * found["TCP_KEEPCNT"]
    assert found["TCP_KEEPIDLE"] + probes_s == LOST_HOST_S
    assert found["TCP_USER_TIMEOUT"] == LOST_HOST_S * 1000
    assert LOST_HOST_S < REQUEST_TIMEOUT_S


async def test_an_answer_that_cannot_be_decoded_is_none() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n"
        writer.write(head + b"connection: close\r\n\r\nno!!")

    async with server(answer) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError, match="did not answer") as raised:
            await client.append("orders", b"one")
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN


async def test_a_success_of_another_kind_says_nothing() -> None:
    """A proxy's page, for example: the append may be in the log."""
    bodies: list[object] = [{}, {"appended": None}, {"appended": [{}]}, {"appended": []}]
    for body in bodies:
        async with server(replying("200 OK", body)) as url, FencelogClient(url) as client:
            with pytest.raises(FencelogError) as raised:
                await client.append("orders", b"one")
        assert raised.value.code is ErrorCode.INTERNAL
        assert raised.value.may_have_effect


async def test_a_problem_document_comes_back_as_the_error_it_was() -> None:
    problem = {
        "type": "urn:fencelog:problem:bad_request",
        "title": "Bad request",
        "status": 400,
        "detail": "line 3 is no JSON",
        "instance": "/v1/topics/default/orders/messages:batch",
        "code": "bad_request",
        "retryable": False,
        "side_effects": "none",
        "line": 3,
    }
    async with server(replying("400 Bad Request", problem)) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError) as raised:
            await client.append("orders", b"one")
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert raised.value.detail == "line 3 is no JSON"
    assert raised.value.extra == {"line": 3}


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Unavailable", "504 Timeout"])
async def test_a_proxy_that_had_no_answer_is_as_good_as_none(status: str) -> None:
    """It may have passed the request on; and the service may be there again in a moment."""
    async with server(replying(status, "<html>")) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError, match=status) as raised:
            await client.append("orders", b"one")
    assert raised.value.code is ErrorCode.APPEND_UNKNOWN
    async with server(replying(status, "<html>")) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError, match=status) as raised:
            await client.pull("orders", "billing")
    assert raised.value.code is ErrorCode.STATE_UNKNOWN
    async with server(replying(status, "<html>")) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError, match=status) as raised:
            await client.topic("orders")
    assert raised.value.code is ErrorCode.REQUEST_TIMEOUT
    assert not raised.value.may_have_effect


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("500 Oh", ErrorCode.INTERNAL),
        ("404 Not Found", ErrorCode.BAD_REQUEST),
        ("429 Too Many Requests", ErrorCode.RATE_LIMITED),
    ],
)
async def test_an_answer_that_is_no_problem_document_is_judged_by_its_status(
    status: str, code: ErrorCode
) -> None:
    async with server(replying(status, "<html>")) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError, match=status) as raised:
            await client.append("orders", b"one")
    assert raised.value.code is code


@pytest.mark.parametrize(
    ("servers", "read"),
    [
        ("http://127.0.0.1:1", 0),
        ("http://127.0.0.1:1,https://127.0.0.1:2", 1),
        ("HTTPS://127.0.0.1:1", 1),
    ],
)
async def test_certificates_are_read_for_https_alone(
    monkeypatch: pytest.MonkeyPatch, servers: str, read: int
) -> None:
    """Reading them takes longer than most requests."""
    found: list[ssl.SSLContext] = []
    load = ssl.SSLContext.load_verify_locations

    def counted(context: ssl.SSLContext, *args: str | None, **options: str | None) -> None:
        found.append(context)
        load(context, *args, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", counted)
    async with FencelogClient(servers.split(",")):
        assert len(found) == read
    assert all(context.verify_mode is ssl.CERT_REQUIRED for context in found)


async def test_a_client_without_https_trusts_no_certificate() -> None:
    """A broker may be named as an owner by another kind of URL."""
    context = _certificates(["http://127.0.0.1:1"])
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.cert_store_stats()["x509"] == 0


@pytest.mark.parametrize(
    "request_with",
    [
        lambda client, name: client.delete_subscription("default/orders", name),
        lambda client, name: client.delete_topic(f"shop/{name}"),
        lambda client, name: client.create_topic(f"{name}/namespaces"),
        lambda client, name: client.delete_namespace(name),
        lambda client, name: PartitionAccess(client, "orders").release(name, 1),
        lambda client, name: PartitionCommits(client, "orders", 0, name).last(),
    ],
    ids=["subscription", "topic", "namespace of a topic", "namespace", "producer", "committer"],
)
@pytest.mark.parametrize("name", [".", ".."])
async def test_a_name_that_a_url_would_lose_is_refused(
    request_with: Callable[[FencelogClient, str], Awaitable[object]], name: str
) -> None:
    """Deleting the subscription ``..`` would delete its topic."""
    asked: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")

    async with server(note) as url, FencelogClient(url) as client:
        with pytest.raises(FencelogError) as raised:
            await request_with(client, name)
    assert raised.value.code is ErrorCode.INVALID_NAME
    assert asked == []


async def test_a_name_with_dots_in_it_is_a_name() -> None:
    async with server(replying("204 No Content", "")) as url, FencelogClient(url) as client:
        await client.delete_subscription("a..b/..c", "d.")


async def test_a_url_that_is_none_is_refused() -> None:
    async with FencelogClient("nonsense") as client:
        with pytest.raises(FencelogError, match="nonsense"):
            await client.topic("orders")


@pytest.mark.parametrize(
    ("topic", "path"),
    [
        ("orders", "/v1/topics/default/orders"),
        ("shop/orders", "/v1/topics/shop/orders"),
        ("shop/a/b?c", "/v1/topics/shop/a%2Fb%3Fc"),
    ],
)
def test_a_topic_without_a_namespace_is_in_default(topic: str, path: str) -> None:
    assert topic_path(topic) == path


async def test_a_keyword_that_does_not_exist_is_refused() -> None:
    """A condition that is misspelt would be none."""
    misspelt: Any = {"if_ofset": 7}
    async with FencelogClient(unused_url()) as client:
        with pytest.raises(TypeError, match="if_ofset: no such keyword argument; there are prod"):
            await client.append("a/b", b"x", **misspelt)
        with pytest.raises(TypeError, match="if_ofset: no such keyword argument; there are max_"):
            await client.read("a/b", 0, 0, **misspelt)


async def test_a_silence_is_named() -> None:
    async def be_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(be_silent) as url, FencelogClient(url, timeout_s=0.05) as client:
        with pytest.raises(FencelogError, match="did not answer: ReadTimeout"):
            await client.append("a/b", b"x")


async def test_a_client_has_so_many_requests_under_way_to_a_server() -> None:
    """Others wait for their turn; requests that the service lets wait take none."""
    at_once = most = polls = 0
    all_here, full = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once, most, polls
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            if head.startswith(b"GET"):
                polls += 1
                if polls == MAX_AT_ONCE + 1:
                    all_here.set()
                await all_here.wait()
                writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                continue
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
            at_once += 1
            most = max(most, at_once)
            if most == MAX_AT_ONCE:
                full.set()
            await full.wait()
            await asyncio.sleep(0.05)  # for one too many to arrive
            at_once -= 1
            text = json.dumps(APPENDED)
            head = f"HTTP/1.1 201 Created\r\ncontent-length: {len(text)}\r\n\r\n".encode()
            writer.write(head + text.encode())

    async with server(answer) as url, FencelogClient(url) as client:
        count = MAX_AT_ONCE + 1
        reads = [client.read("a/b", 0, 0, wait_s=1) for _ in range(count)]
        found = await asyncio.gather(*reads, return_exceptions=True)
        assert [isinstance(each, FencelogError) for each in found] == [True] * count
        await asyncio.gather(*(client.append("a/b", b"x") for _ in range(2 * count)))
    assert most == MAX_AT_ONCE


async def test_a_silent_server_holds_up_no_request_to_another_one() -> None:
    async def be_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    answering = server(replying("201 Created", APPENDED))
    async with server(be_silent) as silent, answering as url, FencelogClient(url) as client:
        for partition in range(MAX_AT_ONCE + 1):
            client._service._owners.note(partition_place("a/b", partition), silent)
        stuck = [
            asyncio.create_task(client.append("a/b", b"x", partition=partition))
            for partition in range(MAX_AT_ONCE + 1)
        ]
        await asyncio.sleep(0.05)
        assert (await client.append("a/b", b"x", partition=MAX_AT_ONCE + 2)).offset == 7
        for task in stuck:
            task.cancel()
        found = await asyncio.gather(*stuck, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in found)
