"""ZooKeeper that is away, loses its volumes, and gets more servers and fewer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import yaml

from tests.processes.k8s.cluster import CommandFailed, wait_until
from tests.processes.k8s.document import block
from tests.processes.k8s.installation import PARTITIONS, TOPIC, WHOLE_S, Installation
from tests.processes.k8s.scenarios.components import BACKUP_NAME, back_up
from tests.processes.k8s.scenarios.scenario import is_ready, owner_of

SERVERS = "kubectl -n fencelog get pods -l app.kubernetes.io/name=zookeeper"
SERVER_LIST = "# overlay/kustomization.yaml\nconfigMapGenerator"
RESIZE_ZOOKEEPER = "echo server.4="
RESTORE = "k8s/restore_zookeeper.sh "
AFTER_RESTORE = "fencelog check --metadata $M\n"
TYPED = (SERVERS, RESIZE_ZOOKEEPER, RESTORE, AFTER_RESTORE)

ZOOKEEPER_S = 300.0


def stop_zookeeper(installed: Installation) -> None:
    """ZooKeeper is away; what is open goes on, and its brokers stay ready."""
    cluster = installed.cluster
    # A broker without an open partition can open none, and is not ready.
    needed = {owner_of(installed, partition) for partition in range(PARTITIONS)}
    needed |= {pod["metadata"]["name"] for pod in installed.pods("bookie")}
    cluster.in_namespace("scale", "statefulset/zookeeper", "--replicas=0")
    try:
        time.sleep(ZOOKEEPER_S)
        pods = [*installed.pods("broker"), *installed.pods("bookie")]
        ready = {pod["metadata"]["name"] for pod in pods if is_ready(pod)}
        if unready := sorted(needed - ready):
            raise CommandFailed(f"not ready while ZooKeeper is away: {', '.join(unready)}")
    finally:
        cluster.in_namespace("scale", "statefulset/zookeeper", "--replicas=3")


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
    # What was in flight when everything stopped lacks copies for a minute.
    said = block(AFTER_RESTORE).text
    wait_until(lambda: TOPIC in cluster.type(said), "every copy is there", timeout_s=WHOLE_S)


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
