"""The table of metrics: METRICS.md shows it, and running processes expose it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.metrics.exposition import exposition, http_metrics
from fencelog.api.metrics.table import BOOKIE, PARTITIONS, TABLE, MetricKind, sample, samples
from fencelog.api.processes.bookie_main import BookieProcessConfig, bookie_process
from fencelog.bookie.config import BookieConfig
from tests.support.house import ROOT
from tests.support.network.http_client import http_client

ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", re.MULTILINE)
UNITS = ("_seconds", "_bytes", "_bytes_per_second")

AUDITOR_SAYS = re.compile(
    "fencelog_(underreplicated|recent_check|balance_(ledger|ledgers|distance|marked))_"
)
"""The metrics that only an elected auditor publishes."""


def samples_of(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of a text by the name of their metric."""
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def kinds_of(text: str) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(text)}


def test_the_document_is_the_table() -> None:
    written = ROW.findall((ROOT / "api/METRICS.md").read_text("utf-8"))
    documented = {name: (kind, labels, meaning) for name, kind, labels, meaning in written}
    assert len(written) == len(documented)
    assert documented == {
        name + "_total" * (row.kind is MetricKind.COUNTER): (
            row.kind.value,
            ", ".join(f"`{label}`" for label in row.labels.split()),
            row.meaning,
        )
        for name, row in TABLE.items()
    }


def test_names_end_with_their_unit() -> None:
    """A name with a unit inside it hides the unit."""
    inside = [name for name in TABLE for unit in UNITS if unit in name and not name.endswith(UNITS)]
    assert inside == []
    assert all(
        name.endswith("_seconds") for name, row in TABLE.items() if row.kind is MetricKind.HISTOGRAM
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_service_exposes_the_table(real: str) -> None:
    topic = "ns/t"
    async with http_client(real) as client:
        path = f"/v1/topics/{topic}"
        assert (await client.put(path)).status_code == 201
        assert (await client.put(f"{path}/subscriptions/s")).status_code == 201
        for value in (b"a", b"bc"):
            assert (await client.post(f"{path}/messages", content=value)).status_code == 201
        pulled = await client.post(f"{path}/subscriptions/s:pull", json={"consumer": "c", "max": 2})
        refused, _leased = (message["ack_id"] for message in pulled.json()["messages"])
        nack = {"ack_ids": [refused], "delay_ms": 60_000}
        assert (await client.post(f"{path}/subscriptions/s:nack", json=nack)).status_code == 200
        assert (await client.get("/v1/topics/no/where")).status_code == 404
        usual = (await client.get("/metrics")).text
        text = (await client.get("/metrics?partitions=true")).text
    exposed = kinds_of(text)
    assert PARTITIONS.keys() <= exposed.keys()
    assert not PARTITIONS.keys() & kinds_of(usual).keys()
    assert exposed.keys() <= TABLE.keys()
    assert all(AUDITOR_SAYS.match(name) for name in TABLE.keys() - exposed.keys())
    assert exposed == {name: TABLE[name].kind.value for name in exposed}
    samples = samples_of(text)
    for name, found in samples.items():
        labels = set(TABLE[name].labels.split())
        assert all(set(given) - {"le"} == labels for given, _ in found), name
    assert ({"code": "topic_not_found"}, 1.0) in samples["fencelog_http_problems"]
    assert ({"topic": topic}, 1.0) in samples["fencelog_topic_partitions"]
    stored = {given["topic"]: value for given, value in samples["fencelog_topic_stored_bytes"]}
    place, others = {"topic": topic, "partition": "0"}, {"topic": "_other", "partition": ""}
    assert (place, stored[topic]) in samples["fencelog_partition_stored_bytes"]
    assert (others, 0.0) in samples["fencelog_partition_pending_bytes"]
    row = {"topic": topic, "subscription": "s"}
    assert (row, 2.0) in samples["fencelog_subscription_backlog_messages"]
    assert (row, 1.0) in samples["fencelog_subscription_leased_messages"]
    assert (row, 1.0) in samples["fencelog_subscription_redelivering_messages"]
    (lag_s,) = (
        value for given, value in samples["fencelog_subscription_lag_seconds"] if given == row
    )
    assert 0 < lag_s < 600
    journals = {given["bookie"]: value for given, value in samples["fencelog_bookie_journal_bytes"]}
    assert journals.keys() == {"bookie-1", "bookie-2", "bookie-3"}
    assert all(journals.values())


async def test_a_bookie_exposes_its_part(tmp_path: Path) -> None:
    storage = BookieConfig(tmp_path, bookie_id="b1")
    config = BookieProcessConfig("memory:", storage, "127.0.0.1:0", health="127.0.0.1:0")
    async with bookie_process(config) as running, http_client() as client:
        url = f"{running.announcement['health']}/metrics"
        answer = await client.get(url)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert kinds_of(answer.text).keys() == BOOKIE.keys()
        assert samples_of(answer.text)["fencelog_bookie_read_only"] == [({"bookie": "b1"}, 0.0)]
        assert (await client.post(url)).status_code == 404


@pytest.mark.parametrize("ledgers", ["data", "ledgers"])
async def test_each_directory_that_entries_fill_has_a_disk(tmp_path: Path, ledgers: str) -> None:
    """A large disk that fills up has more free bytes than a small one that does not, for long."""
    storage = BookieConfig(
        tmp_path / "data",
        bookie_id="b1",
        journal_dirs=(tmp_path / "journal",),
        ledger_dirs=() if ledgers == "data" else (tmp_path / ledgers,),
    )
    config = BookieProcessConfig("memory:", storage, "127.0.0.1:0", health="127.0.0.1:0")
    async with bookie_process(config) as running, http_client() as client:
        text = (await client.get(f"{running.announcement['health']}/metrics")).text
    found = samples_of(text)
    for name in ("fencelog_bookie_disk_bytes", "fencelog_bookie_disk_free_bytes"):
        directories = {given["directory"]: value for given, value in found[name]}
        assert {Path(each).relative_to(tmp_path).parts[0] for each in directories} == {
            *(ledgers, "journal")
        }
        assert all(directories.values())


def test_a_name_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(KeyError):
        sample("fencelog_invented", 1)


def test_labels_are_read_as_they_were_written() -> None:
    word = 'back\\slash, "quotes"\nand a line'
    text = exposition([samples("fencelog_http_problems", [((word,), 2)])]).decode()
    assert samples_of(text) == {"fencelog_http_problems": [({"code": word}, 2.0)]}
    assert not any(set(row.meaning) & set("\\\n") for row in TABLE.values())


def test_one_name_is_exposed_once() -> None:
    with pytest.raises(ValueError, match="fencelog_http_streams"):
        exposition([*http_metrics(ApiMetrics()), samples("fencelog_http_streams", [])])
