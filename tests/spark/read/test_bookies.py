"""The fixed table of bookies that an executor works with."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.bookie.engine.bookie import BookieConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.model import new_metadata
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.reader.reader import LedgerReader
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.spark_connector.read import bookies
from fencelog.spark_connector.read.bookies import BookieTable, MovedBookies
from tests.support.bookie_stage import Requests

HOST = SystemHost()


async def test_a_bookie_has_one_client() -> None:
    table = BookieTable({"b2": "127.0.0.1:1", "b1": "127.0.0.1:1"})
    assert table.available() == ["b1", "b2"]
    assert table.client("b1") is table.client("b1")
    assert table.client("b1").bookie_id == "b1"
    await table.close()


async def test_bookies_that_ask_for_a_secret_are_shown_it(tmp_path: Path) -> None:
    credentials = SharedSecret(b"correct horse battery staple", host=HOST)
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    await create_instance(store, HOST)
    config = BookieConfig(tmp_path / "data")
    async with serving_bookie(
        store, config, host=HOST, listen="127.0.0.1:0", secret=credentials
    ) as (bookie, address):
        codes = []
        for shown in (None, credentials):
            table = BookieTable({bookie.bookie_id: address}, credentials=shown)
            with pytest.raises(FencelogError) as raised:
                await table.client(bookie.bookie_id).read_lac(1)
            codes.append(raised.value.code)
            await table.close()
        assert codes == [ErrorCode.UNAUTHORIZED, ErrorCode.NO_SUCH_LEDGER]
    await store.close()


async def test_a_bookie_that_came_back_elsewhere_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks as long as reads succeed, and an error stays where nothing has moved."""
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    await create_instance(store, HOST)
    config = BookieConfig(tmp_path / "data", bookie_id="b1")
    looks = 0
    monkeypatch.setattr(bookies, "LOOK_AGAIN_S", 0.0)
    async with serving_bookie(store, config, host=HOST, listen="127.0.0.1:0") as (bookie, address):
        run = Requests.run(7, 0, 4)
        assert await Requests.add(bookie, run) is None
        metadata = new_metadata(
            7, ensemble=("b1",), write_quorum=1, ack_quorum=1, token="t"
        ).closed(last_entry_id=3, length=400)
        table = BookieTable({"b1": "127.0.0.1:1"})
        answers: list[dict[str, str] | FencelogError] = [
            FencelogError(ErrorCode.METADATA_UNAVAILABLE, "no broker"),
            {"b1": "127.0.0.1:1"},
            {"b1": address},
        ]

        async def look_up() -> dict[str, str]:
            nonlocal looks
            answer = answers[looks]
            looks += 1
            if isinstance(answer, FencelogError):
                raise answer
            return answer

        source = MovedBookies(LedgerReader(metadata, bookies=table), table, look_up)
        for _ in range(2):
            with pytest.raises(FencelogError) as raised:
                await source.read(0, 3)
            assert raised.value.code is ErrorCode.READ_UNKNOWN
        assert [entry.entry_id for entry in await source.read(0, 3)] == [0, 1, 2, 3]
        assert len(await source.read(0, 3)) == 4
        assert looks == 3
        await table.close()
    await store.close()


async def test_an_unregistered_bookie_makes_a_read_unknown_and_never_a_no() -> None:
    metadata = new_metadata(
        7, ensemble=("gone-1", "gone-2"), write_quorum=2, ack_quorum=2, token="t"
    ).closed(last_entry_id=3, length=10)
    table = BookieTable({})
    reader = LedgerReader(metadata, bookies=table)
    with pytest.raises(FencelogError, match="gone-1 was not registered") as raised:
        await reader.read(0, 3)
    assert raised.value.code is ErrorCode.READ_UNKNOWN
    with pytest.raises(FencelogError, match="bookie_unavailable"):
        await table.client("gone-1").read_lac(7)
    await table.close()
