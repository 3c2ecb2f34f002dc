"""Two brokers over HTTP, their ledgers scripted: partitions move, requests find them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fencelog.api.routing.link import Links
from fencelog.api.routing.link_answer import LinkAnswer, Unanswered
from fencelog.api.routing.link_core import Outcome
from fencelog.api.routing.peers import LinkPeers
from fencelog.api.server.app import build_app
from fencelog.api.server.serve import HttpServer, bind, url_of
from fencelog.broker.broker import Broker
from fencelog.broker.commits.commits import Commits
from fencelog.broker.config import BrokerConfig
from fencelog.broker.names import TopicName
from fencelog.broker.partition.forwards import OwnerLost
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from tests.support.fake_broker import FakeBookies
from tests.support.scripted_ledgers import ScriptedLedgers
from tests.support.until import until

TOPIC = "/v1/topics/ns/t"
NAME = TopicName("ns", "t")
PARTITION = f"{TOPIC}/partitions/0"


class Machine:
    """A broker, its HTTP server and a client of it."""

    def __init__(self, broker: Broker, store: MemoryMetadataStore, http: httpx.AsyncClient) -> None:
        self.broker = broker
        self.store = store
        self.http = http


class Machines:
    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self._cluster = MemoryCluster()
        self.ledgers = ScriptedLedgers()

    async def start(self, name: str, bookies: Any) -> Machine:
        """A machine; the parts of it end in the order in which a broker's process ends them."""
        stack = self._stack
        store = MemoryMetadataStore(self._cluster)
        await store.start()
        stack.push_async_callback(store.close)
        sock = bind("127.0.0.1", 0)
        config = BrokerConfig(name, url_of(sock), close_timeout_s=1.0)
        links = Links()
        stack.push_async_callback(links.close)
        peers = LinkPeers(links)
        broker = Broker(store, self.ledgers, host=SystemHost(), config=config, peers=peers)
        await broker.start()
        stack.push_async_callback(broker.close)
        app = build_app(broker, store=store, bookies=bookies, links=links)
        server = await HttpServer.start(app, sock)
        stack.push_async_callback(server.close)
        stack.callback(app.drain)
        http = httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=10)
        await stack.enter_async_context(http)
        return Machine(broker, store, http)


@pytest.fixture
async def machines(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machines]:
    monkeypatch.setattr("fencelog.api.server.http_protocol.LAST_REQUEST_S", 0.02)
    async with contextlib.AsyncExitStack() as stack:
        yield Machines(stack)


@pytest.fixture
async def pair(machines: Machines, fake_bookies: FakeBookies) -> tuple[Machine, Machine]:
    """Brokers a and b; a owns the one partition of a topic with one message."""
    a, b = [await machines.start(name, fake_bookies) for name in "ab"]
    assert (await a.http.put(TOPIC)).status_code == 201
    assert (await a.http.post(f"{TOPIC}/messages", content=b"first")).status_code == 201
    return a, b


async def owner(machine: Machine) -> str:
    (found,) = (await machine.http.get(f"{TOPIC}/owners")).json()["owners"]
    return str(found["broker_id"])


async def test_any_broker_takes_the_request_to_move(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    moved = await b.http.post(f"{PARTITION}:unload")  # it is a's
    assert (moved.status_code, moved.json()) == (200, {"partition": 0, "broker_id": "b"})
    assert await owner(a) == "b"
    back = await a.http.post(f"{PARTITION}:unload", json={"to": "a"})
    assert back.json() == {"partition": 0, "broker_id": "a"}
    assert await owner(b) == "a"
    refused = await b.http.post(f"{PARTITION}:open")
    assert (refused.status_code, refused.json()["code"]) == (421, "not_owner")
    for body in ({"to": "z"}, {"too": "a"}):
        assert (await a.http.post(f"{PARTITION}:unload", json=body)).status_code in (400, 404)


async def test_brokers_show_each_other(pair: tuple[Machine, Machine]) -> None:
    a, b = pair
    for machine in pair:
        shown = (await machine.http.get("/v1/brokers/a")).json()
        assert (shown["broker_id"], shown["draining"], shown["partitions"]) == ("a", False, 1)
        (owned,) = shown["owned"]
        assert (owned["topic"], owned["tail_offset"], owned["epoch"]) == ("ns/t", 1, 1)
    assert (await b.http.get("/v1/brokers/a?limit=0")).json()["owned"] == []
    gone = await a.http.get("/v1/brokers/z")
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")


async def test_appends_and_reads_go_on_while_a_broker_drains(
    pair: tuple[Machine, Machine],
) -> None:
    a, b = pair
    stop = asyncio.Event()
    statuses: list[int] = []

    async def append(machine: Machine) -> None:
        while not stop.is_set():
            answer = await machine.http.post(f"{TOPIC}/messages", content=b"x")
            statuses.append(answer.status_code)

    poll = asyncio.create_task(a.http.get(f"{PARTITION}/messages?from=latest&wait=5"))
    async with asyncio.TaskGroup() as group:
        for machine in pair * 2:
            group.create_task(append(machine))
        await asyncio.sleep(0.05)
        drained = await b.http.post("/v1/brokers/a:drain")
        assert drained.json() == {"broker_id": "a", "not_taken": 0, "still_open": 0}
        await asyncio.sleep(0.05)
        stop.set()
    assert set(statuses) == {201}
    assert (await poll).status_code == 200
    assert await owner(a) == "b"
    assert (await a.http.head(f"{PARTITION}/messages")).headers["tail-offset"] == str(
        len(statuses) + 1
    )
    ready = await a.http.get("/readyz")
    assert (ready.status_code, ready.json()["code"]) == (503, "draining")
    entries = (await b.http.get("/v1/brokers")).json()["brokers"]
    assert [(entry["broker_id"], entry["draining"]) for entry in entries] == [
        ("a", True),
        ("b", False),
    ]


async def test_a_reader_that_waits_goes_on_at_the_next_owner(pair: tuple[Machine, Machine]) -> None:
    a, _ = pair
    polls = [
        asyncio.create_task(machine.http.get(f"{PARTITION}/messages?from=latest&wait=5"))
        for machine in pair
    ]
    await asyncio.sleep(0.05)
    assert (await a.http.post(f"{PARTITION}:unload")).json()["broker_id"] == "b"
    await asyncio.sleep(0.05)
    await a.http.post(f"{TOPIC}/messages", content=b"second")
    for poll in polls:
        answer = await poll
        assert answer.status_code == 200
        assert [message["text"] for message in answer.json()["messages"]] == ["second"]


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelog.broker.partition.forwards.OWNER_LOST_MS", 50)


@pytest.mark.usefixtures("short_timeout")
async def test_an_owner_that_went_silent_is_not_waited_for(
    pair: tuple[Machine, Machine], machines: Machines
) -> None:
    """Its append is of unknown outcome; a read is answered by who takes over."""
    a, b = pair
    writer = machines.ledgers.newest
    writer.auto_ack = False  # it takes requests, and answers none
    taken = len(writer.payloads)
    poll = asyncio.create_task(b.http.get(f"{PARTITION}/messages?from=1&wait=5"))
    append = asyncio.create_task(b.http.post(f"{TOPIC}/messages", content=b"x"))
    await until(lambda: len(writer.payloads) > taken)
    assert not append.done()
    a.store.disconnect()
    a.store.expire()
    answer = await append
    assert (answer.status_code, answer.json()["code"]) == (504, "append_unknown")
    assert answer.json()["side_effects"] == "maybe"
    await asyncio.sleep(0.1)
    assert (await b.http.post(f"{TOPIC}/messages", content=b"y")).status_code == 201
    assert (await poll).status_code == 200
    a.store.reconnect()


@pytest.mark.usefixtures("short_timeout")
async def test_a_release_that_a_silent_owner_got_is_not_asked_again(
    pair: tuple[Machine, Machine], machines: Machines
) -> None:
    """The next owner would refuse it, as somebody else may have claimed since: "no effect", of a
    release that took effect."""
    a, b = pair
    claimed = await a.http.post(f"{PARTITION}/producers/p:claim")
    assert claimed.json() == {"epoch": 1}
    for writer in machines.ledgers.writers.values():
        writer.auto_ack = False
    release = asyncio.create_task(b.http.delete(f"{PARTITION}/producers/p?epoch=1"))
    await asyncio.sleep(0.1)
    assert not release.done()
    a.store.disconnect()
    a.store.expire()
    answer = await release
    assert (answer.status_code, answer.json()["code"]) == (504, "state_unknown")
    a.store.reconnect()


CHANGES = {
    "claim": ("POST", "/producers/p:claim", {}, "state_unknown"),
    "release": ("DELETE", "/producers/p?epoch=1", None, "state_unknown"),
    "fence": ("POST", ":fence", {"token": "t"}, "state_unknown"),
    "commit": ("POST", "/committers/c:commit", {"batch": 1, "ledgers": []}, "metadata_unknown"),
    "abort": ("POST", "/committers/c:abort", {"batch": 1, "ledgers": []}, "metadata_unknown"),
    "trim": ("POST", ":trim", {"before": 1}, "metadata_unknown"),
    "terminate": ("POST", ":terminate", None, "metadata_unknown"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_whose_answer_is_lost_may_have_been_made(
    pair: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    a, b = pair
    await a.http.post(f"{PARTITION}/producers/p:claim")
    request = Links.request
    asked = []

    async def lost(*arguments: Any) -> LinkAnswer:
        asked.append(arguments)
        (await request(*arguments)).close()
        raise Unanswered(Outcome.LOST, "the connection broke")

    monkeypatch.setattr(Links, "request", lost)
    method, path, body, code = CHANGES[change]
    answer = await b.http.request(method, f"{PARTITION}{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (answer.json()["status"], code)
    assert answer.json()["side_effects"] == "maybe"
    assert len(asked) == 1


@pytest.mark.parametrize("code", [ErrorCode.APPEND_UNKNOWN, ErrorCode.REQUEST_TIMEOUT])
async def test_a_commit_of_unknown_outcome_is_no_append(
    pair: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    async def lost(*arguments: Any, **options: Any) -> Any:
        raise FencelogError(code, "no answer")

    for kind in ("commit", "abort"):
        monkeypatch.setattr(Commits, kind, lost)
        for machine in pair:
            body = {"batch": 1, "ledgers": []}
            answer = await machine.http.post(f"{PARTITION}/committers/c:{kind}", json=body)
            assert answer.json()["code"] == "metadata_unknown"
            assert answer.json()["side_effects"] == "maybe"


async def test_the_end_of_a_partition_is_behind_what_was_in_flight(
    pair: tuple[Machine, Machine], machines: Machines
) -> None:
    _, b = pair
    writer = machines.ledgers.newest
    writer.auto_ack = False
    taken = len(writer.payloads)
    append = asyncio.create_task(b.http.post(f"{TOPIC}/messages", content=b"second"))
    await until(lambda: len(writer.payloads) > taken)
    ended = asyncio.create_task(b.http.post(f"{PARTITION}:terminate"))
    await asyncio.sleep(0.1)
    writer.ack(len(writer.payloads) - 1)
    assert (await append).status_code == 201
    assert (await ended).json() == {"partition": 0, "end_offset": 2}


async def test_a_log_that_was_let_go_under_a_request_is_no_error_of_the_requests(
    pair: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = pair
    log = await a.broker.partition(NAME, 0)
    stale = [log, log]
    partition = a.broker.partition

    async def late(topic: TopicName, number: int) -> Any:
        return stale.pop() if stale else await partition(topic, number)

    await log.abandon(FencelogError(ErrorCode.NO_OWNER, "the log was lost"))
    monkeypatch.setattr(a.broker, "partition", late)
    answer = await a.http.post(f"{TOPIC}/messages", content=b"second")
    assert (answer.status_code, answer.json()["offset"]) == (201, 1)
    assert not stale


async def test_a_broker_is_drained_if_another_takes_its_partitions(
    machines: Machines, fake_bookies: FakeBookies
) -> None:
    a = await machines.start("a", fake_bookies)
    await a.http.put(TOPIC)
    await a.http.post(f"{TOPIC}/messages", content=b"first")
    refused = await a.http.post("/v1/brokers/a:drain")
    assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed")
    assert "force=true" in refused.json()["detail"]
    forced = await a.http.post("/v1/brokers/a:drain?force=true")
    assert forced.json() == {"broker_id": "a", "not_taken": 1, "still_open": 0}
    assert (await a.http.get(f"{PARTITION}/messages")).json()["code"] == "draining"
    b = await machines.start("b", fake_bookies)
    for machine in (a, b):  # in person, and by way of another broker
        assert (await machine.http.post("/v1/brokers/a:undrain")).json() == {"broker_id": "a"}
    assert (await a.http.get(f"{PARTITION}/messages")).status_code == 200
    drained = await b.http.post("/v1/brokers/a:drain?force=false")
    assert drained.json() == {"broker_id": "a", "not_taken": 0, "still_open": 0}
    assert (await b.http.post("/v1/brokers/b:drain")).status_code == 412
    assert (await b.http.post("/v1/brokers/z:undrain")).status_code == 404


@pytest.mark.parametrize("through", ["a", "b"])
async def test_a_read_that_waits_at_the_tail_misses_nothing_when_its_partition_moves(
    pair: tuple[Machine, Machine], through: str
) -> None:
    """At the next owner the latest offset is another one."""
    a, b = pair
    asked = a if through == "a" else b
    reading = asyncio.create_task(
        asked.http.get(f"{PARTITION}/messages", params={"from": "latest", "wait": 8})
    )
    log = await a.broker.partition(NAME, 0)
    await until(lambda: bool(log._reader._notifier._waiting))
    assert (await a.http.post(f"{PARTITION}:unload")).json()["broker_id"] == "b"
    for content in (b"second", b"third"):
        assert (await b.http.post(f"{TOPIC}/messages", content=content)).status_code == 201
    answer = await reading
    assert (answer.status_code, answer.headers["start-offset"]) == (200, "1")
    rest = await b.http.get(f"{PARTITION}/messages", params={"from": answer.headers["next-offset"]})
    found = [*answer.json()["messages"], *rest.json()["messages"]]
    assert [each["text"] for each in found] == ["second", "third"]


async def test_a_read_at_the_tail_of_an_owner_that_is_lost_is_not_asked_of_the_next_one(
    pair: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = pair

    async def lost(*_: object) -> None:
        raise OwnerLost("http://a")

    monkeypatch.setattr(b.broker, "while_owner", lost)
    path, tail = f"{PARTITION}/messages", {"from": "latest"}
    answer = await b.http.get(path, params={**tail, "wait": 8})
    assert (answer.status_code, answer.json()["code"]) == (503, "read_unknown")
