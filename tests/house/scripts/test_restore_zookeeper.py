"""The script that restores ZooKeeper, over a kubectl that notes what it is told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.house.scripts.kubectl import run_script
from tests.support.house import ROOT

KUBECTL = """#!/bin/bash
shift 2 # -n fencelog
echo "$*" | tr '\\n' ' ' | sed 's/ $/\\n/' >> "$PLACE/calls"
case "$*" in
    *spec.replicas*) cat "$PLACE/replicas/$2" ;;
    *annotations*) cat "$PLACE/notes/$2" ;;
    "annotate --overwrite"*) printf "${4#*=}" > "$PLACE/notes/$3" ;;
    annotate*) : > "$PLACE/notes/$2" ;;
    scale*) printf "${3#*=}" > "$PLACE/replicas/$2"
        if [[ $2 == */zookeeper && $3 != *=0 && ! -e $PLACE/no-volumes ]]; then
            rm -rf "$PLACE/lost"
        fi ;;
    *args*) printf 'zk://z:1/x?a=b&c=d' ;;
    *secretName*) printf zookeeper-credentials-1 ;;
    *jsonpath*containers*) printf image:1 ;;
    "get pvc data-zookeeper-"*)
        for claim in $3 $4; do
            [[ -e $PLACE/lost/${3##*-}/${claim%%-*} ]] || echo "persistentvolumeclaim/$claim"
        done ;;
    "create -f -") sed -n 's/^  \\(name\\|generateName\\): /create /p; s/.*claimName: /claim /p
        s/.*secretName: /secret /p; s/^ *- zk:/url zk:/p' \\
        >> "$PLACE/calls"; echo "job.batch/skip-ledger-ids-x created" ;;
    "exec zookeeper-backups"*basename*) echo snapshot.12 ;;
    "exec zookeeper-backups"*sha256sum*) echo good ;;
    *sha256sum*) if [[ -e $PLACE/damaged ]]; then echo bad; else echo good; fi ;;
    "exec zookeeper-backups"*cat*) echo content ;;
    "exec -i zookeeper-restore-0"*) bash -euc "${7//\\/data/$PLACE/data}" "$8" ;;
    "rollout status"*) [[ ! -e $PLACE/late/$3 ]] ;;
    "get cronjob zookeeper-backup --ignore-not-found -o name")
        [[ -e $PLACE/no-cronjob ]] || echo cronjob.batch/zookeeper-backup ;;
    "patch cronjob"*) [[ ! -e $PLACE/no-cronjob ]] ;;
    "get pods"*) printf 'x-0 1/1 Running 0 1m\\nx-1 0/1 CrashLoopBackOff 5 1m\\n' ;;
    "wait --for=condition=complete"*) [[ ! -e $PLACE/no-ids ]] ;;
    "exec zookeeper-backups -- ls"*) echo 2026-11-23T20-15-00Z ;;
esac
"""


ROLES = ("deployment/broker", "deployment/autorecovery", "statefulset/bookie")
ZOOKEEPER = "statefulset/zookeeper"


def restore(place: Path, *arguments: str, zookeeper: int = 3) -> tuple[int, str, list[str]]:
    """The exit code, the output, and each call of kubectl. ``zookeeper``: its servers that run now;
    of the others there are three each. What a run before has noted stays."""
    for folder in ("replicas", "notes"):
        for workload in (*ROLES, ZOOKEEPER):
            (place / folder / workload).parent.mkdir(parents=True, exist_ok=True)
            (place / folder / workload).touch()
    for workload in (*ROLES, ZOOKEEPER):
        running = zookeeper if workload == ZOOKEEPER else 3
        (place / "replicas" / workload).write_text(str(running), "utf-8")
    (place / "data").mkdir(exist_ok=True)
    return run_script(place, KUBECTL, "restore_zookeeper.sh", *arguments)


BACKUP = "2026-11-23T20-15-00Z"


def scaled(calls: list[str]) -> list[str]:
    """What was scaled, in order: workload=replicas."""
    found = (re.match(r"scale \w+/(\w+) --replicas=(\d+)", call) for call in calls)
    return [f"{match[1]}={match[2]}" for match in found if match]


def place_of(calls: list[str], begins: str) -> int:
    return next(index for index, call in enumerate(calls) if call.startswith(begins))


def test_without_a_name_backups_are_listed_and_nothing_is_changed(tmp_path: Path) -> None:
    code, output, calls = restore(tmp_path)
    assert code == 0
    assert BACKUP in output
    assert scaled(calls) == []
    assert not any(call.startswith(("annotate", "patch")) for call in calls)
    assert calls[-1].startswith("delete pod")


def test_all_stop_before_and_start_after(tmp_path: Path) -> None:
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 0, output
    assert scaled(calls) == [
        *("broker=0", "autorecovery=0", "bookie=0", "zookeeper=0"),
        # Two servers: no quorum without the one that has the backup.
        *("zookeeper=2", "zookeeper=3"),
        *("bookie=3", "autorecovery=3", "broker=3"),
    ]
    assert (tmp_path / "data/new/snapshot.12").read_text("utf-8") == "content\n"
    stopped = place_of(calls, "wait --for=delete pod -l app.kubernetes.io/name in (broker, ")
    first = place_of(calls, "create zookeeper-restore-0")
    starts = place_of(calls, "scale statefulset/zookeeper --replicas=2")
    assert stopped < first < starts
    for server in range(3):
        assert f"claim data-zookeeper-{server}" in calls
        assert f"claim log-zookeeper-{server}" in calls
    assert sum("before-$now" in call for call in calls) == 3, "nothing is removed"


def test_ids_are_skipped_with_the_url_and_the_credentials_of_brokers(tmp_path: Path) -> None:
    _, _, calls = restore(tmp_path, BACKUP)
    job = calls.index("create skip-ledger-ids-")
    assert calls[job + 1 : job + 3] == ["url zk://z:1/x?a=b&c=d", "secret zookeeper-credentials-1"]


def test_ids_are_skipped_before_a_bookie_starts(tmp_path: Path) -> None:
    _, _, calls = restore(tmp_path, BACKUP)
    skipped = place_of(calls, "wait --for=condition=complete --timeout=300s job.batch/skip-ledger")
    assert calls.index("create skip-ledger-ids-") < skipped
    assert skipped < place_of(calls, "scale statefulset/bookie --replicas=3")


def test_no_backup_is_made_meanwhile(tmp_path: Path) -> None:
    _, _, calls = restore(tmp_path, BACKUP)
    patches = [call for call in calls if call.startswith("patch cronjob zookeeper-backup")]
    assert [re.search(r"suspend\W+(\w+)", call)[1] for call in patches] == ["true", "false"]  # type: ignore[index]  # all match
    assert calls.index(patches[0]) < place_of(calls, "scale")


def test_a_volume_of_backups_is_enough(tmp_path: Path) -> None:
    """It is kept where the component was removed, which would make another backup."""
    (tmp_path / "no-cronjob").touch()
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 0, output
    assert scaled(calls)[-3:] == ["bookie=3", "autorecovery=3", "broker=3"]
    assert not any(call.startswith("patch") for call in calls)


def test_a_snapshot_that_arrives_damaged_is_not_started_with(tmp_path: Path) -> None:
    (tmp_path / "damaged").touch()
    code, _, calls = restore(tmp_path, BACKUP)
    assert code != 0
    assert not any("mv /data/new /data/version-2" in call for call in calls)
    assert scaled(calls)[4:] == []
    assert calls[-1].startswith("delete pod")


@pytest.mark.parametrize("left", [0, 2, 3])
def test_a_second_run_knows_how_many_there_were(tmp_path: Path, left: int) -> None:
    (tmp_path / "notes" / ZOOKEEPER).parent.mkdir(parents=True)
    (tmp_path / "notes" / ZOOKEEPER).write_text("3", "utf-8")
    (tmp_path / "data/new").mkdir(parents=True)
    (tmp_path / "data/new/snapshot.11").touch()  # The first run ended while this was copied.
    code, output, calls = restore(tmp_path, BACKUP, zookeeper=left)
    assert code == 0, output
    noted = [call for call in calls if call.startswith(f"annotate --overwrite {ZOOKEEPER} ")]
    assert noted == [f"annotate --overwrite {ZOOKEEPER} fencelog.io/replicas=3"]
    assert "claim data-zookeeper-2" in calls
    assert scaled(calls)[-4:] == ["zookeeper=3", "bookie=3", "autorecovery=3", "broker=3"]
    assert [path.name for path in (tmp_path / "data/new").iterdir()] == ["snapshot.12"]
    assert {path.read_text("utf-8") for path in (tmp_path / "notes").glob("*/*")} == {""}


def test_a_note_that_is_too_low_is_one_of_another_time(tmp_path: Path) -> None:
    (tmp_path / "notes" / ZOOKEEPER).parent.mkdir(parents=True)
    (tmp_path / "notes" / ZOOKEEPER).write_text("3", "utf-8")
    _, _, calls = restore(tmp_path, BACKUP, zookeeper=5)
    assert "claim data-zookeeper-4" in calls
    assert scaled(calls)[4:6] == ["zookeeper=3", "zookeeper=5"]


def test_a_note_that_is_too_high_is_one_of_another_time(tmp_path: Path) -> None:
    for workload in (ROLES[2], ZOOKEEPER):
        (tmp_path / "notes" / workload).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notes" / workload).write_text("7", "utf-8")
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 0, output
    assert scaled(calls)[4:7] == ["zookeeper=2", "zookeeper=3", "bookie=3"]


def never_ready(place: Path, *workloads: str) -> None:
    """Have a pod of these workloads that does not get ready."""
    for workload in workloads:
        (place / "late" / workload).parent.mkdir(parents=True, exist_ok=True)
        (place / "late" / workload).touch()


def test_all_are_started_before_any_is_waited_for_and_none_for_ever(tmp_path: Path) -> None:
    _, _, calls = restore(tmp_path, BACKUP)
    waits = [n for n, call in enumerate(calls) if call.startswith("rollout status")]
    assert all(re.search(r" --timeout=\d+s$", calls[n]) for n in waits)
    # The first one is for the quorum, which is needed for all that follows.
    assert place_of(calls, "scale deployment/broker --replicas=3") < waits[1]
    assert len(waits) == 5


@pytest.mark.parametrize("late", [(ROLES[2],), (ROLES[1], ROLES[0])])
def test_a_pod_that_never_gets_ready_is_named_and_the_rest_goes_on(
    tmp_path: Path, late: tuple[str, ...]
) -> None:
    never_ready(tmp_path, *late)
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 1
    assert scaled(calls)[-3:] == ["bookie=3", "autorecovery=3", "broker=3"]
    assert {path.read_text("utf-8") for path in (tmp_path / "notes").glob("*/*")} == {""}
    assert any(re.search(r"patch cronjob .*suspend\W+false", call) for call in calls)
    for workload in (*ROLES, ZOOKEEPER):
        assert (f"{workload} is not ready after" in output) is (workload in late)
    assert "x-1 0/1 CrashLoopBackOff" in output
    assert "x-0" not in output
    last = output.splitlines()[-1]
    # In the order in which they are waited for, which is that of starting.
    assert f"is not ready in {' '.join(late)}: do not run this again" in last
    (title,) = re.findall(r'"(.*)"', last)
    assert f"**{title}**" in (ROOT / "k8s/OPERATIONS.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("fault", "said"),
    [(f"late/{ZOOKEEPER}", "ZooKeeper has no quorum"), ("no-ids", "No ids were skipped")],
)
def test_nothing_is_started_without_a_quorum_or_before_ids_are_skipped(
    tmp_path: Path, fault: str, said: str
) -> None:
    (tmp_path / fault).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / fault).touch()
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 1
    assert said in output
    assert "run this again" in output
    assert not any(re.match(r"(bookie|autorecovery|broker)=[1-9]", each) for each in scaled(calls))
    # The next run has to know how many there were.
    assert (tmp_path / "notes" / ROLES[2]).read_text("utf-8") == "3"


def lose(place: Path, *servers: int, claims: Sequence[str] = ("data", "log")) -> None:
    """Have these servers of ZooKeeper without these claims."""
    for server in servers:
        (place / "lost" / str(server)).mkdir(parents=True)
        for claim in claims:
            (place / "lost" / str(server) / claim).touch()


@pytest.mark.parametrize("claim", ["data", "log"])
def test_nothing_is_stopped_where_a_server_has_one_of_its_two_volumes(
    tmp_path: Path, claim: str
) -> None:
    lose(tmp_path, 1, claims=[claim])
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 1
    other = {"data": "log", "log": "data"}[claim]
    assert f"zookeeper-1 has only persistentvolumeclaim/{other}-zookeeper-1" in output
    assert scaled(calls) == []


def test_nothing_is_stopped_that_nobody_could_start_again(tmp_path: Path) -> None:
    code, output, calls = restore(tmp_path, BACKUP, zookeeper=0)
    assert code == 1
    assert f"{ZOOKEEPER} has no pods, and nothing says how many" in output
    assert scaled(calls) == []
    assert not any(call.startswith(("annotate", "patch")) for call in calls)
    assert calls[-1].startswith("delete pod")


@pytest.mark.parametrize("lost", [(0, 1, 2), (0, 1), (2,)])
def test_volumes_that_are_gone_are_made_by_the_stateful_set(
    tmp_path: Path, lost: tuple[int, ...]
) -> None:
    lose(tmp_path, *lost)
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 0, output
    made = ["zookeeper=3", "zookeeper=0"]
    assert scaled(calls)[4:8] == [*made, "zookeeper=2", "zookeeper=3"]
    stopped = calls.index(
        "wait --for=delete pod -l app.kubernetes.io/name in (zookeeper) --timeout=300s"
    )
    # What others have is out of the way by then, or they would follow those that have nothing.
    begun = calls.index("scale statefulset/zookeeper --replicas=3")
    for server in range(3):
        aside = place_of(calls, f"exec zookeeper-restore-{server} -- bash -euc now=")
        assert (aside < begun) is (server not in lost)
    again = [n for n, call in enumerate(calls) if call == "create zookeeper-restore-0"]
    assert stopped < again[-1]
    assert sum("before-$now" in call for call in calls) == 3 + 3 - len(lost)


def test_volumes_that_are_not_made_are_not_waited_for_for_ever(tmp_path: Path) -> None:
    lose(tmp_path, 1)
    (tmp_path / "no-volumes").touch()
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 1
    assert "zookeeper-1 has no two volumes after 300 s" in output
    assert "run this again" in output
    assert sum(call.startswith("get pvc data-zookeeper-1 ") for call in calls) == 1 + 60
    assert scaled(calls)[4:] == ["zookeeper=3"]  # nothing that would use ZooKeeper
    assert calls[-1].startswith("delete pod")
    # The next run has to know how many there were.
    assert (tmp_path / "notes" / ROLES[2]).read_text("utf-8") == "3"


def test_a_run_after_volumes_were_not_made_goes_on(tmp_path: Path) -> None:
    lose(tmp_path, 1)
    for workload in (*ROLES, ZOOKEEPER):
        (tmp_path / "notes" / workload).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notes" / workload).write_text("3", "utf-8")
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 0, output
    assert scaled(calls)[-3:] == ["bookie=3", "autorecovery=3", "broker=3"]
