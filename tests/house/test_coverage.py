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
from house import PACKAGES

CORES = {
    "ledgers/availability.py": ["tests/ledgers/test_availability.py"],
    "ledgers/digest.py": ["tests/ledgers/test_run.py"],
    "ledgers/entry_header.py": ["tests/ledgers/test_entry_header.py"],
    "ledgers/entry_list.py": ["tests/ledgers/test_entry_list.py"],
    "ledgers/metadata.py": ["tests/ledgers/test_metadata.py"],
    "ledgers/placement_core.py": ["tests/ledgers/test_placement_core.py"],
    "ledgers/quorum.py": ["tests/properties/test_quorum.py"],
    "ledgers/reader_core.py": ["tests/ledgers/test_reader_core.py"],
    "ledgers/recovery_core.py": ["tests/ledgers/test_recovery_core.py"],
    "ledgers/recovery_machine.py": ["tests/ledgers/test_recovery_machine.py"],
    "ledgers/run.py": ["tests/ledgers/test_run.py"],
    "ledgers/run_batching.py": ["tests/ledgers/test_run_batching.py"],
    "ledgers/transitions.py": ["tests/ledgers/test_transitions.py"],
    "ledgers/wire.py": ["tests/ledgers/test_wire.py"],
    "ledgers/writer_core.py": ["tests/ledgers/test_writer_core.py"],
    "bookie/disk_room.py": ["tests/bookie/test_disk_watch.py"],
    "bookie/read_cache.py": ["tests/bookie/test_read_cache.py"],
    "bookie/cookies.py": ["tests/bookie/test_cookies_core.py"],
    "bookie/cookies_core.py": ["tests/bookie/test_cookies_core.py"],
    "bookie/control_records.py": ["tests/bookie/test_control_records.py"],
    "bookie/integrity_core.py": ["tests/bookie/test_integrity_core.py"],
    "bookie/garbage_core.py": ["tests/bookie/test_garbage_core.py"],
    "bookie/ledger_state.py": ["tests/bookie/test_ledger_state.py"],
    "bookie/records.py": ["tests/bookie/test_records.py"],
    "bookie/runs.py": ["tests/bookie/test_runs.py"],
    "broker/balance_core.py": ["tests/broker/test_balance_core.py"],
    "broker/ack_ranges.py": ["tests/broker/test_ack_ranges.py"],
    "broker/cursor_core.py": ["tests/broker/test_cursor_core.py"],
    "broker/dispatch_base.py": ["tests/broker/test_dispatch.py"],
    "broker/dispatch_consumers.py": ["tests/broker/test_dispatch_leases.py"],
    "broker/dispatch_key_shared.py": ["tests/broker/test_dispatch.py"],
    "broker/dispatch_leases.py": ["tests/broker/test_dispatch_leases.py"],
    "broker/dispatch_offsets.py": ["tests/broker/test_dispatch_leases.py"],
    "broker/dispatch_ordered.py": ["tests/broker/test_dispatch.py"],
    "broker/dispatch_shared.py": ["tests/broker/test_dispatch.py"],
    "broker/subscription_ack_id.py": ["tests/broker/test_subscription_config.py"],
    "broker/subscription_config.py": ["tests/broker/test_subscription_config.py"],
    "broker/chain.py": ["tests/broker/test_chain.py"],
    "broker/chain_codec.py": ["tests/broker/test_chain.py"],
    "broker/compacted_entry.py": ["tests/broker/test_compaction_core.py"],
    "broker/compaction_core.py": ["tests/broker/test_compaction_core.py"],
    "broker/load.py": ["tests/broker/test_load.py"],
    "broker/pending.py": ["tests/broker/test_pending.py"],
    "broker/policy.py": ["tests/broker/test_policy.py"],
    "broker/retention_core.py": ["tests/broker/test_retention_core.py"],
    "broker/backlog_core.py": ["tests/broker/test_backlog_core.py"],
    "broker/state_core.py": ["tests/broker/test_state_core.py"],
    "broker/sweep_core.py": ["tests/broker/test_sweep_core.py"],
    "broker/append_terms.py": ["tests/broker/test_producer_table.py"],
    "broker/producer_access.py": ["tests/broker/test_producer_access.py"],
    "broker/producer_table.py": ["tests/broker/test_producer_table.py"],
    "broker/time_index.py": ["tests/broker/test_time_index.py"],
}
"""Every core, and the tests that have to try all of it."""


def test_every_core_is_in_the_list(root: Path) -> None:
    """A core that was renamed, or that came to be, is put down here."""
    in_the_tree = {
        file.relative_to(root).as_posix()
        for package in PACKAGES
        for file in (root / package).glob("*_core.py")
    }
    assert in_the_tree <= CORES.keys()
    files = {*CORES, *(test for tests in CORES.values() for test in tests)}
    assert [file for file in sorted(files) if not (root / file).is_file()] == []


@pytest.mark.timeout(900)
def test_every_core_is_tried_completely(root: Path, tmp_path: Path) -> None:
    measured = measure(root, tmp_path)
    gaps = [gap for core in CORES for gap in gaps_of(core, measured.get(core, {}))]
    assert gaps == [], "\n" + "\n".join(gaps)


def measure(root: Path, folder: Path) -> dict[str, Any]:
    """What coverage says of each core after the tests of all of them, by path. Examples are drawn
    from a fixed seed, so that what is tried does not change from run to run."""
    tests = sorted({test for tests in CORES.values() for test in tests})
    coverage = [sys.executable, "-m", "coverage"]
    run = [*coverage, "run", "--branch", f"--include={','.join(CORES)}"]
    pytest_run = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests]
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
    """What the tests of a core leave out, in words; an unmeasured core leaves out everything."""
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
