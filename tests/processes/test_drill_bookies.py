"""The drills of bookies at a small size, with real processes."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from fencelog.ledgers.limits import SOURCE_REST_MS
from tests.support.fencelog_cli import complaint, fencelog

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

NO_NAMESPACES = "cannot make a user and mount namespace"


def drill(*arguments: str, timeout_s: float = 200) -> dict[str, Any]:
    """The report of a drill that was clean; its figures are those of the smallest disaster."""
    done = fencelog("drill", *arguments, "--json", timeout_s=timeout_s)
    if done.returncode == 1 and NO_NAMESPACES.encode() in done.stderr:
        pytest.skip(complaint(done))
    assert done.stdout, done.stderr.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["drill"] == arguments[0]
    assert report["acknowledged"] > 0
    assert report["own_copies_read"] > report["acknowledged"]
    for disaster in (
        "lost",
        "duplicated",
        "out_of_order",
        "foreign",
        "different",
        "wrong_negatives",
    ):
        assert report[disaster] == 0, disaster
    return report


def test_bookies_that_are_killed_keep_what_they_acknowledged() -> None:
    report = drill("kill-bookie", "--times", "3")
    assert report["restarts"] == 3
    assert report["slowest_restart_ms"] > 0
    assert report["own_copies_unknown"] == 0


@pytest.mark.thorough
def test_a_bookie_that_stands_still_comes_back() -> None:
    report = drill("pause-bookie", "--times", "1")
    assert report["pauses"] == 1
    assert report["least_acknowledged_in_a_pause"] > 0
    assert report["own_copies_unknown"] == 0


@pytest.mark.thorough
def test_a_bookie_whose_disk_is_full_serves_on_and_comes_back() -> None:
    report = drill("full-disk")
    assert report["acknowledged_while_full"] > 0
    assert report["own_copies_read_while_full"] > 0
    assert report["acknowledged_again"] > 0
    assert report["own_copies_unknown"] == 0


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_service_whose_only_disk_is_full_starts_on_it_and_goes_on_after_a_deletion() -> None:
    done = fencelog("drill", "full-standalone", "--json", timeout_s=580)
    if done.returncode == 1 and NO_NAMESPACES.encode() in done.stderr:
        pytest.skip(complaint(done))
    assert done.stdout, done.stderr.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["acknowledged"] > 100
    assert report["lost"] == report["duplicated"] == report["out_of_order"] == 0
    assert any("out_of_space" in note for note in report["notes"])


def test_a_bookie_that_lost_its_disk_has_everything_again() -> None:
    report = drill("lose-bookie-disk", "--session-ms", "1500")
    assert report["disks_lost"] == 1
    assert report["slowest_repair_s"] is not None


def test_a_machine_without_namespaces_has_no_small_disk() -> None:
    done = fencelog("drill", "full-disk", env={**os.environ, "PATH": "/nowhere"})
    assert done.returncode == 1
    assert complaint(done) == f"{NO_NAMESPACES}: there is no unshare here"


@pytest.mark.thorough
def test_a_lost_bookie_s_copies_are_made_elsewhere() -> None:
    report = drill("lose-bookie", timeout_s=200)
    assert report["rereplicated_bytes"] > 0
    assert (report["violations"], report["unverified_ledgers"]) == (0, 0)
    assert report["own_copies_read"] >= 3 * report["acknowledged"]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_two_bookies_are_lost_one_after_the_other() -> None:
    report = drill("two-lost", timeout_s=500)
    assert report["healed_s_bookie-1"] is not None
    assert report["healed_s_bookie-2"] is not None
    assert (report["violations"], report["unverified_ledgers"]) == (0, 0)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_zone_is_lost_and_comes_back() -> None:
    report = drill("lose-zone", timeout_s=500)
    zones = [report[name] for name in ("zones_before", "zones_without_it", "zones_of_a_new_ledger")]
    assert zones == [3, 2, 3]
    assert report["copies_acknowledged_without_it"] > 0
    assert (report["violations"], report["unverified_ledgers"]) == (0, 0)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_stuck_repair_says_why_and_goes_on() -> None:
    report = drill("stuck-repair", timeout_s=500)
    assert report["entries_named"] == 500
    assert report["went_on_s"] is not None
    assert report["went_on_with_a_copy_s"] < SOURCE_REST_MS / 1000
    assert (report["violations"], report["unverified_ledgers"]) == (0, 0)


@pytest.mark.thorough
def test_a_bookie_leaves_while_it_runs() -> None:
    report = drill("decommission", timeout_s=200)
    assert report["drained_s"] <= report["removed_s"]
    assert report["violations"] == 0


@pytest.mark.thorough
def test_bookies_that_are_added_get_their_share() -> None:
    report = drill("add-bookies", timeout_s=200)
    assert report["distance_before"] > 1 > 0.1 >= report["distance_after"]
    assert report["moved_fragments"] >= 36
    assert (report["dropped_moves"], report["violations"], report["unverified_ledgers"]) == (
        0,
        0,
        0,
    )


@pytest.mark.thorough
def test_a_rolling_restart_of_bookies_copies_no_more_than_was_in_flight() -> None:
    report = drill("rolling-restart", "--bookies", timeout_s=200)
    assert (report["lost_bookie_marks"], report["violations"]) == (0, 0)
    assert report["copied_entries"] <= report["most_in_flight"] < report["acknowledged"]
