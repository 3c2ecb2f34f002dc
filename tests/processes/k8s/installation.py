"""An installation of fencelog in a cluster of its own, with a load: what scenarios play on."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.processes.k8s.cluster import NAMESPACE, Cluster, CommandFailed, say, wait_until
from tests.processes.k8s.document import block
from tests.processes.k8s.images import load_image, make_archives
from tests.support.house import ROOT

LOAD_NAMESPACE = "fencelog-test"
LOAD_FILES = ("ask.py", "load.py", "window.py")
TOPIC = "default/load"
PARTITIONS = 4

REGISTRY = "registry.example.org"
TAG, NEXT_TAG = "0.1.0", "0.1.1"
ZOOKEEPER_TAG = "3.9.3"

REPLICAS = "# overlay/kustomization.yaml\nreplicas"

READY_S = 600.0
WHOLE_S = 300.0
"""The time until all copies are there: five looks of the auditor at new ledgers, and repairs."""

BASE, DEV, PROD, HELM = "", "dev", "prod", "helm"
"""What an installation is made from: the overlay of the document, another one, or the chart."""

_CPU = {"zookeeper": "25m", "bookie": "50m", "broker": "50m", "autorecovery": "10m"}
_SMALL = {"memory": "64Mi", "ephemeral-storage": "64Mi"}
"""The requests of containers, so that three nodes of any size hold all: of the processor a tenth of
what the base requests, and so the same shares where it does not suffice."""

_CPU_OF_LOAD = "100m"
"""Clients that wait for the processor would measure themselves."""

_SMALL_VOLUME = "50Gi"

_DOES_IT_ANSWER = """
import sys, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=3)
    print("yes")
except OSError:
    print("no")
"""


class Installation:
    """The objects of one test. ``load_node``: never broken."""

    def __init__(
        self, cluster: Cluster, archives: Path, before: Path | None = None, kind: str = BASE
    ) -> None:
        """Configure the test. ``before``: the image of the version that is installed first;
        ``kind``: BASE, DEV, PROD or HELM."""
        self.cluster = cluster
        self._archives = archives
        self.before = before
        self.kind = kind
        self.overlay = cluster.place / "overlay"
        self.load_node = ""
        self.leader_was_lost = False
        """Whether the scenario has broken the node of ZooKeeper's leader."""

    def check_that_it_is_free(self) -> None:
        """Check that nobody's installation is there. Raises CommandFailed."""
        names = {item["metadata"]["name"] for item in self.cluster.items("namespaces")}
        if taken := names & {NAMESPACE, LOAD_NAMESPACE}:
            raise CommandFailed(f"the cluster has {', '.join(sorted(taken))}: nothing was touched")

    def prepare(self) -> None:
        """Make and load images, and write the overlay. Raises CommandFailed."""
        place = self.cluster.place
        shutil.rmtree(place / "k8s", ignore_errors=True)
        shutil.copytree(ROOT / "k8s", place / "k8s", ignore=shutil.ignore_patterns("*.py"))
        name = f"{REGISTRY}/fencelog"
        shutil.rmtree(self.overlay, ignore_errors=True)
        self.overlay.mkdir()
        self.write_overlay(lambda overlay: None)
        make_archives(self.cluster, self._archives)
        fencelog, zookeeper = (self._archives / f"{n}.tar" for n in ("fencelog", "zookeeper"))
        load_image(self.cluster, self.before or fencelog, f"{name}:{TAG}", place)
        load_image(self.cluster, fencelog, f"{name}:{NEXT_TAG}", place)
        load_image(self.cluster, zookeeper, f"{REGISTRY}/zookeeper:{ZOOKEEPER_TAG}", place)

    def write_overlay(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Write the overlay of the document, made small, and changed by ``change(overlay)``."""
        path = self.overlay / "kustomization.yaml"
        if path.exists():
            overlay = yaml.safe_load(path.read_text("utf-8"))
        else:
            overlay = yaml.safe_load(block("# overlay/kustomization.yaml\napiVersion").text)
            overlay["images"].append(
                {
                    "name": "zookeeper",
                    "newName": f"{REGISTRY}/zookeeper",
                    "newTag": ZOOKEEPER_TAG,
                }
            )
            overlay["patches"] = [small_requests(name) for name in _CPU]
            if self.kind in (DEV, PROD):
                self._take_from(overlay, f"../k8s/overlays/{self.kind}")
        change(overlay)
        path.write_text(yaml.dump(overlay, sort_keys=False), "utf-8")

    def _take_from(self, overlay: dict[str, Any], folder: str) -> None:
        """Have an overlay change the one in this folder; volumes of PROD are made smaller."""
        overlay["resources"] = [folder]
        del overlay["replicas"]
        if self.kind == DEV:  # Small as it is.
            overlay["patches"] = []
            return
        image = next(each for each in overlay["images"] if each["name"] == "fencelog")
        image["name"] = image["newName"]
        operation = {
            "op": "replace",
            "path": "/spec/volumeClaimTemplates/0/spec/resources/requests/storage",
            "value": _SMALL_VOLUME,
        }
        bookies = {"kind": "StatefulSet", "name": "bookie"}
        overlay["patches"].append({"target": bookies, "patch": yaml.dump([operation])})

    def set_tag(self, tag: str) -> None:
        """Have the overlay name another tag of fencelog's image."""

        def change(overlay: dict[str, Any]) -> None:
            (image,) = [each for each in overlay["images"] if "fencelog" in each["name"]]
            image["newTag"] = tag

        self.write_overlay(change)

    def set_bookies(self, number: int) -> None:
        """Have the overlay name another number of bookies, where the document has it."""

        def change(overlay: dict[str, Any]) -> None:
            overlay["replicas"] = yaml.safe_load(block(REPLICAS).text)["replicas"]
            (bookies,) = overlay["replicas"]
            bookies["count"] = number

        self.write_overlay(change)

    # -- the state of the cluster ------------------------------------------------------------------

    def nodes(self) -> list[str]:
        """Return the nodes that take pods."""
        return sorted(
            node["metadata"]["name"]
            for node in self.cluster.items("nodes")
            if all(taint["effect"] != "NoSchedule" for taint in node["spec"].get("taints", ()))
        )

    def zone_of(self, node: str) -> str:
        found = json.loads(self.cluster.kubectl("get", "node", node, "-o", "json"))
        return str(found["metadata"]["labels"].get("topology.kubernetes.io/zone", node))

    def pods(self, role: str) -> list[dict[str, Any]]:
        """Return the pods of a role that are not about to end."""
        label = f"app.kubernetes.io/name={role}"
        return [
            pod
            for pod in self.cluster.items("pods", "-n", NAMESPACE, "-l", label)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def are_ready(self, role: str) -> bool:
        """Tell whether all pods of a role are ready."""
        conditions = [
            {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
            for pod in self.pods(role)
        ]
        return all(each.get("Ready") == "True" for each in conditions)

    def is_ready(self) -> bool:
        """Tell whether all workloads have pods, which are the latest ones, and ready."""
        workloads = self.cluster.items("statefulsets,deployments", "-n", NAMESPACE)
        for workload in workloads:
            status, replicas = workload["status"], workload["spec"]["replicas"]
            if status.get("observedGeneration") != workload["metadata"]["generation"]:
                return False
            if replicas == 0:
                return False
            counts = (
                status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")
            )
            if any(count != replicas for count in counts):
                return False
        return bool(workloads)

    def wait_ready(self, *, timeout_s: float = READY_S) -> None:
        """Wait until all pods are ready. Raises CommandFailed."""
        wait_until(self.is_ready, "all pods are ready", timeout_s=timeout_s)

    def wait_whole(self) -> float:
        """Close the ledgers of the topic, and wait until every entry has all its copies; return the
        time that took in seconds. Raises CommandFailed."""
        began = time.monotonic()
        self.seal()

        def is_whole() -> bool:
            # Exits with 1 for a violation.
            self.cluster.fencelog("check", "--json")
            marked: list[Any] = json.loads(
                self.cluster.fencelog("ledger", "underreplicated", "--json")
            )
            return not marked

        wait_until(is_whole, "every entry has its copies", timeout_s=WHOLE_S)
        return time.monotonic() - began

    def seal(self) -> None:
        """Have each partition closed by its broker and opened by another one: new ledgers."""

        def unload(partition: int) -> bool:
            self.cluster.fencelog("brokers", "unload", TOPIC, str(partition))
            return True

        for partition in range(PARTITIONS):
            what = f"partition {partition} is unloaded"
            wait_until(partial(unload, partition), what, timeout_s=120)

    def zookeeper_servers(self) -> dict[str, dict[str, str]]:
        """Return what each server of ZooKeeper says of itself, by its pod."""
        mntr = ("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/2181 && printf mntr >&3 && cat <&3")
        found = {}
        for pod in self.pods("zookeeper"):
            name = str(pod["metadata"]["name"])
            said = self.cluster.in_namespace("exec", name, "--", *mntr)
            found[name] = dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)
        return found

    # -- the load ----------------------------------------------------------------------------------

    def start_load(self) -> None:
        """Make the topic, and start the load on the last node. Raises CommandFailed."""
        self.cluster.fencelog("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
        self.load_node = self.nodes()[-1]
        self.cluster.kubectl("create", "namespace", LOAD_NAMESPACE)
        files = [f"--from-file={ROOT / 'tests/processes/k8s' / name}" for name in LOAD_FILES]
        self._load("create", "configmap", "load", *files)
        service = self.cluster.in_namespace(
            "get", "service", "fencelog", "-o", "jsonpath={.spec.clusterIP}"
        )
        # The address: answers about names may be late when the node of a DNS server is broken.
        pod = load_pod(f"http://{service}", self.load_node)
        self.cluster.kubectl("apply", "-f", "-", text=yaml.dump(pod))
        self._load("wait", "--for=condition=ready", "pod/load", "--timeout=120s")
        say(f"load on {self.load_node}")

    def ask_load(self, request: str) -> dict[str, Any]:
        """Tell the load to begin or end a window, or to verify. Raises CommandFailed."""
        ask = ("exec", "load", "--", "python3.11", "-m", "tests.processes.k8s.ask", request)
        answer: dict[str, Any] = json.loads(self._load(*ask, timeout_s=300))
        if "error" in answer:
            raise CommandFailed(f"the load cannot {request}: {answer['error']}")
        return answer

    def answers(self, address: str) -> bool:
        """Tell whether a broker answers the pod of the load within three seconds. Raises
        CommandFailed if that pod cannot be asked."""
        url = f"http://{address}:8080/healthz"
        ask = ("exec", "load", "--", "python3.11", "-c", _DOES_IT_ANSWER, url)
        return self._load(*ask).strip() == "yes"

    def _load(self, *arguments: str, timeout_s: float = 150) -> str:
        return self.cluster.kubectl("-n", LOAD_NAMESPACE, *arguments, timeout_s=timeout_s)

    # -- the end -----------------------------------------------------------------------------------

    def save_logs(self) -> Path:
        """Save what pods and events say; return the folder."""
        folder = self.cluster.place / "logs"
        folder.mkdir(exist_ok=True)
        for namespace in (NAMESPACE, LOAD_NAMESPACE):
            for pod in self.cluster.items("pods", "-n", namespace):
                name = pod["metadata"]["name"]
                for suffix, option in (("", "--previous=false"), (".previous", "--previous")):
                    try:
                        text = self.cluster.kubectl("-n", namespace, "logs", name, option)
                    except CommandFailed:
                        continue
                    (folder / f"{name}{suffix}.log").write_text(text, "utf-8")
        for kind in ("events", "pods"):
            text = self.cluster.kubectl("get", kind, "-A", "-o", "wide")
            (folder / f"{kind}.txt").write_text(text, "utf-8")
        return folder

    def remove(self) -> None:
        """Remove everything that the test made. Raises CommandFailed."""
        say("removing everything")
        self.cluster.kubectl("delete", "namespace", LOAD_NAMESPACE, "--ignore-not-found")
        if self.kind == HELM:
            self.cluster.type(f"helm uninstall fencelog -n {NAMESPACE} --ignore-not-found")
            self.cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
            classes = ("fencelog-storage", "fencelog-service")  # Helm leaves them.
            self.cluster.kubectl("delete", "priorityclass", *classes, "--ignore-not-found")
            return
        self.cluster.kubectl(
            *("delete", "-k", str(self.overlay), "--ignore-not-found"), timeout_s=600
        )


def small_requests(name: str) -> dict[str, Any]:
    """Return the patch that has the container of a workload request little."""
    operation = {
        "op": "replace",
        "path": "/spec/template/spec/containers/0/resources/requests",
        "value": {"cpu": _CPU[name], **_SMALL},
    }
    target = {"kind": "StatefulSet|Deployment", "name": name}
    return {"target": target, "patch": yaml.dump([operation])}


def load_pod(server: str, node: str) -> dict[str, Any]:
    """Return the pod of the load, as restricted as every other."""
    scratch = {"name": "scratch", "mountPath": "/tmp"}
    code = {"name": "code", "mountPath": "/load"}
    container = {
        "name": "load",
        "image": f"{REGISTRY}/fencelog:{NEXT_TAG}",  # the one that this code belongs to
        "command": ["python3.11", "-u", "-m", "tests.processes.k8s.load", server, TOPIC],
        "env": [{"name": "PYTHONPATH", "value": "/load:/opt/fencelog"}],
        "startupProbe": {
            "exec": {"command": ["python3.11", "-m", "tests.processes.k8s.ask", "ping"]},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 30,
        },
        "resources": {"requests": {"cpu": _CPU_OF_LOAD}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [code, scratch],
    }
    items = [{"key": name, "path": f"tests/processes/k8s/{name}"} for name in LOAD_FILES]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "load", "namespace": LOAD_NAMESPACE},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "code", "configMap": {"name": "load", "items": items}},
                {"name": "scratch", "emptyDir": {}},
            ],
        },
    }
