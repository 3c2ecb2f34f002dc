"""A soak of seconds: its shape, and that its reader would notice what is missing or there twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fencelog.api.bench.harness.load import connected, encode_request
from fencelog.api.bench.http import create_topic, standalone
from fencelog.api.bench.main import app
from fencelog.api.bench.soak import CYCLES, _Maintenance
from fencelog.api.bench.soak_reader import NUMBER_BYTES, SoakReader
from fencelog.ledgers.errors import FencelogError
from tests.support.virtual_time import VirtualTimeLoop

METRICS = {
    "max_per_s",
    "wanted_per_s",
    "per_s",
    "p50_ms",
    "p99_ms",
    "p99_9_ms",
    "max_ms",
    "post_cpu_us",
    "rss_mb_first",
    "rss_mb_last",
    "rss_mb_max",
    "acknowledged",
    "read_once",
    "trimmed",
    "compacted_to",
    "garbage_collections",
}
INTERVAL = {
    "at_s",
    "per_s",
    "p50_ms",
    "p99_ms",
    "p99_9_ms",
    "max_ms",
    "cpu_cores",
    "rss_mb",
}

pytestmark = pytest.mark.processes


def soak(tmp_path: Path, *options: str) -> str:
    arguments = ["soak", "--seconds", "5", "--interval", "1", "--connections", "4", *options]
    arguments += ["--data", str(tmp_path / "data")]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert list((tmp_path / "data").iterdir()) == []
    return result.stdout


def test_a_short_soak_prints_its_shape_and_reads_everything_back(tmp_path: Path) -> None:
    printed = json.loads(soak(tmp_path, "--json"))
    metrics, intervals = printed["figures"], printed["intervals"]
    assert set(printed) == {"figures", "limits", "intervals"}
    assert set(metrics) == METRICS
    assert metrics["read_once"] == metrics["acknowledged"] > 0
    assert metrics["garbage_collections"] >= 1
    assert metrics["compacted_to"] > 0
    assert len(intervals) >= 2
    assert all(set(interval) == INTERVAL for interval in intervals)
    times_s = [interval["at_s"] for interval in intervals]
    assert times_s == sorted(times_s)


@pytest.mark.thorough
def test_a_given_rate_needs_no_maximum(tmp_path: Path) -> None:
    printed = soak(tmp_path, "--rate", "50")
    assert "wanted_per_s" in printed
    assert "cpu_cores" in printed
    assert "max_per_s" not in printed


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with standalone(tmp_path) as service:
        await create_topic(service.url, "bench/read")
        yield service.url


async def append(url: str, numbers: Sequence[int]) -> None:
    async with connected(url) as connection:
        for number in numbers:
            body = number.to_bytes(NUMBER_BYTES, "big") + b"rest"
            path = "/v1/topics/bench/read/messages"
            answer = await connection.request(encode_request("POST", url, path, body=body))
            assert answer.status == 201


@pytest.mark.parametrize(
    ("numbers", "acknowledged", "complaint"),
    [
        ([1, 0, 2], 3, None),
        ([0, 2], 3, "1 are missing, the first is \\[1\\]"),
        ([0, 1, 0], 2, "message 0 is there twice"),
        ([0, 1, 2], 2, "2 messages were acknowledged, 3 are there"),
    ],
    ids=["complete", "missing", "twice", "never acknowledged"],
)
async def test_the_reader_accounts_for_every_message(
    url: str, numbers: list[int], acknowledged: int, complaint: str | None
) -> None:
    await append(url, numbers)
    reader = SoakReader(url, "bench/read")
    if complaint is None:
        await reader.check_all(acknowledged)
        assert reader.messages == acknowledged
    else:
        with pytest.raises(FencelogError, match=complaint):
            await reader.check_all(acknowledged)


def test_every_cycle_of_a_run_has_its_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = 0

    class SlowBookie:
        def __init__(self, *_address: str) -> None:
            pass

        async def admin(self, _request: object) -> None:
            nonlocal collected
            await asyncio.sleep(0.4)
            collected += 1

        async def close(self) -> None:
            pass

    async def bookies(_maintenance: _Maintenance, _what: str) -> object:
        return {"bookies": {"b1": "nowhere:1"}}

    monkeypatch.setattr("fencelog.api.bench.soak.TcpBookieClient", SlowBookie)
    monkeypatch.setattr(_Maintenance, "_get", bookies)

    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CYCLES * 1.0):
                await _Maintenance("http://nowhere", 1.0).keep()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
    assert collected == CYCLES
