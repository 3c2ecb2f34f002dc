"""The list of bookies with what each says of itself, in a whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fencelog.api.admin import bookie_table
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from fencelog.ledgers.rpc.bookie_port import BookieInfo
from tests.api.admin.doctor.sick_cluster import BOOKIES, SickCluster, put_topic, sick_cluster
from tests.support.network.http_client import http_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOWHERE = "127.0.0.1:1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SickCluster]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fencelog.broker.partition.stats.topic_totals.TOPIC_TOTALS_MS", -1)
        async with sick_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
            yield cluster


async def table(cluster: SickCluster) -> dict[str, Any]:
    """Return the bookies, by id."""
    async with http_client(cluster.urls["r1"]) as http:
        answer = (await http.get("/v1/admin/bookies")).raise_for_status().json()
    return {each["bookie_id"]: each for each in answer["bookies"]}


async def test_each_bookie_tells_its_directories_and_disks(cluster: SickCluster) -> None:
    found = await table(cluster)
    assert list(found) == sorted(BOOKIES)
    b1 = found["b1"]
    assert (b1["rack"], b1["problem"], b1["ledgers"], b1["in_limbo"]) == ("default", None, 0, 0)
    assert b1["full_in_s"] is None
    assert b1["left_bytes"] > 0
    data, journal = b1["directories"]
    assert data["path"] == str(cluster.path / "b1")
    assert (data["holds"], journal["holds"]) == (["identity", "ledgers"], ["journal"])
    assert 0 < journal["free_bytes"] < journal["total_bytes"]


async def test_a_bookie_that_takes_no_entries_says_why(cluster: SickCluster) -> None:
    cluster.bookies["b2"].set_read_only("operator", True)
    b2 = (await table(cluster))["b2"]
    assert b2["read_only_for"] == ["operator"]
    cluster.bookies["b2"].set_read_only("operator", False)


async def test_a_bookie_that_does_not_answer_is_listed_as_it_registered(
    cluster: SickCluster,
) -> None:
    value = bookie_registration(NOWHERE, BookieInfo("b9", "1", "r7"))
    await cluster.store.create(f"{BOOKIES_PATH}/b9", value)
    found = await table(cluster)
    b9 = found["b9"]
    assert (b9["rack"], b9["address"], b9["directories"], b9["ledgers"]) == (
        *("r7", NOWHERE),
        *(None, None),
    )
    assert b9["problem"]
    assert found["b1"]["problem"] is None


async def test_the_copies_of_a_ledger_are_those_that_its_bookies_list(
    cluster: SickCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with http_client(cluster.urls["r1"]) as http:
        await put_topic(http, "ns/copies")
        for _ in range(3):
            (await http.post("/v1/topics/ns/copies/messages", content=b"x")).raise_for_status()
        shown = (await http.get("/v1/topics/ns/copies/partitions/0/chain")).json()
        segment = shown["segments"][-1]
        ledger_id, members = segment["ledger_id"], segment["ledger"]["fragments"][-1]["bookies"]
        path = f"/v1/admin/ledgers/{ledger_id}/copies"

        async def copies() -> dict[str, Any]:
            answer = (await http.get(path)).raise_for_status().json()
            assert answer["ledger_id"] == ledger_id
            assert [each["bookie_id"] for each in answer["bookies"]] == sorted(members)
            return {each["bookie_id"]: each for each in answer["bookies"]}

        async with asyncio.timeout(20):  # The last copy of an entry may come after its answer.
            while True:
                found = await copies()
                if not any(each["missing"] for each in found.values()):
                    break
                await asyncio.sleep(0.05)
        assert all(each["held"] == each["expected"] >= 1 for each in found.values())
        lacking, silent, _ = sorted(members)
        list_entries = TcpBookieClient.list_entries

        async def listed(client: Any, *asked: Any, **named: Any) -> EntryList:
            if client.bookie_id == silent:
                await asyncio.Event().wait()
            if client.bookie_id == lacking:
                return EntryList(Availability.of([(1, 1)]), in_limbo=True)
            return await list_entries(client, *asked, **named)

        monkeypatch.setattr(TcpBookieClient, "list_entries", listed)
        monkeypatch.setattr(bookie_table, "ADMIN_ANSWER_S", 1)
        found = await copies()
        assert (found[lacking]["missing"][0], found[lacking]["in_limbo"]) == ([0, 0], True)
        assert found[lacking]["held"] < found[lacking]["expected"]
        assert found[silent]["problem"] == "no answer within 1 s"
        assert sum(each["problem"] is None for each in found.values()) == 2
        assert (await http.get("/v1/admin/ledgers/999999/copies")).status_code == 404
