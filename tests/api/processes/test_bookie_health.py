"""The health of a bookie over HTTP: what is restarted, what is waited for, and what is neither."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from fencelog.api.processes import bookie_health
from fencelog.api.processes.bookie_health import BookieHealth
from fencelog.api.processes.bookie_main import BookieProcessConfig, bookie_process, serving_bookie
from fencelog.api.processes.health_listener import listening_for_health
from fencelog.api.server.health import Health
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.metastore.registration import Registration
from tests.support.bookie_stage import Requests
from tests.support.faulty_disk import FaultyDisk
from tests.support.network.http_client import http_client
from tests.support.until import until, until_found

HOST = SystemHost()
STUCK_MS = 100


class Served:
    """A bookie with a disk that can be stopped, its store, and its health over HTTP."""

    def __init__(
        self,
        bookie: Bookie,
        cluster: MemoryCluster,
        store: MemoryMetadataStore,
        disk: FaultyDisk,
    ) -> None:
        self.bookie, self.cluster, self.store, self.disk = bookie, cluster, store, disk
        self.url = ""
        self._http = httpx.AsyncClient(trust_env=False, timeout=10)

    async def codes(self) -> tuple[str, str]:
        """Return what /healthz and /readyz say: ``ok``, or the code of a problem."""
        answers = [await self._http.get(f"{self.url}{path}") for path in ("/healthz", "/readyz")]
        for answer in answers:
            assert answer.is_success == ("code" not in answer.json()), answer.text
        bodies = [answer.json() for answer in answers]
        live, ready = (str(body.get("code", body["status"])) for body in bodies)
        return live, ready

    async def close(self) -> None:
        await self._http.aclose()


@pytest_asyncio.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(bookie_health, "JOURNAL_STUCK_MS", STUCK_MS)
    cluster, faulty_disk = MemoryCluster(), FaultyDisk()
    store = MemoryMetadataStore(cluster)
    await store.start()
    await create_instance(store, HOST)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        bookie, _ = await stack.enter_async_context(
            serving_bookie(
                store,
                BookieConfig(tmp_path / "data", bookie_id="b1"),
                host=HOST,
                listen="127.0.0.1:0",
                disk=faulty_disk,
            )
        )
        served = Served(bookie, cluster, store, faulty_disk)
        stack.push_async_callback(served.close)
        checks = BookieHealth(bookie)
        health = Health(checks.check_ready, checks.check_live)
        served.url = await stack.enter_async_context(listening_for_health(health, "127.0.0.1:0"))
        yield served
        faulty_disk.waits.clear()


async def test_a_bookie_that_works_is_well_also_while_it_is_read_only(served: Served) -> None:
    assert await served.codes() == ("ok", "ok")
    served.bookie.is_read_only = True
    assert await served.codes() == ("ok", "ok")


async def test_a_disk_that_does_not_answer_calls_for_a_restart(
    served: Served,
) -> None:
    requests = Requests()
    served.disk.waits.add("sync .journal")
    adding = asyncio.create_task(requests.add(served.bookie, requests.run(1, 0)))
    await until(lambda: served.bookie.shards[0].journal.stalled_s * 1000 > STUCK_MS)
    assert await served.codes() == ("storage_failed", "storage_failed")
    served.disk.waits.clear()
    assert await adding is None
    assert await served.codes() == ("ok", "ok")


async def test_a_bookie_in_limbo_works_but_is_waited_for(served: Served) -> None:
    served.bookie.fence_forgotten(7)
    assert await served.codes() == ("ok", "ledger_in_limbo")
    await served.bookie.clear_limbo(7)
    assert await served.codes() == ("ok", "ok")


async def test_a_bookie_lacks_nothing_of_a_ledger_that_only_others_are_to_have(
    served: Served,
) -> None:
    """It would be waited for as long as the ledger is there."""
    served.bookie.fence_forgotten(7)
    states = served.bookie.shard(7).states
    states.set_stranger(7, True)
    assert await served.codes() == ("ok", "ok")
    served.bookie.fence_forgotten(8)
    assert await served.codes() == ("ok", "ledger_in_limbo")
    states.set_limbo(7, True)  # as after a lost disk
    await served.bookie.clear_limbo(8)
    assert await served.codes() == ("ok", "ledger_in_limbo")


async def test_an_outage_of_metadata_is_not_its_fault_but_a_lost_registration_is(
    served: Served,
) -> None:
    served.store.disconnect()
    assert await served.codes() == ("ok", "ok")
    served.store.reconnect()
    other = MemoryMetadataStore(served.cluster)
    await other.start()
    registration = await Registration.start(other, "/bookies/b1", b"of another process")
    assert await served.codes() == ("ok", "bookie_unavailable")
    await registration.close()
    await other.close()

    async def are_ok() -> bool:
        return await served.codes() == ("ok", "ok")

    await until_found(are_ok)


async def test_nothing_else_is_answered(served: Served) -> None:
    async with http_client() as http:
        assert (await http.get(f"{served.url}/metrics")).status_code == 404
        assert (await http.post(f"{served.url}/healthz")).status_code == 404
        assert (await http.head(f"{served.url}/healthz")).status_code == 200


async def test_a_bookie_process_announces_where_its_health_is_told(tmp_path: Path) -> None:
    storage = BookieConfig(tmp_path / "data", bookie_id="b1")
    config = BookieProcessConfig(
        "memory:", storage, listen="127.0.0.1:0", health="127.0.0.1:0", rack="a"
    )
    async with bookie_process(config) as running, http_client() as http:
        answer = await http.get(f"{running.announcement['health']}/readyz")
        assert answer.json() == {"status": "ok"}
    async with http_client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"{running.announcement['health']}/readyz")


async def test_an_address_that_is_taken_is_refused(served: Served) -> None:
    address = served.url.removeprefix("http://")
    health = BookieHealth(served.bookie)
    with pytest.raises(FencelogError, match="cannot listen") as caught:
        async with listening_for_health(Health(health.check_ready), address):
            pass
    assert caught.value.code is ErrorCode.BAD_REQUEST
