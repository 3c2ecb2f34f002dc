"""The list of bookies with what each says of itself, in a whole cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from fencelog.ledgers.rpc.bookie_port import BookieInfo
from tests.api.admin.doctor.sick_cluster import BOOKIES, SickCluster, sick_cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOWHERE = "127.0.0.1:1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SickCluster]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fencelog.broker.partition.topic_totals.TOPIC_TOTALS_MS", -1)
        async with sick_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
            yield cluster


async def table(cluster: SickCluster) -> dict[str, Any]:
    """Return the bookies, by id."""
    async with httpx.AsyncClient(base_url=cluster.urls["r1"], trust_env=False) as http:
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
    cluster.bookies["b2"].set_read_only("disk", True)
    b2 = (await table(cluster))["b2"]
    assert b2["read_only_for"] == ["disk"]
    cluster.bookies["b2"].set_read_only("disk", False)


async def test_a_bookie_that_does_not_answer_is_listed_as_it_registered(
    cluster: SickCluster,
) -> None:
    value = bookie_registration(NOWHERE, BookieInfo("b9", "1", "r7"), started_us=0)
    await cluster.store.create(f"{BOOKIES_PATH}/b9", value)
    found = await table(cluster)
    b9 = found["b9"]
    assert (b9["rack"], b9["address"], b9["directories"], b9["ledgers"]) == (
        *("r7", NOWHERE),
        *(None, None),
    )
    assert b9["problem"]
    assert found["b1"]["problem"] is None
