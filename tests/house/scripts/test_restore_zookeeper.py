"""The script that restores ZooKeeper, over a kubectl that notes what it is told."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.scripts.kubectl import run_script

KUBECTL = """#!/bin/bash
shift 2 # -n fencelog
echo "$*" | tr '\\n' ' ' | sed 's/ $/\\n/' >> "$PLACE/calls"
case "$*" in
    *spec.replicas*) if [[ -e $PLACE/stopped ]]; then printf 0; else printf 3; fi ;;
    *annotations*) printf 3 ;;
    *args*) printf 'zk://z:1/x?a=b&c=d' ;;
    *secretName*) printf zookeeper-credentials-1 ;;
    *jsonpath*containers*) printf image:1 ;;
    "get pvc"*) if [[ -e $PLACE/volumes-are-gone ]]; then rm "$PLACE/volumes-are-gone"; false; fi ;;
    "create -f -") sed -n 's/^  \\(name\\|generateName\\): /create /p; s/.*claimName: /claim /p
        s/.*secretName: /secret /p; s/^ *- zk:/url zk:/p' \\
        >> "$PLACE/calls"; echo "job.batch/skip-ledger-ids-x created" ;;
    "exec zookeeper-backups"*basename*) echo snapshot.12 ;;
    "exec zookeeper-backups"*sha256sum*) echo good ;;
    *sha256sum*) if [[ -e $PLACE/damaged ]]; then echo bad; else echo good; fi ;;
    "exec zookeeper-backups"*cat*) echo content ;;
    "exec -i zookeeper-restore-0"*) cat > "$PLACE/given" ;;
    "exec zookeeper-backups -- ls"*) echo 2026-11-23T20-15-00Z ;;
esac
"""


def restore(place: Path, *arguments: str) -> tuple[int, str, list[str]]:
    """The exit code, the output, and each call of kubectl."""
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
    assert (tmp_path / "given").read_text("utf-8") == "content\n"
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


def test_a_snapshot_that_arrives_damaged_is_not_started_with(tmp_path: Path) -> None:
    (tmp_path / "damaged").touch()
    code, _, calls = restore(tmp_path, BACKUP)
    assert code != 0
    assert not any("mv /data/new /data/version-2" in call for call in calls)
    assert scaled(calls)[4:] == []
    assert calls[-1].startswith("delete pod")


def test_a_second_run_knows_how_many_there_were(tmp_path: Path) -> None:
    (tmp_path / "stopped").touch()
    code, _, calls = restore(tmp_path, BACKUP)
    assert code == 0
    assert not any(call.startswith("annotate --overwrite") for call in calls)
    assert scaled(calls)[-3:] == ["bookie=3", "autorecovery=3", "broker=3"]


def test_volumes_that_are_gone_are_made_by_the_stateful_set(tmp_path: Path) -> None:
    (tmp_path / "volumes-are-gone").touch()
    code, output, calls = restore(tmp_path, BACKUP)
    assert code == 0, output
    made = ["zookeeper=3", "zookeeper=0"]
    assert scaled(calls)[4:8] == [*made, "zookeeper=2", "zookeeper=3"]
    stopped = calls.index(
        "wait --for=delete pod -l app.kubernetes.io/name in (zookeeper) --timeout=300s"
    )
    assert stopped < place_of(calls, "create zookeeper-restore-0")
