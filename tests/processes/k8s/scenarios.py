"""The scenarios, in the order in which they are played, and what clients may notice of each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from tests.processes.k8s.cluster import CommandFailed, say, wait_until
from tests.processes.k8s.document import block, part
from tests.processes.k8s.installation import NEXT_TAG, PARTITIONS, PROD, TAG, TOPIC, Installation
from tests.processes.k8s.maintenance import (
    AUTOSCALE,
    BACK_UP,
    DRILLS,
    FIRST_START,
    RESIZE_ZOOKEEPER,
    RESTORE,
    SERVERS,
    SUCCESSES,
    UPDATE,
    add_components,
    autoscale,
    is_leader,
    lose_zookeeper,
    make_backup,
    mix_versions,
    resize_zookeeper,
    run_drills,
)
from tests.processes.k8s.table import Limits

UNNOTICED = Limits(gap_s=1.0, errors=False)
LOST_OWNER = Limits(gap_s=6.0, errors=True)
"""The owner's session ends after six seconds, and another broker opens its partitions."""

LOST_LEADER_S = 9.0
"""ZooKeeper's other servers notice after five seconds (`syncLimit`), elect one of them, and every
session begins anew with it."""

LOST_NODE = Limits(gap_s=12.0, errors=True, leader_s=LOST_LEADER_S)
"""An answer that never comes costs a client five seconds, and the Service still names pods of the
node: to those of a lost owner, one time-out and some attempts to connect are added."""

RESTORED = Limits(gap_s=420.0, errors=True)
"""Everything stops and starts: two minutes for bookies to stop, and the rest for images, volumes,
elections and copies of files."""

PAUSED_NODE = Limits(gap_s=26.0, errors=True, leader_s=LOST_LEADER_S)
"""A machine that stands still takes connections: while the Service names it, every second attempt
of a client ends there, after five seconds. Five in a row are allowed for."""

QUIET_S = 45.0
CUT_S = 60.0
PAUSE_S = 30.0
ZONE_S = 120.0
ZOOKEEPER_S = 300.0

RESTART = "kubectl -n fencelog rollout restart statefulset/zookeeper"
ROLL = "k8s/roll_bookies.sh"
BOOKIES_OF_OVERLAY = "kubectl apply -k overlay -l app.kubernetes.io/component=bookie\n"
MORE_BOOKIES = f"{BOOKIES_OF_OVERLAY}kubectl -n fencelog rollout"
DECOMMISSION = "k8s/decommission.sh"
FEWER_BOOKIES = f"{BOOKIES_OF_OVERLAY}kubectl -n fencelog wait"
FIRST_SECRET = "openssl rand -hex 32 > overlay/secret"
SECRET = "brokers=$(kubectl"
ROTATION = (
    "openssl rand -hex 32 > overlay/accepted",
    "mv overlay/accepted overlay/new",
    "cp overlay/secret overlay/accepted",
)
CREDENTIALS = "# overlay/kustomization.yaml\ncomponents: [../k8s/components/zookeeper"
NEW_USERS = ("(echo world:anyone", "sed -i /world:anyone/d")
OTHER_USERS = ('echo "fencelog:$(openssl rand -hex 32)" >>', "sed -i 1d")
PROTECT = "M='zk://"
LOST_NODE_IS_OFF = "kubectl taint node NODE node.kubernetes.io/out-of-service="
LOST_NODE_IS_BACK = "kubectl taint node NODE node.kubernetes.io/out-of-service-"
RESIZED = "kubectl -n fencelog delete statefulset/bookie --cascade=orphan"
REPAIR = "kubectl -n fencelog run repair"
RACKS = "kubectl get nodes --no-headers"
ZONE_IS_LOST = "fencelog autorecovery off"
ZONE_IS_BACK = "fencelog autorecovery on"
TYPED = (
    *(
        FIRST_START,
        RESTART,
        ROLL,
        UPDATE,
        RACKS,
        MORE_BOOKIES,
        DECOMMISSION,
        FEWER_BOOKIES,
        FIRST_SECRET,
        SECRET,
        *ROTATION,
        *NEW_USERS,
        *OTHER_USERS,
        PROTECT,
        LOST_NODE_IS_OFF,
        LOST_NODE_IS_BACK,
        RESIZED,
        RESIZE_ZOOKEEPER,
        SERVERS,
        SUCCESSES,
        REPAIR,
        AUTOSCALE,
        BACK_UP,
        RESTORE,
        DRILLS,
        ZONE_IS_LOST,
        ZONE_IS_BACK,
    ),
)
"""The blocks of OPERATIONS.md that scenarios run, by their beginnings."""


@dataclass(frozen=True)
class Scenario:
    """A scenario. ``limits`` None: the load has not begun yet. ``needs``: the one that has to be
    played before. ``breaks_nodes``: it takes a command that does. ``updates``: it takes the image
    of an earlier version, too."""

    name: str
    play: Callable[[Installation], None]
    limits: Limits | None
    needs: str = ""
    breaks_nodes: bool = False
    updates: bool = False


def choose_scenarios(names: Sequence[str], kind: str = "") -> list[Scenario]:
    """Return the scenarios of these names in the order of SCENARIOS, all without a name; the first
    apply is always among them. ``kind``: that of the installation; what it has from its first apply
    is not among them. Raises LookupError for a name that there is not."""
    there = [each for each in SCENARIOS if kind != PROD or each.name not in IN_PROD]
    known = [scenario.name for scenario in there]
    if unknown := [name for name in names if name not in known]:
        raise LookupError(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = {SCENARIOS[0].name, *names}
    for each in reversed(there):  # What is needed stands before it, and may need another one.
        if each.name in chosen and each.needs:
            chosen.add(each.needs)
    return [each for each in there if not names or each.name in chosen]


def do_nothing(installed: Installation) -> None:
    """The control: what clients notice here, the machine does to them in every scenario."""
    time.sleep(QUIET_S)


# -- restarts and updates --------------------------------------------------------------------------


def apply_first(installed: Installation) -> None:
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


def update(tag: str) -> Callable[[Installation], None]:
    """Return a scenario: another image in the order that the document gives."""

    def play(installed: Installation) -> None:
        installed.set_tag(tag)
        installed.cluster.type(block(UPDATE).text, timeout_s=1800)

    return play


# -- lost pods -------------------------------------------------------------------------------------


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


def owner_of(installed: Installation, partition: int) -> str:
    """Return the pod of the broker that owns a partition. Raises CommandFailed."""
    shown = installed.cluster.fencelog("topic", "internal", TOPIC, str(partition))
    return str(json.loads(shown)["owner"])


# -- lost nodes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Victim:
    """A node without the load. ``address``: of its broker, which owns partitions 0 and 1."""

    node: str
    address: str


def victim(installed: Installation) -> Victim:
    """Have a broker own partitions 0 and 1, and return its node, in another zone than the load's if
    there is one. Raises CommandFailed if all brokers are beside the load."""
    pods = [p for p in installed.pods("broker") if p["spec"]["nodeName"] != installed.load_node]
    if not pods:
        raise CommandFailed("all brokers are on the node of the load")
    zone = installed.zone_of(installed.load_node)
    pods.sort(key=lambda pod: installed.zone_of(pod["spec"]["nodeName"]) == zone)
    broker, node = pods[0]["metadata"]["name"], pods[0]["spec"]["nodeName"]
    for partition in (0, 1):
        if owner_of(installed, partition) != broker:
            moved = ("brokers", "unload", TOPIC, str(partition), "--to", broker)
            installed.cluster.fencelog(*moved)
    say(f"  {node} has {broker}, the owner of partitions 0 and 1")
    leaders = {name for name, said in installed.zookeeper_servers().items() if is_leader(said)}
    beside = {pod["metadata"]["name"] for pod in pods_of(installed, node)}
    installed.leader_was_lost = bool(leaders & beside)
    return Victim(node, pods[0]["status"]["podIP"])


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
        time.sleep(20)  # Until pods of the zone are known not to be ready: commands go to others.
        installed.cluster.type(block(ZONE_IS_LOST, heading="A lost zone").text)
        time.sleep(ZONE_S - 20)
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


# -- more and fewer bookies ------------------------------------------------------------------------


def set_racks(installed: Installation) -> None:
    """The zone of each node becomes the rack of its bookies: no two copies of one zone."""
    installed.cluster.type(block(RACKS).text)
    installed.wait_ready()


def add_bookies(installed: Installation) -> None:
    """Five bookies, with ledgers on all of them: three remain when a node with two is lost. The
    next apply leaves them alone."""
    installed.set_bookies(5)
    installed.cluster.type(block(MORE_BOOKIES).text)
    installed.wait_ready()
    installed.seal()
    installed.cluster.type("kubectl apply -k overlay")
    installed.wait_ready()
    if (left := len(installed.pods("bookie"))) != 5:
        raise CommandFailed(f"{left} bookies are left after another apply")
    time.sleep(10)


def remove_bookies(installed: Installation) -> None:
    """Three bookies again, each let go by the script of the document before the overlay does."""
    for number in (4, 3):
        for begins in (DECOMMISSION, FEWER_BOOKIES):
            typed = block(begins).text.replace("bookie-4", f"bookie-{number}")
            installed.cluster.type(typed, timeout_s=1200)
            installed.set_bookies(number)


def refuse_removal(installed: Installation) -> None:
    """Of three bookies none may go: the script says so, and bookie-2 stays what it was."""
    typed = block(DECOMMISSION).text.replace("bookie-4", "bookie-2")
    expect_refusal(lambda: installed.cluster.type(typed, timeout_s=600), "bookie-2 stays")
    status = ("bookie", "decommission", "bookie-2", "--status")
    expect_refusal(lambda: installed.cluster.fencelog(*status), "bookie-2 is not being removed")


def expect_refusal(run: Callable[[], str], why: str) -> None:
    """Run a command that has to fail, and to say why. Raises CommandFailed."""
    try:
        said = run()
    except CommandFailed as refused:
        if why not in str(refused):
            raise
        say(f"  refused: {why}")
        return
    raise CommandFailed(f"not refused ({why}): {said}")


def resize_volumes(installed: Installation) -> None:
    """The StatefulSet of bookies is made anew with another size of volumes, around its pods."""
    size = "/spec/volumeClaimTemplates/0/spec/resources/requests/storage"
    operation = {"op": "replace", "path": size, "value": "51Gi"}
    target = {"kind": "StatefulSet", "name": "bookie"}
    patch = {"target": target, "patch": yaml.dump([operation])}
    installed.write_overlay(lambda overlay: overlay["patches"].append(patch))
    before = claims(installed)
    expect_refusal(
        lambda: installed.cluster.type("kubectl apply -k overlay"), "updates to statefulset spec"
    )
    installed.cluster.type(block(RESIZED).text)
    installed.wait_ready()
    if before != claims(installed):
        raise CommandFailed("bookies do not have the same volumes as before")


def claims(installed: Installation) -> set[str]:
    """Return the ids of all claims of volumes."""
    found = installed.cluster.items("persistentvolumeclaims", "-n", "fencelog")
    return {str(claim["metadata"]["uid"]) for claim in found}


# -- ZooKeeper -------------------------------------------------------------------------------------


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


def is_ready(pod: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", ())
    )


# -- secrets ---------------------------------------------------------------------------------------


def introduce_secret(installed: Installation) -> None:
    """The first secret, for which brokers stop."""
    written = yaml.safe_load(block("# overlay/kustomization.yaml\nsecretGenerator").text)

    def change(overlay: dict[str, Any]) -> None:
        overlay["secretGenerator"] = written["secretGenerator"]
        overlay["patches"] += written["patches"]

    installed.cluster.type(block(FIRST_SECRET).text)
    installed.write_overlay(change)
    installed.cluster.type(block(SECRET).text)


def rotate_secret(installed: Installation) -> None:
    """The three steps of the document."""
    for step in ROTATION:
        installed.cluster.type(block(step).text)
        installed.cluster.type(block(UPDATE).text, timeout_s=1800)
        installed.wait_ready()


def protect_zookeeper(installed: Installation) -> None:
    """Credentials where there were none, and then another password: each change of the file is
    followed by an update and by the command that sets access lists."""
    cluster = installed.cluster
    for step in (*NEW_USERS, *OTHER_USERS):
        cluster.type(block(step).text)
        if step == NEW_USERS[0]:
            installed.write_overlay(add_credentials)
        cluster.type(block(UPDATE).text, timeout_s=1800)
        installed.wait_ready()
        say("  " + cluster.type(block(PROTECT).text).strip())
    listing = 'fencelog bookies list --metadata "$M"'
    expect_refusal(lambda: cluster.type(listing), "the node is not open to all")
    cluster.use_metadata(block(PROTECT).text.split("'")[1])
    cluster.type(listing)


def add_credentials(overlay: dict[str, Any]) -> None:
    """Add the component of credentials, and their Secret, to an overlay that may have others."""
    for key, added in yaml.safe_load(block(CREDENTIALS).text).items():
        overlay[key] = [*overlay.get(key, ()), *added]


SCENARIOS = (
    Scenario("first-apply", apply_first, None),
    Scenario("nothing", do_nothing, UNNOTICED),
    Scenario("restart-bookies", restart("statefulset/bookie"), UNNOTICED),
    Scenario("roll-bookies", roll_bookies, UNNOTICED),
    Scenario("restart-brokers", restart("deployment/broker"), UNNOTICED),
    Scenario("restart-zookeeper", restart("statefulset/zookeeper"), UNNOTICED),
    Scenario("new-tag", update(NEXT_TAG), UNNOTICED, updates=True),
    Scenario("roll-back", update(TAG), UNNOTICED, updates=True),
    Scenario("mix-versions", mix_versions, UNNOTICED, updates=True),
    Scenario("kill-bookie", kill_bookie, UNNOTICED),
    Scenario("replace-disk", replace_disk, UNNOTICED),
    Scenario("kill-broker", kill_broker, LOST_OWNER),
    Scenario("kill-zookeeper", kill_zookeeper, UNNOTICED),
    Scenario("kill-autorecovery", kill_autorecovery, UNNOTICED),
    Scenario("refuse-removal", refuse_removal, UNNOTICED),
    Scenario("set-racks", set_racks, UNNOTICED),
    Scenario("add-bookies", add_bookies, UNNOTICED, needs="set-racks"),
    Scenario("cut-node", cut_node, LOST_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("pause-node", pause_node, PAUSED_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("lose-zone", lose_zone, LOST_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("give-node-up", give_node_up, LOST_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("drain-node", drain_node, UNNOTICED, needs="add-bookies"),
    Scenario("remove-bookies", remove_bookies, UNNOTICED, needs="add-bookies"),
    Scenario("resize-volumes", resize_volumes, UNNOTICED),
    Scenario("stop-zookeeper", stop_zookeeper, UNNOTICED),
    Scenario("resize-zookeeper", resize_zookeeper, UNNOTICED),
    Scenario("add-components", add_components, UNNOTICED),
    Scenario("run-drills", run_drills, UNNOTICED, needs="add-components"),
    Scenario("back-up", make_backup, UNNOTICED, needs="add-components"),
    Scenario("lose-zookeeper", lose_zookeeper, RESTORED, needs="add-components"),
    Scenario("autoscale", autoscale, UNNOTICED, needs="add-components"),
    Scenario("introduce-secret", introduce_secret, Limits(gap_s=180.0, errors=True)),
    Scenario("rotate-secret", rotate_secret, UNNOTICED, needs="introduce-secret"),
    # The version before knows no credentials.
    Scenario("protect-zookeeper", protect_zookeeper, UNNOTICED, needs="new-tag"),
)
"""All scenarios. Nodes are broken while there are five bookies: a new ledger takes three."""

IN_PROD = {
    *("refuse-removal", "set-racks", "add-bookies", "remove-bookies"),
    *("resize-zookeeper", "add-components", "autoscale"),
}
"""What is about another number of bookies or servers, or adds what the overlay `prod` has."""
