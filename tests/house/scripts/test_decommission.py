"""The script that lets a bookie go, over a kubectl that notes what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fencelog.api.console import EXIT_ERROR
from tests.house.scripts.kubectl import run_script

KUBECTL = """#!/bin/bash
shift 2 # -n fencelog
echo "$*" >> "$PLACE/calls"
case "$*" in
    *spec.replicas*) printf 5 ;;
    *args*) printf '%s' "$METADATA" ;;
    *secretName*) printf '%s' "$CREDENTIALS" ;;
    "get statefulset/bookie"*) printf registry.example.org/fencelog@sha256:12 ;;
    "create -o name -f -") cat > "$PLACE/job"; echo job.batch/decommission-bookie-4-x ;;
    "get job.batch/decommission-bookie-4-x"*)
        if [[ -e $PLACE/looked ]]; then printf '%s' "$OVER"; fi
        touch "$PLACE/looked" ;;
    logs*) echo "what the Job said" ;;
esac
"""


def decommission(
    place: Path,
    over: str = "Complete",
    bookie: str = "bookie-4",
    metadata: str = "zk://z:1/x",
    credentials: str = "",
) -> tuple[int, str, list[str]]:
    """The exit code, the output, and each call of kubectl; ``over``: the conditions of the Job,
    from the second look on."""
    return run_script(
        place,
        KUBECTL,
        "decommission.sh",
        bookie,
        OVER=over,
        METADATA=metadata,
        CREDENTIALS=credentials,
    )


def test_it_ends_when_its_own_job_is_complete(tmp_path: Path) -> None:
    code, output, calls = decommission(tmp_path, "SuccessCriteriaMet Complete")
    assert code == 0
    assert "what the Job said" in output
    looks = [call for call in calls if call.startswith("get job")]
    assert len(looks) == 2
    assert all("decommission-bookie-4-x" in look for look in looks)


def test_a_refusal_ends_it_and_says_why(tmp_path: Path) -> None:
    code, output, _ = decommission(tmp_path, "FailureTarget Failed")
    assert code == 1
    assert "what the Job said" in output
    assert "bookie-4 stays" in output


def test_the_job_has_the_image_that_bookies_run_and_names_the_bookie(tmp_path: Path) -> None:
    decommission(tmp_path)
    job = (tmp_path / "job").read_text("utf-8")
    assert "image: registry.example.org/fencelog@sha256:12\n" in job
    assert "generateName: decommission-bookie-4-\n" in job
    assert "- bookie-4\n" in job
    assert "IMAGE" not in job


def test_the_job_has_the_url_and_the_credentials_that_bookies_have(tmp_path: Path) -> None:
    url = "zk://z:1/x?credentials=/zookeeper/users&session_timeout_ms=6000"
    decommission(tmp_path, metadata=url, credentials="zookeeper-credentials-1")
    job = (tmp_path / "job").read_text("utf-8")
    assert f"- {url}\n" in job
    assert "secretName: zookeeper-credentials-1\n" in job


def test_without_credentials_the_job_waits_for_none(tmp_path: Path) -> None:
    decommission(tmp_path)
    job = (tmp_path / "job").read_text("utf-8")
    assert "- zk://z:1/x\n" in job
    assert "secretName: none\n            optional: true\n" in job


def test_the_job_makes_no_second_attempt_at_what_was_refused_or_cancelled(tmp_path: Path) -> None:
    """That would begin a decommission anew which somebody has cancelled."""
    decommission(tmp_path)
    job = yaml.safe_load((tmp_path / "job").read_text("utf-8"))["spec"]
    on_error = {"operator": "In", "values": [EXIT_ERROR]}
    (rule,) = job["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]) == ("FailJob", on_error)
    assert job["template"]["spec"]["restartPolicy"] == "Never", "which a policy requires"


@pytest.mark.parametrize("bookie", ["bookie-3", "bookie-5", "4"])
def test_only_the_pod_that_goes_first_is_taken_out(tmp_path: Path, bookie: str) -> None:
    code, output, calls = decommission(tmp_path, bookie=bookie)
    assert code == 2
    assert f"the StatefulSet removes bookie-4 first, not {bookie}" in output
    assert not any(call.startswith("create") for call in calls)
