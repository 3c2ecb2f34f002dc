"""Nodes and zones that are cut off, stand still, are given up, and drained."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.processes.k8s.cluster import CommandFailed, say, wait_until
from tests.processes.k8s.document import block
from tests.processes.k8s.installation import TOPIC, Installation
from tests.processes.k8s.scenarios.scenario import is_ready, owner_of
from tests.processes.k8s.scenarios.zookeeper import expect_servers, is_leader

LOST_NODE_IS_OFF = "kubectl taint node NODE node.kubernetes.io/out-of-service="
LOST_NODE_IS_BACK = "kubectl taint node NODE node.kubernetes.io/out-of-service-"
ZONE_IS_LOST = "fencelog autorecovery off"
ZONE_IS_BACK = "fencelog autorecovery on"
TYPED = (LOST_NODE_IS_OFF, LOST_NODE_IS_BACK, ZONE_IS_LOST, ZONE_IS_BACK)

ELECTIONS = 4
"""How often the leader is deleted at most: the last two servers take turns."""

CUT_S = 60.0
PAUSE_S = 30.0
ZONE_S = 120.0


@dataclass(frozen=True)
class Victim:
    """A node without the load. ``address``: of its broker, which owns partitions 0 and 1."""

    node: str
    address: str


def victim(installed: Installation) -> Victim:
    """Have a broker own partitions 0 and 1 that is not beside the load. Raises CommandFailed if all
    are."""
    pods = [p for p in installed.pods("broker") if p["spec"]["nodeName"] != installed.load_node]
    if not pods:
        raise CommandFailed("all brokers are on the node of the load")
    return with_owner(installed, pods)


def with_owner(installed: Installation, pods: list[dict[str, Any]]) -> Victim:
    """Have one of these brokers own partitions 0 and 1, and return its node, in another zone than
    the load's if there is one."""
    zone = installed.zone_of(installed.load_node)
    pods.sort(key=lambda pod: installed.zone_of(pod["spec"]["nodeName"]) == zone)
    broker, node = pods[0]["metadata"]["name"], pods[0]["spec"]["nodeName"]
    for partition in (0, 1):
        if owner_of(installed, partition) != broker:
            moved = ("brokers", "unload", TOPIC, str(partition), "--to", broker)
            installed.cluster.fencelog(*moved)
    say(f"  {node} has {broker}, the owner of partitions 0 and 1")
    installed.leader_was_lost = leader_of(installed) in names_of(installed, node)
    return Victim(node, pods[0]["status"]["podIP"])


def leader_of(installed: Installation) -> str:
    """Return the pod that leads ZooKeeper; empty: none says so."""
    servers = installed.zookeeper_servers().items()
    return next((name for name, said in servers if is_leader(said)), "")


def names_of(installed: Installation, node: str) -> set[str]:
    """Return the names of the pods on a node."""
    return {pod["metadata"]["name"] for pod in pods_of(installed, node)}


def electable(installed: Installation) -> str:
    """Return a node without the load whose server of ZooKeeper can be elected: of servers that know
    the same, the one with the larger number is. Raises CommandFailed."""
    servers = sorted(installed.pods("zookeeper"), key=lambda pod: pod["metadata"]["name"])
    for pod in servers[::-1]:
        if (node := str(pod["spec"]["nodeName"])) != installed.load_node:
            return node
    raise CommandFailed("all servers of ZooKeeper are on the node of the load")


def have_broker(installed: Installation, node: str) -> list[dict[str, Any]]:
    """Return the brokers of a node, where one is started in place of another if there is none."""
    if not (found := on_node(installed, node)):
        cluster, others = installed.cluster, [each for each in installed.nodes() if each != node]
        cluster.kubectl("cordon", *others)
        try:
            moved = installed.pods("broker")[0]["metadata"]["name"]
            cluster.in_namespace("delete", "pod", str(moved))
            installed.wait_ready()
        finally:
            cluster.kubectl("uncordon", *others)
        found = on_node(installed, node)
    return found


def on_node(installed: Installation, node: str) -> list[dict[str, Any]]:
    """Return the brokers of a node."""
    return [pod for pod in installed.pods("broker") if pod["spec"]["nodeName"] == node]


def have_leader(installed: Installation, node: str) -> None:
    """Delete the pod that leads ZooKeeper until one of this node leads. Raises CommandFailed."""
    for _ in range(ELECTIONS):
        leader = leader_of(installed)
        if leader in names_of(installed, node):
            say(f"  {node} has ZooKeeper's leader, {leader}")
            return
        if leader:
            installed.cluster.in_namespace("delete", "pod", leader)
            installed.wait_ready()
        expect_servers(installed, len(installed.pods("zookeeper")))
    raise CommandFailed(f"no server of {node} was elected {ELECTIONS} times")


@contextmanager
def broken(
    installed: Installation, verb: str, cure: str, nodes: list[str], address: str
) -> Iterator[None]:
    """Break nodes, see that the broker at the address is silent, and mend them at the end. Raises
    CommandFailed if it still answers: then nothing was tried."""
    installed.cluster.fault(verb, *nodes)
    try:
        if installed.answers(address):
            raise CommandFailed(f"a broker answers although {verb} was done to {', '.join(nodes)}")
        yield
    finally:
        installed.cluster.fault(cure, *nodes)


def cut_node(installed: Installation) -> None:
    chosen = victim(installed)
    with broken(installed, "cut", "heal", [chosen.node], chosen.address):
        time.sleep(CUT_S)


def cut_leader(installed: Installation) -> None:
    """The node that is cut off has ZooKeeper's leader as well as an owner."""
    node = electable(installed)
    have_leader(installed, node)
    chosen = with_owner(installed, have_broker(installed, node))
    if not installed.leader_was_lost:
        raise CommandFailed(f"{node} does not have ZooKeeper's leader any more")
    with broken(installed, "cut", "heal", [chosen.node], chosen.address):
        time.sleep(CUT_S)


def pause_node(installed: Installation) -> None:
    chosen = victim(installed)
    with broken(installed, "pause", "resume", [chosen.node], chosen.address):
        time.sleep(PAUSE_S)


def lose_zone(installed: Installation) -> None:
    """All nodes of a zone are cut off, and the runbook is followed."""
    chosen = victim(installed)
    zone = installed.zone_of(chosen.node)
    nodes = [node for node in installed.nodes() if installed.zone_of(node) == zone]
    with broken(installed, "cut", "heal", nodes, chosen.address):
        began = time.monotonic()
        typed = block(ZONE_IS_LOST, heading="A lost zone").text
        # Commands go to pods of the zone, and questions for names too, until Kubernetes notices.
        wait_until(lambda: bool(installed.cluster.type(typed)), "commands work", timeout_s=ZONE_S)
        time.sleep(max(0.0, ZONE_S - (time.monotonic() - began)))
    installed.wait_ready()
    installed.cluster.type(block(ZONE_IS_BACK, heading="A lost zone").text)


def give_node_up(installed: Installation) -> None:
    """A node is cut off, and Kubernetes told that it is off: its pods are removed, and those with
    volumes wait for it until it is back."""
    chosen = victim(installed)
    with broken(installed, "cut", "heal", [chosen.node], chosen.address):
        lost = {pod["metadata"]["uid"] for pod in pods_of(installed, chosen.node)}
        wait_until(lambda: is_silent(installed, chosen.node), "the node is given up", timeout_s=120)
        typed = block(LOST_NODE_IS_OFF).text.replace("NODE", chosen.node)
        installed.cluster.type(typed)
        wait_until(
            lambda: not lost & {pod["metadata"]["uid"] for pod in pods_of(installed, chosen.node)},
            "its pods are gone",
            timeout_s=180,
        )
    wait_until(lambda: not is_silent(installed, chosen.node), "it is back", timeout_s=120)
    installed.cluster.type(block(LOST_NODE_IS_BACK).text.replace("NODE", chosen.node))


def pods_of(installed: Installation, node: str) -> list[dict[str, Any]]:
    """Return the pods of a node, also those that are about to end."""
    on_node = f"--field-selector=spec.nodeName={node}"
    return installed.cluster.items("pods", "-n", "fencelog", on_node)


def is_silent(installed: Installation, node: str) -> bool:
    """Tell whether Kubernetes has noticed that a node does not answer."""
    found = json.loads(installed.cluster.kubectl("get", "node", node, "-o", "json"))
    return not is_ready(found)


def drain_node(installed: Installation) -> None:
    """One node is drained; of the next one nothing may go that would be the second of its kind."""
    first, second = [node for node in installed.nodes() if node != installed.load_node][:2]
    drain = "kubectl drain {} --ignore-daemonsets --delete-emptydir-data --timeout={}s"
    try:
        try:
            installed.cluster.type(drain.format(first, 240), timeout_s=300)
            time.sleep(15)
            installed.cluster.type(drain.format(second, 45), timeout_s=120)
        except CommandFailed as refused:
            if "disruption budget" not in str(refused):
                raise
            say("  the budgets refuse to let more go")
        away = {role: missing(installed, role) for role in ("bookie", "zookeeper")}
        if any(number > 1 for number in away.values()):
            raise CommandFailed(f"the budgets have let too many go: {away}")
    finally:
        for node in (first, second):
            installed.cluster.kubectl("uncordon", node)


def missing(installed: Installation, role: str) -> int:
    """Return how many pods of a StatefulSet are not ready."""
    (found,) = (
        item
        for item in installed.cluster.items("statefulsets", "-n", "fencelog")
        if item["metadata"]["name"] == role
    )
    return int(found["spec"]["replicas"] - found["status"].get("readyReplicas", 0))
