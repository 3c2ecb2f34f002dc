"""Ledgers that a client writes straight to bookies, and their commits, at the owner and
elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fencelog.api.client import FencelogClient
from fencelog.api.client.commits import PartitionCommits
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import pack_entry
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import from_json
from fencelog.ledgers.record_batch import decode_batch, encode_values
from fencelog.ledgers.writer.lent import lent_writer
from fencelog.spark_connector.read.bookies import BookieTable
from tests.support.fake_broker import FakeBookies, FakeBroker, Serve, app_over
from tests.support.subscription_service import running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def topic(real: str, request: pytest.FixtureRequest) -> str:
    """A new topic of one partition."""
    name = f"ns/{request.node.name.replace('[', '-').rstrip(']')}"[:100]
    async with FencelogClient(real) as client:
        await client.create_topic(name)
    return name


@pytest_asyncio.fixture(loop_scope="module", params=["owner", "other"])
async def client(
    real: str,
    topic: str,
    request: pytest.FixtureRequest,
    fake_broker: FakeBroker,
    fake_bookies: FakeBookies,
    serve: Serve,
) -> AsyncIterator[FencelogClient]:
    """A client of the topic's owner, or of a broker that passes its requests on."""
    if request.param == "owner":
        async with FencelogClient(real) as direct:
            yield direct
        return
    name = TopicName.parse(topic)
    await fake_broker.topics.create(name, TopicConfig())
    fake_broker.elsewhere[name, 0] = real
    async with (
        serve(app_over(fake_broker, fake_bookies)) as url,
        FencelogClient(url) as indirect,
    ):
        yield indirect


async def written(commits: PartitionCommits, *values: bytes) -> tuple[int, int]:
    """Have a ledger made, write an entry for each value, and wait until all are durable."""
    made = await commits.create_ledger()
    metadata = from_json(made["ledger"])
    bookies = BookieTable(made["bookies"])
    done = asyncio.Event()
    writer = lent_writer(
        metadata,
        made["incarnations"],
        bookies=bookies,
        host=SystemHost(),
        key=b"",
        on_ack=lambda lac: done.set() if lac == len(values) - 1 else None,
        on_failure=lambda error: None,
    )
    for number, value in enumerate(values):
        batch = encode_values([value])
        writer.append(pack_entry(batch, count=1, first_number=number, publish_time_us=1))
    async with asyncio.timeout(10):
        await done.wait()
    await writer.abandon()
    await bookies.close()
    return metadata.ledger_id, len(values)


async def values_of(real: str, topic: str) -> list[bytes]:
    async with FencelogClient(real) as client:
        values: list[bytes] = []
        while not (page := await client.read(topic, 0, len(values))).at_tail or page.batches:
            values += [m.value for batch in page.batches for m in decode_batch(batch.batch)]
        return values


async def code_of(commits: PartitionCommits, batch: int, *ledgers: tuple[int, int]) -> ErrorCode:
    with pytest.raises(FencelogError) as raised:
        await commits.commit(batch, ledgers)
    return raised.value.code


async def test_a_batch_is_committed_once(client: FencelogClient, real: str, topic: str) -> None:
    commits = PartitionCommits(client, topic, 0, "query-1")
    assert await commits.last() is None
    async with FencelogClient(real) as producer:
        await producer.append(topic, b"first")
    ledgers = [await written(commits, b"a", b"b"), await written(commits, b"c")]
    done = await commits.commit(7, ledgers, partitions=3)
    assert (done["offset"], done["messages"], done["duplicate"]) == (1, 3, False)
    again = await commits.commit(7, [await written(commits, b"a")])
    assert again == done | {"duplicate": True}
    assert await commits.last() == again
    assert await values_of(real, topic) == [b"first", b"a", b"b", b"c"]
    assert await commits.abort(7, [ledgers[0][0]]) == again


async def test_a_batch_may_be_appended_instead(
    client: FencelogClient, real: str, topic: str
) -> None:
    commits = PartitionCommits(client, topic, 0, "query-1")
    ledger = await written(commits, b"a")
    with pytest.raises(FencelogError, match="1 ledgers were to be committed") as raised:
        await commits.commit(1, [ledger], by_appends=True)
    assert raised.value.code is ErrorCode.BAD_REQUEST
    noted = await commits.commit(1, [], partitions=3, by_appends=True)
    assert (noted["by_appends"], noted["ends"], noted["partitions"]) == (True, False, 3)
    assert await commits.commit(1, [ledger]) == noted | {"duplicate": True}
    assert await values_of(real, topic) == []


async def test_an_aborted_batch_is_refused(client: FencelogClient, real: str, topic: str) -> None:
    commits = PartitionCommits(client, topic, 0, "query-1")
    gone, kept = await written(commits, b"a"), await written(commits, b"b")
    assert await commits.abort(1, [gone[0]]) is None
    assert await code_of(commits, 1, kept, gone) is ErrorCode.LEDGER_NOT_FOUND
    assert not (await commits.commit(1, [kept]))["duplicate"]
    assert await values_of(real, topic) == [b"b"]


async def test_what_is_not_the_committers_is_refused(
    client: FencelogClient, real: str, topic: str
) -> None:
    commits = PartitionCommits(client, topic, 0, "query-1")
    ledger = await written(PartitionCommits(client, topic, 0, "another"), b"a")
    assert await code_of(commits, 1, ledger) is ErrorCode.BAD_REQUEST
    own = await written(commits, b"a")
    assert await code_of(commits, 1, (own[0], 2)) is ErrorCode.BAD_REQUEST
    assert await code_of(commits, 1, (own[0], 0)) is ErrorCode.BAD_REQUEST
    assert await code_of(commits, 1, (10**9, 1)) is ErrorCode.LEDGER_NOT_FOUND
    assert await code_of(commits, -1) is ErrorCode.BAD_REQUEST
    assert await values_of(real, topic) == []


async def test_who_was_replaced_does_not_say_which_batch_was_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its successor may have a later one."""

    async def replaced() -> None:
        raise FencelogError(ErrorCode.NO_OWNER, "another one has the log")

    async with running() as service:
        site = await service.site("a")
        one, _ = await service.topic([site, site])
        path = f"/v1/topics/{one.name}/partitions/0/committers/q"
        assert (await one.http.get(path)).is_success
        log = await one.broker.partition(one.name, 0)
        monkeypatch.setattr(log, "check_owner", replaced)
        assert (await one.http.get(path)).json()["code"] == "no_owner"
