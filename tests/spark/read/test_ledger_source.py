"""Ranges whose bookies have moved, lost their ledger or trimmed it since the query was planned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.bookie.engine.bookie import BookieConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import Fragment, LedgerMetadata, new_metadata
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.spark_connector.planning.planner import EntryRange
from fencelog.spark_connector.planning.segments import LedgerSegment, PartitionSegments
from fencelog.spark_connector.read import ledger_source
from fencelog.spark_connector.read.bookies import BookieTable
from fencelog.spark_connector.read.ledger_source import LedgerSource
from tests.support.bookie_stage import Requests

HOST = SystemHost()
NOWHERE = "127.0.0.1:1"
FULL, EMPTY = "full", "empty"
TOPIC = "default/t"

ON_FULL = new_metadata(7, ensemble=(FULL,), write_quorum=1, ack_quorum=1, token="t").closed(
    last_entry_id=3, length=400
)
ON_EMPTY = replace(ON_FULL, fragments=(Fragment(0, (EMPTY,)),))
UNAVAILABLE = FencelogError(ErrorCode.NO_OWNER, "no broker")
DELETED = FencelogError(ErrorCode.TOPIC_NOT_FOUND, "no such topic")


@dataclass
class Owner:
    """The owner of the log, whose ledger of four messages begins at offset 100: its answers in
    turn, the last one for good. ``addresses`` are those of the bookies."""

    addresses: dict[str, str]
    answers: list[PartitionSegments | FencelogError] = field(default_factory=list)
    asked: int = 0

    async def ask(self, wanted: EntryRange) -> PartitionSegments:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, FencelogError):
            raise answer
        return answer

    def says(
        self,
        ledger: LedgerMetadata = ON_FULL,
        *,
        earliest: int = 100,
        topic_id: str = "id",
        addresses: dict[str, str] | None = None,
    ) -> PartitionSegments:
        bookies = self.addresses if addresses is None else addresses
        segment = LedgerSegment(ledger, 100, 4, 0, 3, 400)
        return PartitionSegments(TOPIC, 0, earliest, 104, (segment,), bookies, topic_id)

    def source(self, planned: LedgerMetadata, table: BookieTable) -> LedgerSource:
        wanted = EntryRange(TOPIC, "id", 0, planned, 100, 0, 3, 101, 104, 400)
        return LedgerSource(LedgerReader(planned, bookies=table), wanted, table, self.ask)


@pytest.fixture(autouse=True)
def _ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_source, "LOOK_AGAIN_S", 0.0)


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Owner]:
    """Two bookies, of which one has the ledger."""
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    await create_instance(store, HOST)
    addresses = {}
    async with AsyncExitStack() as stack:
        for name in (FULL, EMPTY):
            config = BookieConfig(tmp_path / name, bookie_id=name)
            serving = serving_bookie(store, config, host=HOST, listen="127.0.0.1:0")
            bookie, addresses[name] = await stack.enter_async_context(serving)
            if name == FULL:
                assert await Requests.add(bookie, Requests.run(7, 0, 4)) is None
        yield Owner(addresses)
    await store.close()


@pytest.fixture
async def table(owner: Owner) -> AsyncIterator[BookieTable]:
    table = BookieTable(owner.addresses)
    yield table
    await table.close()


async def refused(source: LedgerSource) -> FencelogError:
    with pytest.raises(FencelogError) as raised:
        await source.read(0, 3)
    return raised.value


async def test_a_bookie_that_came_back_elsewhere_is_found(owner: Owner) -> None:
    """Nobody looks as long as reads succeed, and an error stays where nothing has moved."""
    table = BookieTable({FULL: NOWHERE})
    owner.answers = [UNAVAILABLE, owner.says(addresses={FULL: NOWHERE}), owner.says()]
    source = owner.source(ON_FULL, table)
    for _ in range(2):
        assert (await refused(source)).code is ErrorCode.READ_UNKNOWN
    assert [entry.entry_id for entry in await source.read(0, 3)] == [0, 1, 2, 3]
    assert len(await source.read(0, 3)) == 4
    assert owner.asked == 3
    await table.close()


@pytest.mark.parametrize("lost", [EMPTY, "gone"])
async def test_a_ledger_whose_bookies_were_replaced_is_read_from_the_new_ones(
    owner: Owner, table: BookieTable, lost: str
) -> None:
    """Those of the plan have lost it, and say so, or are not there any more."""
    owner.answers = [owner.says()]
    planned = replace(ON_FULL, fragments=(Fragment(0, (lost,)),))
    source = owner.source(planned, table)
    assert [entry.entry_id for entry in await source.read(0, 3)] == [0, 1, 2, 3]
    assert owner.asked == 1


@pytest.mark.parametrize("planned", [ON_EMPTY, replace(ON_FULL, fragments=(Fragment(0, ("x",)),))])
async def test_what_the_log_begins_behind_was_trimmed(
    owner: Owner, table: BookieTable, planned: LedgerMetadata
) -> None:
    owner.answers = [owner.says(ON_EMPTY, earliest=104)]
    error = await refused(owner.source(planned, table))
    assert error.code is ErrorCode.OFFSET_TRIMMED
    assert error.detail == (
        "ledger 7 (partition 0 of default/t, offsets 101 to 103) was trimmed or deleted after the "
        "query was planned: the log begins at 104 now"
    )


async def test_a_topic_that_was_deleted_took_its_ledgers_along(
    owner: Owner, table: BookieTable
) -> None:
    owner.answers = [owner.says(topic_id="new"), DELETED]
    source = owner.source(ON_EMPTY, table)
    for why in ("its topic was deleted and created again", "its topic was deleted"):
        error = await refused(source)
        assert (error.code, error.detail.endswith(f": {why}")) == (ErrorCode.OFFSET_TRIMMED, True)


@dataclass
class LaggingBroker:
    """The client of a broker that does not know the partition, and answers in turn with the ids of
    its topic; with the partition once there is none left."""

    topic_ids: list[str]

    async def segments(self, topic: str, partition: int, **_: object) -> dict[str, object]:
        if self.topic_ids:
            raise FencelogError(ErrorCode.NOT_FOUND, f"{topic} has not {partition}")
        ends = {"earliest_offset": 104, "end_offset": 104}
        return {"topic_id": "id", "partition": partition, "segments": [], "bookies": {}, **ends}

    async def topic(self, topic: str, *, confirmed: bool) -> dict[str, str]:
        assert (topic, confirmed) == (TOPIC, True)
        return {"topic_id": self.topic_ids.pop(0)}

    async def __aenter__(self) -> LaggingBroker:
        return self

    async def __aexit__(self, *_: object) -> None: ...


async def test_a_partition_that_a_broker_does_not_know_yet_is_no_deleted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its topic is there, and never gets fewer partitions."""
    wanted = EntryRange(TOPIC, "id", 0, ON_FULL, 100, 0, 3, 101, 104, 400)
    for topic_ids in (["id", "id"], ["id", "another"]):
        broker = LaggingBroker([*topic_ids])
        monkeypatch.setattr(ledger_source, "FencelogClient", lambda _, broker=broker: broker)
        if topic_ids[-1] == "id":
            assert (await ledger_source.ask_owner((), wanted)).earliest_offset == 104
        else:
            with pytest.raises(FencelogError, match=f"{TOPIC} has not 0") as raised:
                await ledger_source.ask_owner((), wanted)
            assert raised.value.code is ErrorCode.NOT_FOUND
        assert broker.topic_ids == []


async def test_a_no_of_every_bookie_is_no_trim(owner: Owner, table: BookieTable) -> None:
    """The rows are in the log, as far as anybody knows: a query that accepts the loss of trimmed
    ones may not go on without them."""
    owner.answers = [owner.says(ON_EMPTY), owner.says(ON_EMPTY, earliest=103), UNAVAILABLE]
    source = owner.source(ON_EMPTY, table)
    for _ in owner.answers:
        error = await refused(source)
        assert error.code is ErrorCode.READ_UNKNOWN
        assert "ledger 7 (partition 0 of default/t" in error.detail
        assert error.detail.endswith("and nothing says that it was trimmed")
    assert owner.asked == 3


async def test_the_owner_is_not_asked_by_every_part_of_a_range(
    owner: Owner, table: BookieTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_source, "LOOK_AGAIN_S", 60.0)
    owner.answers = [owner.says(ON_EMPTY), owner.says(ON_EMPTY, earliest=104)]
    source = owner.source(ON_EMPTY, table)
    assert [(await refused(source)).code for _ in range(3)] == [ErrorCode.READ_UNKNOWN] * 3
    assert owner.asked == 1
