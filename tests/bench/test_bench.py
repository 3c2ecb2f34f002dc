"""The printed results: shapes that scripts read, and what is left on the disk."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fencelog.api.bench.harness.scratch import scratch_directory
from fencelog.api.bench.main import BenchResult, app, render
from tests.run_suite import thorough_but

LIMITS = {
    "fdatasync_per_s",
    "fdatasync_p50_ms",
    "loopback_mb_per_s",
    "sequential_sync_mb_per_s",
    "new_page_mb_per_s",
}
METRICS = {
    "ledger": {"adds_per_s", "single_add_p50_ms", "single_add_p99_ms"},
    "bookie": {
        "small_adds_per_s",
        "large_adds_mb_per_s",
        "entry_log_read_mb_per_s",
        "restart_s",
        "rss_mb",
        "peak_rss_mb",
        "alone_add_cpu_us",
    },
    "http": {
        "post_per_s",
        "post_p50_ms",
        "post_p99_ms",
        "post_cpu_us",
        "repeated_post_per_s",
        "repeated_post_p99_ms",
        "repeated_post_cpu_us",
        "ndjson_batch_messages_per_s",
        "record_batch_messages_per_s",
    },
    "read": {"messages_per_s", "mb_per_s"},
    "audit": {
        "written_ledgers_per_s",
        *(f"{check}_{s}" for check in ("bookies", "cluster", "ledgers") for s in ("s", "cpu_s")),
        "checks_s",
    },
    "recovery": {
        *(
            f"{kind}_{figure}"
            for kind in ("small", "large", "striped")
            for figure in (
                "copied_mb_per_s",
                "share_of_disk",
                "worker_cpu_s_per_gb",
                "bookies_cpu_s_per_gb",
            )
        ),
        "usual_copied_mb_per_s",
        "append_p50_ms",
        "append_p99_ms",
        "append_p50_healing_ms",
        "append_p99_healing_ms",
        "append_p99_ratio",
    },
    "start": {
        f"{data}_{step}_{figure}"
        for data, steps in (
            ("new", ("announced", "ready", "topic", "append", "list")),
            ("again", ("announced", "ready", "append", "list")),
        )
        for step in steps
        for figure in ("ms", "cpu_ms")
    },
    "fanin": {
        f"topics_{topics}_post_{figure}"
        for topics in (2, 30)
        for figure in ("per_s", "p50_ms", "p99_ms", "cpu_us")
    },
    "consume": {
        f"{way}_{figure}"
        for way in ("single", "hundred")
        for figure in ("messages_per_s", "p50_ms", "cpu_us")
    },
    "routes": {
        f"{load}_{figure}"
        for load in (
            *(f"{at}_{kind}" for at in ("owner", "other") for kind in ("post", "single_post")),
            "topics_20_post",
        )
        for figure in ("per_s", "p50_ms", "p99_ms", "cpu_us")
    }
    | {"owner_read_messages_per_s", "other_read_messages_per_s"},
    "traces": {
        f"{name}_{figure}"
        for name in ("off", "off_traceparent", "ratio_0", "ratio_1_percent", "ratio_all")
        for figure in ("post_per_s", "post_cpu_us", "cpu_share")
    }
    - {"off_cpu_share"},
}
BRIEF = ["ledger", "http", "read", "consume"]
"""The ones that are run unless tests are thorough."""

SMALL = {
    "bookie": ["--seconds", "0.2", "--journal-mib", "8", "--entries", "20000"],
    "fanin": ["--seconds", "0.2", "--topics", "2,30", "--connections", "4"],
    "audit": ["--ledgers", "20"],
    "recovery": ["--seconds", "0.5", "--copied-mib", "1"],
    "start": ["--times", "1"],
    "traces": ["--seconds", "0.2", "--turns", "1"],
}
"""The options that make a bench short, where they are not the seconds alone."""


@pytest.mark.processes
@pytest.mark.parametrize("name", thorough_but(BRIEF, [*METRICS, "fanin --cluster"]))
def test_a_short_bench_prints_its_shape_and_cleans_up(name: str, tmp_path: Path) -> None:
    name, *options = name.split()
    arguments = [name, *options, "--json", "--data", str(tmp_path / "data")]
    arguments += SMALL.get(name, ["--seconds", "0.2"])
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)

    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert set(printed) == {"figures", "limits"}
    assert set(printed["figures"]) == METRICS[name]
    assert set(printed["limits"]) == LIMITS
    assert all(value > 0 for part in printed.values() for value in part.values())
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("topics", ["", "1,", "0", "ten", "-1", "²"])
def test_a_list_of_topics_that_is_none_is_refused(topics: str) -> None:
    result = CliRunner().invoke(app, ["fanin", "--topics", topics])
    assert result.exit_code == 2
    assert "is not a list such as 1,10,100" in result.stderr


def test_the_table_puts_figures_beside_limits() -> None:
    result = BenchResult(
        {"single_add_p50_ms": 0.5, "ndjson_batch_messages_per_s": 150_000.0},
        {"fdatasync_p50_ms": 0.25, "loopback_mb_per_s": 2000.0},
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render("ledger", result))
    text = console.export_text()

    assert "2.00 x fdatasync_p50_ms" in text
    assert "150,000" in text
    assert "loopback_mb_per_s" in text


@pytest.mark.parametrize("keep", [True, False])
def test_a_scratch_directory_stays_only_when_asked(tmp_path: Path, keep: bool) -> None:
    with scratch_directory(tmp_path / "new", keep=keep) as directory:
        (directory / "file").write_bytes(b"x")
    assert directory.exists() is keep


def test_a_scratch_directory_goes_when_the_bench_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), scratch_directory(tmp_path, keep=False) as directory:
        raise RuntimeError
    assert not directory.exists()
