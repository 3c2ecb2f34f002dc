"""Pods that are started, restarted, updated and killed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import yaml

from tests.processes.k8s.cluster import CommandFailed, wait_until
from tests.processes.k8s.document import block, part
from tests.processes.k8s.installation import HELM, NEXT_TAG, PROD, TOPIC, Installation
from tests.processes.k8s.scenarios.scenario import owner_of

FIRST_START = "kubectl apply -k overlay\n"
RACKS = "kubectl get nodes --no-headers"
RESTART = "kubectl -n fencelog rollout restart statefulset/zookeeper"
ROLL = "k8s/roll_bookies.sh"
UPDATE = "kubectl apply -k overlay -l '!"
FIRST_START_BY_HELM = "kubectl create namespace fencelog"
UPDATE_BY_HELM = "to=registry.example.org/fencelog:0.1.1"
REPAIR = "kubectl -n fencelog run repair"
DRAIN = "fencelog brokers list"
TYPED = (
    *(FIRST_START, RACKS, RESTART, ROLL, UPDATE, REPAIR, DRAIN),
    *(FIRST_START_BY_HELM, UPDATE_BY_HELM),
)

QUIET_S = 45.0
MIXED_S = 60.0


def do_nothing(installed: Installation) -> None:
    """The control: what clients notice here, the machine does to them in every scenario."""
    time.sleep(QUIET_S)


def apply_first(installed: Installation) -> None:
    if installed.kind == HELM:
        installed.cluster.type(block(FIRST_START_BY_HELM).text)
        installed.wait_ready()
        return
    typed = part(FIRST_START, FIRST_START.strip(), "kubectl -n fencelog rollout status deployment")
    if installed.kind == PROD:  # Its bookies wait for the racks.
        installed.cluster.type(FIRST_START)
        installed.cluster.type(block(RACKS).text)
    installed.cluster.type(typed)
    installed.wait_ready()


def restart(workload: str) -> Callable[[Installation], None]:
    """Return a scenario: one workload is restarted as the document says."""

    def play(installed: Installation) -> None:
        first = f"kubectl -n fencelog rollout restart {workload}"
        last = f"kubectl -n fencelog rollout status {workload}"
        installed.cluster.type(part(RESTART, first, last))

    return play


def roll_bookies(installed: Installation) -> None:
    """Each bookie waits until the copies of the one before it are there."""
    installed.cluster.type(block(ROLL).text, timeout_s=1800)


def drain_broker(installed: Installation) -> None:
    """The broker of a pod, which has the pod's name, is emptied, and takes partitions again."""
    drained = owner_of(installed, 0)
    # Its partition is moved back to it: of two brokers, the other one has all of them by then.
    typed = re.sub(r"\bbroker-[12]\b", drained, block(DRAIN).text)
    installed.cluster.type(typed.replace("default/orders", TOPIC))
    if (owner := owner_of(installed, 0)) != drained:
        raise CommandFailed(f"partition 0 is at {owner}, and was moved to {drained}")


def update(tag: str) -> Callable[[Installation], None]:
    """Return a scenario: another image in the order that the document gives."""

    def play(installed: Installation) -> None:
        if installed.kind == HELM:
            typed = block(UPDATE_BY_HELM).text.replace(f":{NEXT_TAG}", f":{tag}")
        else:
            installed.set_tag(tag)
            typed = block(UPDATE).text
        installed.cluster.type(typed, timeout_s=1800)

    return play


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


def kill(pod: str) -> str:
    """Return the command that ends a pod at once."""
    return f"kubectl -n fencelog delete pod {pod} --grace-period=0 --force"


def kill_bookie(installed: Installation) -> None:
    installed.cluster.type(kill("bookie-1"))


def kill_broker(installed: Installation) -> None:
    """The owner of partition 0, and of others."""
    installed.cluster.type(kill(owner_of(installed, 0)))


def kill_zookeeper(installed: Installation) -> None:
    installed.cluster.type(kill("zookeeper-0"))
    installed.wait_ready()
    installed.cluster.type(kill("zookeeper-2"))


def kill_autorecovery(installed: Installation) -> None:
    for pod in installed.pods("autorecovery"):
        installed.cluster.type(kill(pod["metadata"]["name"]))


def replace_disk(installed: Installation) -> None:
    """Both volumes of a bookie are lost; its pod gets empty ones, and refuses to start with them
    until they are repaired as the document says."""
    cluster = installed.cluster
    cluster.in_namespace("delete", "pvc", "data-bookie-1", "journal-bookie-1", "--wait=false")
    cluster.in_namespace("delete", "pod", "bookie-1")

    def refuses() -> bool:
        found = [pod for pod in installed.pods("bookie") if pod["metadata"]["name"] == "bookie-1"]
        statuses = [each for pod in found for each in pod["status"].get("containerStatuses", ())]
        return any(each["restartCount"] > 0 for each in statuses)

    wait_until(refuses, "bookie-1 refuses empty volumes", timeout_s=180)
    (node,) = (
        pod["spec"]["nodeName"]
        for pod in installed.pods("bookie")
        if pod["metadata"]["name"] == "bookie-1"
    )
    cluster.type(block(REPAIR).text.replace("NODE-OF-BOOKIE-1", node))
