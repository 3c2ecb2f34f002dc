"""What an installation is said to be: ready, and of how many bookies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.processes.k8s.cluster import Cluster
from tests.processes.k8s.installation import PROD, Installation
from tests.support.house import ROOT


class Workloads:
    """A cluster with these workloads."""

    def __init__(self, place: Path, *found: dict[str, Any]) -> None:
        self.place = place
        self._found = found

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        return list(self._found)


def installation(place: Path, *found: dict[str, Any], kind: str = "") -> Installation:
    return Installation(cast("Cluster", Workloads(place, *found)), place, kind=kind)


def workload(wanted: int, **status: int) -> dict[str, Any]:
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), wanted)
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": wanted},
        "status": {"observedGeneration": 2, **counts, **status},
    }


def test_it_is_ready_when_every_workload_has_the_pods_that_it_wants(tmp_path: Path) -> None:
    assert installation(tmp_path, workload(3), workload(1)).is_ready()


@pytest.mark.parametrize(
    "found",
    [
        workload(3, readyReplicas=2),
        workload(3, updatedReplicas=1),
        workload(3, replicas=4),
        workload(3, observedGeneration=1),
        workload(0),
    ],
)
def test_it_is_not_ready_otherwise_and_nothing_is_no_workload(
    tmp_path: Path, found: dict[str, Any]
) -> None:
    assert not installation(tmp_path, workload(3), found).is_ready()
    assert not installation(tmp_path).is_ready()


def test_the_number_of_bookies_is_that_of_the_overlay(tmp_path: Path) -> None:
    found = installation(tmp_path)
    found.overlay.mkdir()
    for number in (5, 4):
        found.set_bookies(number)
        overlay = yaml.safe_load((found.overlay / "kustomization.yaml").read_text("utf-8"))
        assert overlay["replicas"] == [{"name": "bookie", "count": number}]


def test_an_installation_of_prod_has_the_images_of_the_test_and_the_bookies_of_prod(
    tmp_path: Path,
) -> None:
    found = installation(tmp_path, kind=PROD)
    found.overlay.mkdir()
    found.set_tag("0.1.1")
    overlay = yaml.safe_load((found.overlay / "kustomization.yaml").read_text("utf-8"))
    assert overlay["resources"] == ["../k8s/overlays/prod"]
    assert "replicas" not in overlay
    written = yaml.safe_load((ROOT / "k8s/overlays/prod/kustomization.yaml").read_text("utf-8"))
    (named,) = [each["newName"] for each in written["images"]]
    assert {"name": named, "newName": named, "newTag": "0.1.1"} in overlay["images"]
