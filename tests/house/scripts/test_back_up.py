"""The script that backs ZooKeeper up, over an observer that keeps what it is told to."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.house import ROOT

SCRIPT = ROOT / "k8s/components/backup/back_up.sh"

OBSERVER = """#!/bin/bash
place=${2%/zoo.cfg}/data/version-2
mkdir "$place"
touch -d 2001-01-01 "$place/snapshot.0"
echo contents > "$place/new"
mv "$place/new" "$place/snapshot.$NEWEST"
exec tail -f /dev/null
"""
SAYS = 'says() { if [[ -e $place/data/version-2/snapshot.$NEWEST ]]; then echo "$ANSWER"; fi; }'
SERVED = "Mode: observer\nNode count: 42"

CONFIGURATION = """dataDir=/data
dataLogDir=/datalog
clientPort=2181
tickTime=1000
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPort=2281
ssl.keyStore.location=/etc/zookeeper/server.pem
ssl.trustStore.type=PEM
ssl.clientAuth=none
4lw.commands.whitelist=srvr,ruok,mntr
metricsProvider.httpPort=7000
server.1=zookeeper-0.zookeeper-peers:2888:3888
"""


FULL = """#!/bin/bash
for last; do :; done
held=("${last%/.20*}"/20*)
if [[ -e ${held[FITS]} ]]; then
    echo part > "$last/snapshot.12"
    echo "No space left on device" >&2
    exit 1
fi
exec /bin/cp "$@"
"""
"""Takes the place of ``cp`` on a volume where so many backups fit beside the new one."""


def back_up(
    place: Path, *, kept: int = 96, says: str = SERVED, newest: str = "12", free: int = 0
) -> tuple[int, str]:
    """Run the script with its folders in this place, and an observer that answers so; return the
    exit code and what was printed."""
    programs = place / "bin"
    programs.mkdir(exist_ok=True)
    for program, code in (
        ("zkServer.sh", OBSERVER),
        ("sleep", "#!/bin/bash\nexec /bin/sleep 0.05\n"),
        ("df", f"#!/bin/bash\necho Avail; echo {free}\n"),
    ):
        (programs / program).write_text(code, "utf-8")
        (programs / program).chmod(0o755)
    (place / "backup").mkdir(exist_ok=True)
    (place / "zoo.cfg").write_text(CONFIGURATION, "utf-8")
    text = SCRIPT.read_text("utf-8")
    for path, there in (
        ("/conf/zoo.cfg", "zoo.cfg"),
        ("/backup", "backup"),
        ("/tmp/observer", "observer"),
    ):
        text = text.replace(path, str(place / there))
    (line,) = re.findall(r"^says\(\).*$", text, re.MULTILINE)
    text = text.replace(line, SAYS)
    done = subprocess.run(
        ["bash", "-c", text],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            **{"KEPT_BACKUPS": str(kept), "ANSWER": says, "NEWEST": newest},
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def names(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "backup").iterdir() if path.name != ".lock")


def test_the_snapshot_that_was_sent_is_kept_and_named_by_the_time(tmp_path: Path) -> None:
    code, output = back_up(tmp_path)
    assert code == 0, output
    (name,) = names(tmp_path)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d-\d\d-\d\dZ", name)
    assert f"backup {name}: snapshot.12, 9 bytes" in output
    assert [path.name for path in (tmp_path / "backup" / name).iterdir()] == ["snapshot.12"]


def test_the_oldest_go_and_what_was_interrupted(tmp_path: Path) -> None:
    old = ["2001-11-22T00-00-00Z", "2001-11-23T00-00-00Z", "2001-11-24T00-00-00Z"]
    for name in (*old, ".2001-11-24T00-15-00Z", "lost+found"):
        (tmp_path / "backup" / name).mkdir(parents=True)
    code, output = back_up(tmp_path, kept=2)
    assert code == 0, output
    assert names(tmp_path)[:1] == old[2:]
    assert names(tmp_path)[2:] == ["lost+found"]
    assert output.count("removed ") == 2


def fill(place: Path, *old: str, fits: int) -> None:
    """Have these backups, on a volume where so many fit beside the new one."""
    for name in old:
        (place / "backup" / name).mkdir(parents=True)
        (place / "backup" / name / "snapshot.1").touch()
    (place / "bin").mkdir()
    (place / "bin/cp").write_text(FULL.replace("FITS", str(fits)), "utf-8")
    (place / "bin/cp").chmod(0o755)


OLD = ("2001-11-22T00-00-00Z", "2001-11-23T00-00-00Z", "2001-11-24T00-00-00Z")


def test_the_oldest_go_before_the_new_one_is_written(tmp_path: Path) -> None:
    fill(tmp_path, *OLD, fits=2)
    code, output = back_up(tmp_path, kept=3, free=10**9)
    assert code == 0, output
    assert names(tmp_path)[:2] == [*OLD[1:]]
    assert len(names(tmp_path)) == 3
    assert "No space" not in output


def test_on_a_full_volume_the_oldest_makes_space(tmp_path: Path) -> None:
    fill(tmp_path, *OLD, fits=2)
    code, output = back_up(tmp_path)
    assert code == 0, output
    assert names(tmp_path)[:2] == [*OLD[1:]]
    assert "the volume is full: it holds fewer than 96 backups" in output
    (new,) = names(tmp_path)[2:]
    assert (tmp_path / "backup" / new / "snapshot.12").read_text("utf-8") == "contents\n"


@pytest.mark.parametrize(
    ("old", "left", "free"),
    [
        (
            OLD,
            OLD[1:],
            0,
        ),  # One at a time: what has no space then has it a quarter of an hour later.
        (OLD[:1], OLD[:1], 0),  # The last one.
        (OLD, OLD, 10**9),  # It is not the space.
    ],
)
def test_where_a_backup_fails_no_part_of_it_is_left_and_one_is_always_kept(
    tmp_path: Path, old: tuple[str, ...], left: tuple[str, ...], free: int
) -> None:
    fill(tmp_path, *old, fits=0)
    code, output = back_up(tmp_path, kept=96, free=free)
    assert code != 0
    assert names(tmp_path) == [*left]
    assert "No space left" in output


def test_the_only_one_that_is_to_be_kept_goes_when_there_is_another(tmp_path: Path) -> None:
    fill(tmp_path, *OLD[:1], fits=1)
    code, output = back_up(tmp_path, kept=1)
    assert code == 0, output
    (name,) = names(tmp_path)
    assert name not in OLD


def test_nothing_is_kept_of_an_empty_zookeeper(tmp_path: Path) -> None:
    code, output = back_up(tmp_path, says="Mode: observer\nNode count: 5")
    assert code != 0
    assert "ZooKeeper is empty: no backup" in output
    assert names(tmp_path) == []


def test_an_observer_that_was_sent_nothing_is_an_error(tmp_path: Path) -> None:
    code, _ = back_up(tmp_path, newest="0")
    assert code != 0
    assert names(tmp_path) == []


def test_the_observer_is_one_of_the_servers_without_what_they_have_for_clients(
    tmp_path: Path,
) -> None:
    back_up(tmp_path)
    assert (tmp_path / "observer/zoo.cfg").read_text("utf-8").splitlines() == [
        "tickTime=1000",
        "4lw.commands.whitelist=srvr,ruok,mntr",
        "server.1=zookeeper-0.zookeeper-peers:2888:3888",
        f"dataDir={tmp_path}/observer/data",
        "clientPort=2181",
        "clientPortAddress=127.0.0.1",
        "peerType=observer",
        "server.255=127.0.0.1:2888:3888:observer",
    ]
