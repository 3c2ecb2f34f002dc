"""The drill of cuts at a small size, in a network of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fencelog_cli import complaint, fencelog

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.mark.thorough
@pytest.mark.timeout(120)
def test_an_owner_that_is_cut_off() -> None:
    done = fencelog("drill", "partition", "--session-ms", "1000", "--json", timeout_s=110)
    if done.returncode == 1 and b"cannot make a" in done.stderr:
        pytest.skip(complaint(done))
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    assert report["acknowledged"] > 0
    cuts = [note for note in report["notes"] if "cut off from" in note]
    assert len(cuts) == 5


def test_a_machine_without_namespaces_has_no_network_to_cut(tmp_path: Path) -> None:
    done = fencelog("drill", "partition", env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert complaint(done) == "cannot make a user and network namespace: there is no unshare here"
