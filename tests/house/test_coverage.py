"""Pure cores are tried completely: each line and each branch of them, by their own unit tests.

What decides without clock or I/O can be tried completely, so it has to be. The tests that do it are
named here, and run in a process of their own: what other tests run through does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.house import PACKAGES

LOG_CORE = [
    "tests/broker/log/test_core.py",
    "tests/broker/log/test_core_adoption.py",
    "tests/broker/log/test_core_ends.py",
]

CORES = {
    "api/processes/logs/rate_limit_core.py": ["tests/api/processes/logs/test_rate_limit_core.py"],
    "ledgers/format/availability.py": ["tests/ledgers/format/test_availability.py"],
    "ledgers/format/digest.py": ["tests/ledgers/format/test_run.py"],
    "ledgers/format/entry_header.py": ["tests/ledgers/format/test_entry_header.py"],
    "ledgers/format/entry_list.py": ["tests/ledgers/format/test_entry_list.py"],
    "ledgers/ledger_metadata/model.py": ["tests/ledgers/ledger_metadata/test_model.py"],
    "ledgers/placement/core.py": ["tests/ledgers/placement/test_core.py"],
    "ledgers/quorum.py": ["tests/properties/test_quorum.py"],
    "ledgers/reader/core.py": ["tests/ledgers/reader/test_core.py"],
    "ledgers/recovery/rules.py": ["tests/ledgers/recovery/test_rules.py"],
    "ledgers/recovery/machine.py": ["tests/ledgers/recovery/test_machine.py"],
    "ledgers/format/run.py": ["tests/ledgers/format/test_run.py"],
    "ledgers/writer/run_batching.py": ["tests/ledgers/writer/test_run_batching.py"],
    "ledgers/ledger_metadata/transitions.py": ["tests/ledgers/ledger_metadata/test_transitions.py"],
    "ledgers/rpc/receiving.py": ["tests/ledgers/rpc/test_receiving.py"],
    "ledgers/rpc/wire.py": [
        "tests/ledgers/format/test_request_context.py",
        "tests/ledgers/rpc/test_wire.py",
        "tests/ledgers/rpc/test_receiving.py",
        "tests/ledgers/rpc/test_places.py",
    ],
    "ledgers/rpc/adds.py": ["tests/ledgers/rpc/test_adds.py"],
    "ledgers/rpc/answers.py": ["tests/ledgers/rpc/test_adds.py", "tests/ledgers/rpc/test_lacs.py"],
    "ledgers/rpc/fences.py": ["tests/ledgers/rpc/test_fences.py"],
    "ledgers/rpc/ranges.py": ["tests/ledgers/rpc/test_ranges.py"],
    "ledgers/writer/core.py": ["tests/ledgers/writer/test_core.py"],
    "bookie/disk/space.py": ["tests/bookie/maintenance/test_disk_watch.py"],
    "bookie/storage/read_cache.py": ["tests/bookie/storage/test_read_cache.py"],
    "bookie/identity/cookies.py": ["tests/bookie/identity/test_cookies_core.py"],
    "bookie/identity/cookies_core.py": ["tests/bookie/identity/test_cookies_core.py"],
    "bookie/format/control_records.py": ["tests/bookie/format/test_control_records.py"],
    "bookie/maintenance/forecast_core.py": ["tests/bookie/maintenance/test_forecast_core.py"],
    "bookie/repair/core.py": ["tests/bookie/repair/test_core.py"],
    "bookie/auditor/absence_core.py": ["tests/bookie/auditor/test_absence_core.py"],
    "bookie/auditor/check_core.py": ["tests/bookie/auditor/test_check_core.py"],
    "bookie/auditor/decommission_core.py": ["tests/bookie/auditor/test_decommission_core.py"],
    "bookie/auditor/schedule_core.py": ["tests/bookie/auditor/test_schedule_core.py"],
    "bookie/auditor/placement_core.py": ["tests/bookie/auditor/test_placement_core.py"],
    "bookie/auditor/sample_core.py": ["tests/bookie/auditor/test_sample_core.py"],
    "bookie/balance/core.py": ["tests/bookie/balance/test_core.py"],
    "bookie/recent/core.py": ["tests/bookie/recent/test_core.py"],
    "bookie/replication/core.py": ["tests/bookie/replication/test_core.py"],
    "bookie/replication/progress.py": ["tests/bookie/replication/test_progress.py"],
    "bookie/gc/core.py": ["tests/bookie/gc/test_core.py"],
    "bookie/format/ledger_state.py": ["tests/bookie/format/test_ledger_state.py"],
    "bookie/format/records.py": ["tests/bookie/format/test_records.py"],
    "bookie/format/runs.py": ["tests/bookie/format/test_runs.py"],
    "broker/cluster/balance_core.py": ["tests/broker/cluster/test_balance_core.py"],
    "broker/cluster/events_core.py": ["tests/broker/cluster/test_events_core.py"],
    "api/admin/events/core.py": ["tests/api/admin/events/test_core.py"],
    "api/admin/doctor/core.py": ["tests/api/admin/doctor/test_core.py"],
    "api/admin/doctor/bookies_core.py": ["tests/api/admin/doctor/test_bookies_core.py"],
    "api/admin/doctor/brokers_core.py": ["tests/api/admin/doctor/test_brokers_core.py"],
    "api/admin/doctor/partitions_core.py": ["tests/api/admin/doctor/test_partitions_core.py"],
    "api/admin/doctor/certificates_core.py": ["tests/api/admin/doctor/test_certificates_core.py"],
    "api/admin/doctor/ledgers_core.py": ["tests/api/admin/doctor/test_ledgers_core.py"],
    "api/routing/link_core.py": ["tests/api/routing/test_link_core.py"],
    "api/routing/link_frames.py": ["tests/api/routing/test_link_frames.py"],
    "api/server/origins_core.py": ["tests/api/server/test_origins_core.py"],
    "api/server/invalid_core.py": ["tests/api/server/test_invalid_core.py"],
    "broker/commits/pending_core.py": ["tests/broker/commits/test_pending_core.py"],
    "broker/dispatch/ack_ranges.py": ["tests/broker/dispatch/test_ack_ranges.py"],
    "broker/dispatch/cursor_core.py": ["tests/broker/dispatch/test_cursor_core.py"],
    "broker/dispatch/base.py": ["tests/broker/dispatch/test_dispatch.py"],
    "broker/dispatch/consumers.py": ["tests/broker/dispatch/test_leases.py"],
    "broker/dispatch/key_shared.py": ["tests/broker/dispatch/test_dispatch.py"],
    "broker/dispatch/leases.py": ["tests/broker/dispatch/test_leases.py"],
    "broker/dispatch/offsets.py": ["tests/broker/dispatch/test_leases.py"],
    "broker/dispatch/ordered.py": ["tests/broker/dispatch/test_dispatch.py"],
    "broker/dispatch/shared.py": ["tests/broker/dispatch/test_dispatch.py"],
    "api/subscriptions/lag_core.py": ["tests/api/subscriptions/test_lag_core.py"],
    "broker/subscriptions/ack_id.py": ["tests/broker/registry/test_subscription_config.py"],
    "broker/registry/subscription_config.py": ["tests/broker/registry/test_subscription_config.py"],
    "broker/ledger_list/ledger_list.py": ["tests/broker/ledger_list/test_ledger_list.py"],
    "broker/ledger_list/codec.py": ["tests/broker/ledger_list/test_ledger_list.py"],
    "broker/compaction/compacted_entry.py": ["tests/broker/compaction/test_core.py"],
    "broker/compaction/core.py": ["tests/broker/compaction/test_core.py"],
    "broker/cluster/load.py": ["tests/broker/cluster/test_load.py"],
    "broker/log/core.py": LOG_CORE,
    "broker/log/steps_core.py": LOG_CORE,
    "broker/log/roll_core.py": LOG_CORE,
    "broker/append/pending.py": ["tests/broker/append/test_pending.py"],
    "broker/policy.py": ["tests/broker/test_policy.py"],
    "api/admin/topic_table_core.py": ["tests/api/admin/test_topic_table_core.py"],
    "api/admin/subscription_table_core.py": ["tests/api/admin/test_subscription_table_core.py"],
    "broker/log/next_cut_core.py": ["tests/broker/log/test_next_cut_core.py"],
    "broker/partition/ledger_view_core.py": ["tests/broker/partition/test_ledger_view_core.py"],
    "broker/log/retention_core.py": ["tests/broker/log/test_retention_core.py"],
    "broker/log/backlog_core.py": ["tests/broker/log/test_backlog_core.py"],
    "broker/ledger_list/state_core.py": ["tests/broker/ledger_list/test_state_core.py"],
    "broker/background/sweep_core.py": ["tests/broker/background/test_sweep_core.py"],
    "broker/append/mode.py": LOG_CORE,
    "broker/append/conditions.py": ["tests/broker/append/test_producer_table.py"],
    "broker/append/producer_access.py": [
        "tests/broker/append/test_producer_access.py",
        "tests/broker/append/test_once.py",
    ],
    "broker/append/once.py": ["tests/broker/append/test_once.py"],
    "broker/append/contents.py": ["tests/broker/append/test_contents.py"],
    "broker/append/producer_table.py": ["tests/broker/append/test_producer_table.py"],
    "broker/read/time_index.py": ["tests/broker/read/test_time_index.py"],
    "spark_connector/stream/admission_core.py": ["tests/spark/stream/test_admission_core.py"],
    "spark_connector/stream/backlog_core.py": ["tests/spark/stream/test_backlog_core.py"],
    "spark_connector/stream/position_core.py": ["tests/spark/stream/test_position_core.py"],
    "spark_connector/stream/slices_core.py": ["tests/spark/stream/test_slices_core.py"],
    "spark_connector/stream/tasks_core.py": ["tests/spark/stream/test_slices_core.py"],
}
"""Every core, and the tests that have to try all of it."""

EXAMPLES = ("--hypothesis-profile=same-examples", "--hypothesis-seed=0")
"""Always the same examples. A branch that needs rare ones is tried by a test of its own."""


def test_every_core_is_in_the_list(root: Path) -> None:
    """A core that was renamed, or that came to be, is put down here."""
    in_the_tree = {
        file.relative_to(root).as_posix()
        for package in PACKAGES
        for file in (root / package).rglob("*core.py")
    }
    assert in_the_tree <= CORES.keys()
    files = {*CORES, *(test for tests in CORES.values() for test in tests)}
    assert [file for file in sorted(files) if not (root / file).is_file()] == []


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_core_is_tried_completely(root: Path, tmp_path: Path) -> None:
    measured = measure(root, tmp_path)
    gaps = [gap for core in CORES for gap in gaps_of(core, measured.get(core, {}))]
    assert gaps == [], "\n" + "\n".join(gaps)


def measure(root: Path, folder: Path) -> dict[str, Any]:
    """Return what coverage says of each core after the tests of all of them, by path."""
    tests = sorted({test for tests in CORES.values() for test in tests})
    coverage = [sys.executable, "-m", "coverage"]
    run = [*coverage, "run", "--branch", f"--include={','.join(CORES)}"]
    pytest_run = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *EXAMPLES, *tests]
    report = [*coverage, "json", "-q", "-o", str(folder / "coverage.json")]
    environment = {**os.environ, "COVERAGE_FILE": str(folder / "data")}
    for command in ([*run, *pytest_run], report):
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}{done.stderr}"
    files: dict[str, Any] = json.loads((folder / "coverage.json").read_text("utf-8"))["files"]
    return files


def gaps_of(core: str, file: dict[str, Any]) -> Iterator[str]:
    """Yield what the tests of a core leave out, in words; an unmeasured core leaves out
    everything."""
    where = f"{core} by {' '.join(CORES[core])}"
    if not file:
        yield f"{where}: never imported"
    elif file["missing_lines"]:
        yield f"{where}: lines {' '.join(map(str, file['missing_lines']))}"
    for line, to in file.get("missing_branches", []):
        way = f"to line {to}" if to > 0 else "out of the function"
        yield f"{where}: from line {line} {way}"


def test_gaps_are_named() -> None:
    core = "ledgers/quorum.py"
    (tests,) = CORES[core]
    assert list(gaps_of(core, {"missing_lines": [], "missing_branches": []})) == []
    assert list(gaps_of(core, {})) == [f"{core} by {tests}: never imported"]
    assert list(
        gaps_of(core, {"missing_lines": [3, 9], "missing_branches": [[4, 7], [5, -1]]})
    ) == [
        f"{core} by {tests}: lines 3 9",
        f"{core} by {tests}: from line 4 to line 7",
        f"{core} by {tests}: from line 5 out of the function",
    ]
