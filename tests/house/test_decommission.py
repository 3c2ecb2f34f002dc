"""The script that lets a bookie go, over a kubectl that notes what it is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.house import ROOT

KUBECTL = """#!/bin/bash
shift 2 # -n fencelog
echo "$*" >> "$PLACE/calls"
case "$*" in
    "get statefulset/bookie"*) printf registry.example.org/fencelog@sha256:12 ;;
    "create -o name -f -") cat > "$PLACE/job"; echo job.batch/decommission-bookie-4-x ;;
    "get job.batch/decommission-bookie-4-x"*)
        if [[ -e $PLACE/looked ]]; then printf '%s' "$OVER"; fi
        touch "$PLACE/looked" ;;
    logs*) echo "what the Job said" ;;
esac
"""


def decommission(place: Path, over: str) -> tuple[int, str, str, list[str]]:
    """The exit code, both outputs, and each call of kubectl; ``over``: the conditions of the Job,
    from the second look on."""
    programs = place / "bin"
    programs.mkdir()
    for name, text in (("kubectl", KUBECTL), ("sleep", "#!/bin/bash\n")):
        (programs / name).write_text(text, "utf-8")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "k8s/decommission.sh", "bookie-4"],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "PLACE": str(place), "OVER": over},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr, (place / "calls").read_text().splitlines()


def test_it_ends_when_its_own_job_is_complete(tmp_path: Path) -> None:
    code, output, _, calls = decommission(tmp_path, "SuccessCriteriaMet Complete")
    assert code == 0
    assert "what the Job said" in output
    looks = [call for call in calls if call.startswith("get job")]
    assert len(looks) == 2
    assert all("decommission-bookie-4-x" in look for look in looks)


def test_a_refusal_ends_it_and_says_why(tmp_path: Path) -> None:
    code, output, error, _ = decommission(tmp_path, "FailureTarget Failed")
    assert code == 1
    assert "what the Job said" in output
    assert "bookie-4 stays" in error


def test_the_job_has_the_image_that_bookies_run_and_names_the_bookie(tmp_path: Path) -> None:
    decommission(tmp_path, "Complete")
    job = (tmp_path / "job").read_text("utf-8")
    assert "image: registry.example.org/fencelog@sha256:12\n" in job
    assert "generateName: decommission-bookie-4-\n" in job
    assert "- bookie-4\n" in job
    assert "IMAGE" not in job
