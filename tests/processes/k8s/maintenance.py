"""Scenarios of what is done beside the service: backups, drills, autoscaling, mixed versions."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import yaml

from tests.processes.k8s.cluster import CommandFailed, say, wait_until
from tests.processes.k8s.document import block
from tests.processes.k8s.installation import NEXT_TAG, Installation

FIRST_START = "kubectl apply -k overlay\n"
UPDATE = "kubectl apply -k overlay -l '!"
AUTOSCALE = "KUBE_EDITOR="
BACK_UP = "kubectl -n fencelog create job --from=cronjob/zookeeper-backup"
RESTORE = "k8s/restore_zookeeper.sh "
DRILLS = "kubectl -n fencelog create job --from=cronjob/drills"
SERVERS = "kubectl -n fencelog get pods -l app.kubernetes.io/name=zookeeper"
SUCCESSES = "kubectl -n fencelog get cronjobs"
SERVER_LIST = "# overlay/kustomization.yaml\nconfigMapGenerator"
RESIZE_ZOOKEEPER = "echo server.4="
COMPONENTS = "# overlay/kustomization.yaml\ncomponents: [../k8s/components/backup"

MIXED_S = 60.0
BACKUP_NAME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ\b")


def add_components(installed: Installation) -> None:
    """The overlay gets the components that the document has in it."""
    written = yaml.safe_load(block(COMPONENTS).text)

    def change(overlay: dict[str, Any]) -> None:
        overlay["components"] = written["components"]

    installed.write_overlay(change)
    installed.cluster.type("kubectl apply -k overlay", timeout_s=120)


def run_drills(installed: Installation) -> None:
    """The drills of the CronJob; one that fails does not complete."""
    say("  " + installed.cluster.type(block(DRILLS).text).strip().replace("\n", "\n  "))


def back_up(installed: Installation) -> str:
    """Make a backup as the document says; return its name. Raises CommandFailed."""
    said = installed.cluster.type(block(BACK_UP).text)
    made = re.search(rf"^backup ({BACKUP_NAME.pattern}):", said, re.MULTILINE)
    if made is None:
        raise CommandFailed(f"no backup is named: {said}")
    return made[1]


def make_backup(installed: Installation) -> None:
    back_up(installed)
    say("  " + installed.cluster.type(block(SUCCESSES).text).strip().replace("\n", "\n  "))


def lose_zookeeper(installed: Installation) -> None:
    """All volumes of ZooKeeper are lost, and it is restored from a backup of just before."""
    cluster = installed.cluster
    name = back_up(installed)
    cluster.in_namespace("scale", "statefulset/zookeeper", "--replicas=0")
    wait_until(lambda: not installed.pods("zookeeper"), "ZooKeeper is gone", timeout_s=120)
    claims = [f"{volume}-zookeeper-{n}" for volume in ("data", "log") for n in range(3)]
    cluster.in_namespace("delete", "pvc", *claims)
    if "zookeeper" in cluster.type(block(SERVERS).text):
        raise CommandFailed("ZooKeeper is still there")
    cluster.in_namespace("scale", "statefulset/zookeeper", "--replicas=3")
    typed = block(RESTORE).text
    if name not in cluster.type(typed.splitlines()[0]):
        raise CommandFailed(f"{name} is not among the backups")
    cluster.type(BACKUP_NAME.sub(name, typed.splitlines()[1]))


def resize_zookeeper(installed: Installation) -> None:
    """Five servers, one after the other; two of them are lost, and then removed for good."""
    cluster = installed.cluster
    written = yaml.safe_load(block(SERVER_LIST).text)
    cluster.type("cp k8s/base/zoo.cfg overlay/")
    installed.write_overlay(lambda overlay: overlay.update(written))
    first, *rest = block(RESIZE_ZOOKEEPER).text.splitlines(keepends=True)
    for number, listed in (
        (4, first),
        (5, first.replace("server.4", "server.5").replace("zookeeper-3", "zookeeper-4")),
        (4, "sed -i /^server.5=/d overlay/zoo.cfg\n"),
        (3, "sed -i /^server.4=/d overlay/zoo.cfg\n"),
    ):
        if number == 4 and len(installed.pods("zookeeper")) == 5:
            lose_two_servers(installed)
        set_servers(installed, number)
        cluster.type(listed + "".join(rest))
        installed.wait_ready()
        expect_servers(installed, number)
    installed.write_overlay(lambda overlay: overlay.pop("configMapGenerator"))


def set_servers(installed: Installation, number: int) -> None:
    """Have the overlay name another number of ZooKeeper servers, beside that of bookies."""

    def change(overlay: dict[str, Any]) -> None:
        others = [each for each in overlay["replicas"] if each["name"] != "zookeeper"]
        overlay["replicas"] = [*others, {"name": "zookeeper", "count": number}]

    installed.write_overlay(change)


def expect_servers(installed: Installation, number: int) -> None:
    """Wait until the leader is followed by all the others. Raises CommandFailed."""

    def is_complete() -> bool:
        servers = installed.zookeeper_servers()
        led = [each["zk_synced_followers"] for each in servers.values() if is_leader(each)]
        return len(servers) == number and [*map(float, led)] == [number - 1]

    wait_until(is_complete, f"one of {number} servers leads all the others", timeout_s=60)


def is_leader(server: Mapping[str, str]) -> bool:
    return server.get("zk_server_state") == "leader"


def lose_two_servers(installed: Installation) -> None:
    """Two of five pods are deleted at once, and a topic is made before they are back."""
    cluster = installed.cluster
    lost = [pod for pod in installed.pods("zookeeper") if pod["metadata"]["name"][-1] in "04"]
    names = [str(pod["metadata"]["name"]) for pod in lost]
    cluster.in_namespace("delete", "pod", *names, "--grace-period=0", "--force")
    cluster.fencelog("topic", "create", "default/with-three-of-five")
    installed.wait_ready()


def autoscale(installed: Installation) -> None:
    """As many brokers as the autoscaler wants: three at least, and never fewer on the way."""

    def change(overlay: dict[str, Any]) -> None:
        overlay["components"].append("../k8s/components/autoscaling")

    installed.write_overlay(change)
    installed.cluster.type(block(AUTOSCALE).text)
    if (left := len(installed.pods("broker"))) < 2:
        raise CommandFailed(f"{left} brokers are left when the component has been applied")
    wait_until(lambda: len(installed.pods("broker")) == 3, "three brokers", timeout_s=180)


def mix_versions(installed: Installation) -> None:
    """An update that stops half-way: one bookie and one broker of the next version among those of
    the version before, each partition moved between them; then it goes on."""
    cluster = installed.cluster
    installed.set_tag(NEXT_TAG)
    set_partition(installed, 2)
    cluster.type("kubectl apply -k overlay -l app.kubernetes.io/component=bookie")
    cluster.in_namespace("rollout", "status", "statefulset/bookie", timeout_s=300)
    cluster.type("kubectl apply -k overlay", timeout_s=120)
    wait_until(lambda: len(of_next(installed, "broker")) == 1, "one new broker", timeout_s=60)
    cluster.in_namespace("rollout", "pause", "deployment/broker")
    wait_until(lambda: installed.are_ready("broker"), "brokers are ready", timeout_s=120)
    began = time.monotonic()
    while time.monotonic() - began < MIXED_S:
        for role in ("bookie", "broker"):
            new, every = len(of_next(installed, role)), len(installed.pods(role))
            if not 0 < new < every:
                raise CommandFailed(f"{new} of {every} pods of {role} are new: no mixture")
        installed.seal()
    # Bookies first, as always: with one of three away no partition opens elsewhere.
    set_partition(installed, 0)
    cluster.in_namespace("rollout", "status", "statefulset/bookie", timeout_s=300)
    cluster.in_namespace("rollout", "resume", "deployment/broker")
    installed.wait_ready()


def of_next(installed: Installation, role: str) -> list[str]:
    """Return the pods of a role that run the next version."""
    return [
        pod["metadata"]["name"]
        for pod in installed.pods(role)
        if pod["spec"]["containers"][0]["image"].endswith(f":{NEXT_TAG}")
    ]


def set_partition(installed: Installation, first: int) -> None:
    """Have updates change only the bookies from this number on."""
    strategy = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": first}}}}
    installed.cluster.in_namespace(
        "patch", "statefulset", "bookie", "--type=merge", "-p", yaml.dump(strategy)
    )
