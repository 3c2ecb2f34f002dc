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
from fencelog.spark_connector.read.bookies import BookieTable

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
