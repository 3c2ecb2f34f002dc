"""Certificates of the connections to a real ZooKeeper that end soon, from there to the doctor."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencelog.api.admin.doctor.findings import FindingKind
from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.api.processes.broker_main import serving_broker
from fencelog.bookie.config import BookieConfig
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.open import open_metadata_store
from fencelog.ledgers.metastore.port import MetadataStore
from tests.api.admin.doctor.provoked import note, provokes
from tests.support.network.http_client import http_client
from tests.support.network.secure_zookeeper import SecureZooKeeper, secure_zookeeper

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SecureZooKeeper]:
    """A server whose certificates, and those of its clients, end in two days."""
    with secure_zookeeper(tmp_path / "tls") as server:
        yield server


@contextlib.asynccontextmanager
async def session(url: str) -> AsyncIterator[MetadataStore]:
    store = open_metadata_store(url, host=SystemHost())
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@provokes(FindingKind.CERTIFICATE_ENDING)
async def test_certificates_that_end_in_two_days(server: SecureZooKeeper, tmp_path: Path) -> None:
    url, host = server.url(server.own), SystemHost()
    config = BookieConfig(tmp_path / "b1", bookie_id="b1", read_only_at=1.0, writable_at=1.0)
    async with contextlib.AsyncExitStack() as stack:
        of_bookie = await stack.enter_async_context(session(url))
        await create_instance(of_bookie, host)
        bookie = serving_bookie(of_bookie, config, host=host, listen="127.0.0.1:0")
        await stack.enter_async_context(bookie)
        of_broker = await stack.enter_async_context(session(url))
        broker = serving_broker(
            *(of_broker, {}),
            host=host,
            http="127.0.0.1:0",
            broker_id="r1",
            record_events=False,
        )
        http = await stack.enter_async_context(http_client(await stack.enter_async_context(broker)))
        report = (await http.get("/v1/admin/doctor?scan=false")).raise_for_status().json()
    note(report["findings"])
    found = [each for each in report["findings"] if each["kind"] == FindingKind.CERTIFICATE_ENDING]
    assert {(each["details"]["role"], each["subject"]) for each in found} == {
        ("own", str(server.certificate)),
        ("authority", str(server.authority.certificate)),
        ("server", f"localhost:{server.secure}"),
    }
    for each in found:
        assert each["severity"] == "warning"
        assert each["details"]["processes"] == ["bookie b1", "broker r1"]
        assert 0 < each["details"]["ends_us"] - report["examined_us"] < 3 * 86_400_000_000
