"""The times of appends: the whole one, and its stage from the acknowledgement to the answer."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fencelog.api.processes.standalone import StandaloneConfig, standalone
from tests.support.network.http_client import http_client

MESSAGES = "/v1/topics/default/t/messages"
TEXT = {"content-type": "text/plain"}

STAGE = "fencelog_broker_append_stage_seconds"
WHOLE = "fencelog_http_append_seconds"


async def times(client: httpx.AsyncClient) -> dict[str, tuple[float, float]]:
    """Return the number and the sum of the times of each stage, and of the whole."""
    text = (await client.get("/metrics")).text
    found = {
        (sample.name, sample.labels.get("stage", "whole")): sample.value
        for family in text_string_to_metric_families(text)
        if family.name in (STAGE, WHOLE)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
    stages = {stage for _, stage in found}
    return {
        stage: (found[f"{name}_count", stage], found[f"{name}_sum", stage])
        for stage in stages
        for name in (WHOLE if stage == "whole" else STAGE,)
    }


@pytest.mark.parametrize("way", [MESSAGES, f"{MESSAGES}:batch"])
async def test_every_append_has_all_stages_and_they_are_its_time(tmp_path: Path, way: str) -> None:
    config = StandaloneConfig(tmp_path, "127.0.0.1:0", record_events=False)
    async with standalone(config) as service:
        url = service.announcement["http"]
        async with http_client(url) as client:
            await client.put("/v1/topics/default/t")
            await client.post(way, content=b"x", headers=TEXT)
            before = await times(client)
            for _ in range(10):
                assert (await client.post(way, content=b"x", headers=TEXT)).status_code == 201
            after = await times(client)
            await client.get(MESSAGES)
    assert {stage: after[stage][0] - before[stage][0] for stage in after} == {
        "queue": 10,
        "ledger": 10,
        "reply": 10,
        "whole": 10,
    }
    spent = {stage: after[stage][1] - before[stage][1] for stage in after}
    # One request at a time: the stages follow each other, each known to a microsecond.
    assert 0 < spent["reply"] < spent["whole"]
    assert spent["queue"] + spent["ledger"] + spent["reply"] <= spent["whole"] + 10 * 3e-6


async def test_a_duplicate_is_no_append(tmp_path: Path) -> None:
    config = StandaloneConfig(tmp_path, "127.0.0.1:0", record_events=False)
    async with standalone(config) as service:
        url = service.announcement["http"]
        async with http_client(url) as client:
            await client.put("/v1/topics/default/t")
            for status in (201, 200):
                answer = await client.post(MESSAGES, content=b"x", headers={"Idempotency-Key": "k"})
                assert answer.status_code == status
            after = await times(client)
    assert after["reply"][0] == after["whole"][0] == 1
