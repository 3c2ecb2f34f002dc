"""The doctor at a real cluster: each finding is provoked, found, and gone when its cause is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fencelog.api.admin.doctor.findings import FindingKind
from fencelog.api.cli import main as cli
from fencelog.bookie.identity.cookie_registry import COOKIES_PATH
from fencelog.bookie.identity.cookies import decode_cookie, encode_cookie
from fencelog.bookie.maintenance.forecast_core import DiskForecast
from fencelog.broker.config import BrokerConfig
from fencelog.broker.ledger_list.store import LedgerListStore, ledger_list_path
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.policy import Policy
from fencelog.ledgers.client import LedgerClient
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, ledger_path
from fencelog.ledgers.metastore.registration import BOOKIES_PATH, BROKERS_PATH
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_directory import RegisteredBookies, bookie_registration
from fencelog.ledgers.rpc.bookie_port import BookieInfo
from tests.api.admin.doctor.provoked import note, provokes
from tests.api.admin.doctor.sick_cluster import BOOKIES, SickCluster, put_topic, sick_cluster
from tests.support.metadata_nodes import overwrite, remove
from tests.support.network.http_client import http_client
from tests.support.until import until_found

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
NOWHERE = "127.0.0.1:1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SickCluster]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fencelog.api.processes.autorecovery.STATUS_MS", 50)
        async with sick_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
            yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def http(
    cluster: SickCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a broker of a cluster that was healthy before, and is again."""
    monkeypatch.setattr("fencelog.api.admin.doctor.doctor.FRESH_MS", -1)
    async with http_client(cluster.urls["r1"]) as client:
        await until_healthy(client)
        yield client
        topics = (await client.get("/v1/topics")).json()["topics"]
        for topic in topics:
            path = f"/v1/topics/{topic['namespace']}/{topic['topic']}"
            (await client.delete(path)).raise_for_status()
        await until_healthy(client)


async def until_healthy(http: httpx.AsyncClient) -> None:
    current: dict[str, Json] = {}

    async def is_healthy() -> bool:
        nonlocal current
        current = await findings(http)
        return current == {}

    try:
        await until_found(is_healthy)
    except TimeoutError:
        pytest.fail(json.dumps(current, indent=1))


async def findings(http: httpx.AsyncClient, *, scan: bool = True) -> dict[str, Json]:
    """The last finding of each kind."""
    answer = await http.get("/v1/admin/doctor", params={"scan": scan})
    found: list[Json] = answer.raise_for_status().json()["findings"]
    note(found)
    return {finding["kind"]: finding for finding in found}


async def found(http: httpx.AsyncClient, kind: str) -> Json:
    """Wait for a finding."""

    async def look() -> Json | None:
        return (await findings(http)).get(kind)

    finding: Json = await until_found(look)
    return finding


@provokes(FindingKind.BOOKIE_ABSENT)
async def test_a_bookie_that_has_stopped(cluster: SickCluster, http: httpx.AsyncClient) -> None:
    await cluster.stop("b4")
    finding = await found(http, "bookie_absent")
    assert (finding["subject"], finding["severity"]) == ("b4", "warning")

    async def has_time() -> Json | None:
        current = (await findings(http))["bookie_absent"]
        return current if current["since_us"] is not None else None

    since_us = (await until_found(has_time))["since_us"]  # the auditor publishes it now and then
    assert abs(SystemHost().now_us() - since_us) < 60_000_000
    await cluster.start_bookie("b4")


@provokes(FindingKind.BOOKIE_UNREACHABLE)
async def test_a_registered_bookie_that_does_not_answer(
    cluster: SickCluster, http: httpx.AsyncClient
) -> None:
    path = f"{COOKIES_PATH}/b1"
    cookie = decode_cookie(path, (await cluster.store.get(path)).value)
    cookie = replace(cookie, bookie_id="b5")
    await cluster.store.create(f"{COOKIES_PATH}/b5", encode_cookie(cookie))
    value = bookie_registration(NOWHERE, BookieInfo("b5", cookie.incarnation))
    await cluster.store.create(f"{BOOKIES_PATH}/b5", value)
    finding = await found(http, "bookie_unreachable")
    assert finding["subject"] == "b5"
    await overwrite(cluster.store, f"{BOOKIES_PATH}/b5", b"no registration")
    assert "not valid" in (await found(http, "bookie_unreachable"))["summary"]
    await remove(cluster.store, f"{BOOKIES_PATH}/b5")
    await remove(cluster.store, f"{COOKIES_PATH}/b5")


@provokes(FindingKind.BOOKIE_READ_ONLY)
async def test_a_read_only_bookie(cluster: SickCluster, http: httpx.AsyncClient) -> None:
    cluster.bookies["b1"].is_read_only = True
    finding = await found(http, "bookie_read_only")
    assert finding["details"]["reasons"] == ["operator"]
    assert abs(SystemHost().now_us() - finding["since_us"]) < 60_000_000
    bookies = (await http.get("/v1/bookies")).json()["bookies"]
    assert {each["bookie_id"]: each["is_read_only"] for each in bookies} == {
        name: name == "b1" for name in BOOKIES
    }
    cluster.bookies["b1"].is_read_only = False


@provokes(FindingKind.BOOKIE_LEAVING)
async def test_a_bookie_that_is_being_removed(
    cluster: SickCluster, http: httpx.AsyncClient
) -> None:
    (await http.post("/v1/admin/decommissions/b4")).raise_for_status()
    finding = await found(http, "bookie_leaving")
    assert (finding["subject"], finding["since_us"] is None) == ("b4", False)
    (await http.delete("/v1/admin/decommissions/b4")).raise_for_status()


@provokes(FindingKind.BOOKIE_IN_LIMBO)
async def test_a_bookie_that_lost_its_disk(cluster: SickCluster, http: httpx.AsyncClient) -> None:
    """Nothing can be copied while two other bookies of the ledger are away, too."""
    await put_topic(http, "ns/t")
    ledger = await ledger_of(http, "ns/t")
    first, *others = ledger["bookies"]
    for other in others:
        await cluster.stop(other)
    await cluster.lose_disk(first)
    finding = await found(http, "bookie_in_limbo")
    assert finding["subject"] == first
    for other in others:
        await cluster.start_bookie(other)

    async def is_repaired() -> bool:
        await cluster.bookies[first].admin["integrity"]({})  # do not wait: the others were away
        return "bookie_in_limbo" not in await findings(http)

    await until_found(is_repaired)


async def ledger_of(http: httpx.AsyncClient, topic: str) -> Json:
    """The newest ledger of the only partition of a topic, and the bookies of its end."""
    answer = await http.get(f"/v1/topics/{topic}/partitions/0/segments")
    ledger = answer.raise_for_status().json()["segments"][-1]["ledger"]
    return {"ledger_id": ledger["ledger_id"], "bookies": ledger["fragments"][-1][1]}


@provokes(FindingKind.DISK_FILLING)
async def test_a_disk_that_fills_up(cluster: SickCluster, http: httpx.AsyncClient) -> None:
    """The watch of its disk has seen an hour in which ten times as much was left at first."""
    part: Any = cluster.bookies["b1"].status_parts["disk"]
    left, now_s = part()["left_bytes"], asyncio.get_running_loop().time()
    history = DiskForecast()
    for minute in range(60, -1, -1):
        history.note(now_s - minute * 60, left + left * 9 * minute // 60)
    part.__self__._forecasts = dict.fromkeys(part.__self__._forecasts, history)
    finding = await found(http, "disk_filling")
    assert (finding["subject"], finding["severity"]) == ("b1", "critical")
    assert finding["details"]["full_in_s"] < 3600
    await cluster.stop("b1")
    await cluster.start_bookie("b1")


@provokes(
    FindingKind.COOKIE_UNREADABLE,
    FindingKind.COOKIE_FOREIGN,
    FindingKind.COOKIE_STALE,
    FindingKind.COOKIE_MISSING,
)
async def test_cookies_that_do_not_fit(cluster: SickCluster, http: httpx.AsyncClient) -> None:
    path = f"{COOKIES_PATH}/b2"
    stored = (await cluster.store.get(path)).value
    cookie = decode_cookie(path, stored)
    for kind, value in (
        ("cookie_unreadable", b"no cookie"),
        ("cookie_foreign", encode_cookie(replace(cookie, instance="f" * 32))),
        ("cookie_stale", encode_cookie(replace(cookie, incarnation="e" * 32))),
    ):
        await overwrite(cluster.store, path, value)
        assert (await found(http, kind))["subject"] == "b2"
    await remove(cluster.store, path)
    assert (await found(http, "cookie_missing"))["subject"] == "b2"
    await cluster.store.create(path, stored)


@provokes(FindingKind.CLOCK_SKEW)
async def test_a_clock_that_is_wrong(cluster: SickCluster, http: httpx.AsyncClient) -> None:
    await cluster.stop("b3")
    await cluster.start_bookie("b3", ahead_us=-7_000_000)
    finding = await found(http, "clock_skew")
    assert finding["subject"] == "bookie b3"
    assert "7.0 s behind" in finding["summary"]
    await cluster.stop("b3")
    await cluster.start_bookie("b3")


@provokes(FindingKind.HEALING_OFF, FindingKind.NO_AUDITOR)
async def test_healing_that_is_off_or_away(cluster: SickCluster, http: httpx.AsyncClient) -> None:
    settings = "/v1/admin/autorecovery"
    (await http.patch(settings, json={"is_enabled": False})).raise_for_status()
    await found(http, "healing_off")
    (await http.patch(settings, json={"is_enabled": True})).raise_for_status()
    await cluster.stop("healing")
    await found(http, "no_auditor")
    await cluster.start_healing()


@provokes(FindingKind.ACK_QUORUM_ONE, FindingKind.UNDER_REPLICATED, FindingKind.UNRECOVERABLE)
async def test_copies_that_are_missing_and_entries_without_one(
    cluster: SickCluster, http: httpx.AsyncClient
) -> None:
    """The only copies of a closed ledger were on a bookie that is gone."""
    one = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1, "roll_entries": 1}
    await put_topic(http, "ns/one", **one)
    topics = (await found(http, "ack_quorum_one"))["details"]["topics"]
    assert topics == ["ns/one"]
    (await http.post("/v1/topics/ns/one/messages", content=b"y")).raise_for_status()
    answer = await http.get("/v1/topics/ns/one/partitions/0/segments")
    ledger = answer.json()["segments"][0]["ledger"]
    (bookie,) = ledger["fragments"][0][1]
    await cluster.stop(bookie)
    (await http.post(f"/v1/admin/bookies/{bookie}:recover")).raise_for_status()
    finding = await found(http, "under_replicated")
    assert bookie in finding["details"]["bookies"]

    async def is_named() -> Json | None:  # others may be found first
        ledgers = (await found(http, "unrecoverable"))["details"]["ledgers"]
        named: Json | None = ledgers.get(str(ledger["ledger_id"]))
        return named

    assert (await until_found(is_named))["missing"] == [bookie]
    assert (await found(http, "unrecoverable"))["severity"] == "critical"
    await cluster.start_bookie(bookie)
    (await http.delete("/v1/topics/ns/one")).raise_for_status()


@provokes(FindingKind.CHECK_VIOLATIONS, FindingKind.CHECK_OVERDUE)
async def test_violations_that_a_check_has_found(
    cluster: SickCluster, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_topic(http, "ns/t", roll_entries=1)
    await put_message(http, "ns/t")
    answer = await http.get("/v1/topics/ns/t/partitions/0/segments")
    ledger = answer.json()["segments"][0]["ledger"]
    for bookie_id in ledger["fragments"][0][1]:
        ledger_id = ledger["ledger_id"]
        await cluster.bookies[bookie_id].shard(ledger_id).remove(ledger_id, deleted=True)
    await check_cluster(http)
    finding = await found(http, "check_violations")
    assert (finding["severity"], finding["details"]["counts"]) == ("critical", {"no_copy": 1})
    (await http.delete("/v1/topics/ns/t")).raise_for_status()
    await check_cluster(http)
    assert await findings(http) == {}
    monkeypatch.setattr("fencelog.api.admin.doctor.ledgers_core.CHECK_OVERDUE_MS", 0)
    await found(http, "check_overdue")
    monkeypatch.undo()


async def put_message(http: httpx.AsyncClient, topic: str) -> None:
    (await http.post(f"/v1/topics/{topic}/messages", content=b"y")).raise_for_status()


async def check_cluster(http: httpx.AsyncClient) -> None:
    path = "/v1/admin/checks"
    (await http.post(path, json={"checks": ["cluster"]})).raise_for_status()

    async def is_made() -> bool:
        return not (await http.get(path)).json()["requested"]

    await until_found(is_made)


@provokes(FindingKind.BROKER_DRAINING, FindingKind.BROKER_UNREACHABLE)
async def test_a_broker_that_drains_or_does_not_answer(
    cluster: SickCluster, http: httpx.AsyncClient
) -> None:
    (await http.post("/v1/brokers/r1:drain?force=true")).raise_for_status()
    finding = await found(http, "broker_draining")
    assert (finding["subject"], finding["since_us"]) == ("r1", None)
    again = await found(http, "broker_draining")
    assert again["seen_since_us"] == finding["seen_since_us"]
    (await http.post("/v1/brokers/r1:undrain")).raise_for_status()
    dead = json.dumps({"broker_id": "r9", "url": f"http://{NOWHERE}"}).encode()
    await cluster.store.create(f"{BROKERS_PATH}/r9", dead)
    finding = await found(http, "broker_unreachable")
    assert (finding["subject"], finding["severity"]) == ("r9", "critical")
    await remove(cluster.store, f"{BROKERS_PATH}/r9")


async def test_a_topic_that_was_made_just_now_counts(
    cluster: SickCluster, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of topics are remembered, but no other topics are overlooked meanwhile."""
    monkeypatch.setattr("fencelog.api.admin.doctor.doctor.NAMES_FRESH_MS", -1)
    quick = "/v1/admin/doctor?scan=false"
    assert (await http.get(quick)).json()["findings"] == []
    (await http.put("/v1/topics/ns/fresh")).raise_for_status()
    for bookie in cluster.bookies.values():
        bookie.is_read_only = True
    async with asyncio.timeout(20):
        while True:
            report = (await http.get(quick)).json()
            few = [each for each in report["findings"] if each["kind"] == "too_few_bookies"]
            if few:
                break
            await asyncio.sleep(0.05)
    assert few[0]["details"]["topics"] == ["ns/fresh"]
    for bookie in cluster.bookies.values():
        bookie.is_read_only = False


@provokes(FindingKind.TOO_FEW_BOOKIES, FindingKind.TAKEOVER_STUCK, FindingKind.ROLL_STUCK)
async def test_too_few_bookies(
    cluster: SickCluster, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append, and the opening of another topic, wait for bookies that take entries."""
    for limit in ("STUCK_STEP_MS", "STUCK_TAKEOVER_MS"):
        monkeypatch.setattr(f"fencelog.api.admin.doctor.partitions_core.{limit}", 0)
    await put_topic(http, "ns/open", roll_entries=1)
    (await http.put("/v1/topics/ns/shut")).raise_for_status()
    for bookie in cluster.bookies.values():
        bookie.is_read_only = True
    finding = await found(http, "too_few_bookies")
    assert finding["details"]["topics"] == ["ns/open", "ns/shut"]
    refused = await http.post("/v1/topics/ns/shut/messages", content=b"x")
    assert refused.status_code == 503
    finding = await found(http, "takeover_stuck")
    assert finding["subject"] == "ns/shut/0"
    assert "bookies" in finding["summary"]
    async with asyncio.TaskGroup() as group:
        group.create_task(put_message(http, "ns/open"))
        finding = await found(http, "roll_stuck")
        for bookie in cluster.bookies.values():
            bookie.is_read_only = False
    assert finding["subject"] == "ns/open/0"
    await put_message(http, "ns/shut")
    assert "takeover_stuck" not in await findings(http)


@provokes(FindingKind.RETENTION_HELD_BACK)
async def test_a_subscription_that_holds_back_retention(
    cluster: SickCluster, http: httpx.AsyncClient
) -> None:
    (await http.put("/v1/topics/ns/t", json={"roll_entries": 1})).raise_for_status()
    path = "/v1/topics/ns/t/subscriptions/slow"
    (await http.put(path, json={"start": "earliest"})).raise_for_status()
    for _ in range(3):
        await put_message(http, "ns/t")
    (await http.patch("/v1/topics/ns/t", json={"retention_ms": 1})).raise_for_status()
    finding = await found(http, "retention_held_back")
    assert finding["subject"] == "ns/t slow"
    assert finding["since_us"] is not None
    (await http.delete(path)).raise_for_status()


@provokes(FindingKind.LEDGER_UNSEALED, FindingKind.ORPHANED)
async def test_what_crashes_leave_behind(cluster: SickCluster, http: httpx.AsyncClient) -> None:
    (await http.put("/v1/topics/ns/t")).raise_for_status()
    await crash_of_an_owner(cluster, (await http.get("/v1/topics/ns/t")).json()["topic_id"])
    await cluster.store.create("/logs/deadbeef", b"")
    unsealed = await found(http, "ledger_unsealed")
    assert unsealed["subject"] == "ns/t/0"
    assert (await found(http, "orphaned"))["details"]["topic_ids"] == ["deadbeef"]
    assert (await findings(http, scan=False)).keys() == set()
    await put_message(http, "ns/t")
    (await http.post("/v1/sweep")).raise_for_status()
    assert await findings(http) == {}


async def crash_of_an_owner(cluster: SickCluster, topic_id: str) -> None:
    """Open a partition as a broker does that dies then, without a node of its own."""

    def connect(address: str, bookie_id: str) -> TcpBookieClient:
        return TcpBookieClient(bookie_id, address)

    host = SystemHost()
    async with AsyncExitStack() as stack:
        bookies = RegisteredBookies(cluster.store, connect=connect)
        await bookies.start()
        stack.push_async_callback(bookies.close)
        node = LedgerListStore(cluster.store, ledger_list_path(topic_id, 0), host=host)
        assert await node.create()
        log = await PartitionLog.open(
            node,
            LedgerClient(cluster.store, bookies, host=host),
            partition=0,
            policy=Policy(),
            host=host,
            config=BrokerConfig(broker_id="dead", url=f"http://{NOWHERE}"),
        )
        await log.abandon(FencelogError(ErrorCode.NO_OWNER, "killed"))


@provokes(FindingKind.NOT_ANSWERED)
async def test_what_cannot_be_read_is_a_finding(
    cluster: SickCluster, http: httpx.AsyncClient
) -> None:
    path = ledger_path(MARKS_PATH, 5)
    await cluster.store.create(path, b"no mark")
    finding = await found(http, "not_answered")
    assert "lack copies" in finding["summary"]
    await remove(cluster.store, path)


async def run(line: list[str]) -> int:
    """The exit code of a command, which runs beside the cluster of this loop."""
    return await asyncio.get_running_loop().run_in_executor(None, cli.run, line)


async def test_any_broker_is_asked_and_the_command_says_how_bad_it_is(
    cluster: SickCluster, http: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    second = await cluster.start_broker("r2")
    troubles = (await http.get("/v1/brokers/r2/troubles")).json()
    assert (troubles["broker_id"], troubles["draining"]) == ("r2", False)

    doctor = ["doctor", "--server", second]
    assert await run(doctor) == 0
    assert capsys.readouterr().out.startswith("healthy; examined in ")
    cluster.bookies["b1"].is_read_only = True
    assert await run([*doctor, "--quick"]) == 4
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("WARNING  bookie b1 takes no entries")
    assert said[1].startswith("    since ")
    assert said[2] == "    try: fencelog bookies read-only b1 off --metadata URL"
    assert said[3].startswith("1 finding; ")
    assert said[3].endswith("; not every ledger was looked at")
    cluster.bookies["b1"].is_read_only = False
    dead = json.dumps({"broker_id": "r9", "url": f"http://{NOWHERE}"}).encode()
    await cluster.store.create(f"{BROKERS_PATH}/r9", dead)
    assert await run([*doctor, "--json"]) == 5
    report = json.loads(capsys.readouterr().out)
    assert (report["severity"], report["scanned"]) == ("critical", True)
    await remove(cluster.store, f"{BROKERS_PATH}/r9")
    await cluster.stop("r2")


@provokes(FindingKind.NO_BROKER)
async def test_without_a_broker_the_command_reads_the_metadata_store(
    zookeeper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"zk://{zookeeper}/doctor-{tmp_path.name}"
    assert await run(["metadata", "init", "--metadata", url]) == 0
    capsys.readouterr()
    assert await run(["doctor", "--metadata", url, "--json"]) == 5
    report = json.loads(capsys.readouterr().out)
    note(report["findings"])
    assert [finding["kind"] for finding in report["findings"]] == ["no_broker", "no_auditor"]
    assert await run(["doctor", "--server", f"http://{NOWHERE}"]) == 1
