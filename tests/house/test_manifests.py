"""The Kubernetes base: valid for old and new servers, restricted, and true to the command line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from fencelog.api.cli.main import application
from tests.house.manifests import (
    VERSIONS,
    Manifest,
    by_title,
    containers,
    kubectl_renders,
    pod_labels,
    pod_template,
    render,
    selects,
    title,
)

BASE = Path(__file__).parents[2] / "k8s" / "base"

IN_COMPONENTS = {
    *("CronJob/drills", "CronJob/zookeeper-backup", "HorizontalPodAutoscaler/broker"),
    *("NetworkPolicy/drills", "NetworkPolicy/zookeeper-backup"),
    *("NetworkPolicy/zookeeper-from-backup", "PersistentVolumeClaim/zookeeper-backup"),
}


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render(BASE)


@pytest.fixture(scope="module")
def workloads(manifests: list[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if pod_template(manifest)]


def configuration(manifests: list[Manifest]) -> str:
    """Return the zoo.cfg that ZooKeeper's pods mount: that of a ConfigMap with another name for
    other contents."""
    volumes = by_title(manifests, "StatefulSet/zookeeper")["spec"]["template"]["spec"]["volumes"]
    (name,) = (volume["configMap"]["name"] for volume in volumes if "configMap" in volume)
    assert re.fullmatch("zookeeper-[0-9a-z]{10}", name)
    text: str = by_title(manifests, f"ConfigMap/{name}")["data"]["zoo.cfg"]
    return text


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(manifests: list[Manifest], version: str) -> None:
    for manifest in manifests:
        assert kubernetes_validate.validate(manifest, version, strict=True)


def test_validation_is_strict(manifests: list[Manifest]) -> None:
    wrong = {**manifests[0], "spec": {"finalisers": []}}
    with pytest.raises(kubernetes_validate.ValidationError, match="finalisers"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_base_holds_what_a_cluster_needs(manifests: list[Manifest]) -> None:
    assert {title(manifest) for manifest in manifests} >= {
        "Namespace/fencelog",
        "StatefulSet/zookeeper",
        "StatefulSet/bookie",
        "Deployment/broker",
        "Deployment/autorecovery",
        "NetworkPolicy/default-deny",
        "Service/zookeeper",
        "Service/bookie",
        "Service/fencelog",
    }
    assert len({title(manifest) for manifest in manifests}) == len(manifests)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_the_same(manifests: list[Manifest]) -> None:
    rendered = {title(manifest): manifest for manifest in kubectl_renders(BASE)}
    assert rendered == {title(manifest): manifest for manifest in manifests}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_an_overlay_is_valid_and_holds_what_the_base_holds(
    manifests: list[Manifest], overlay: str
) -> None:
    rendered = kubectl_renders(BASE.parent / "overlays" / overlay)
    for version in VERSIONS:
        for manifest in rendered:
            assert kubernetes_validate.validate(manifest, version, strict=True)
    others = {title(each) for each in manifests} ^ {title(each) for each in rendered}
    # What components add is the subject of test_components.py.
    assert {name.split("-")[0] for name in others - IN_COMPONENTS} <= {"ConfigMap/zookeeper"}
    assert others & IN_COMPONENTS == (IN_COMPONENTS if overlay == "prod" else set())
    rules = {
        # A zone that is lost, whose nodes are tainted, is no zone without pods.
        (constraint["whenUnsatisfiable"], constraint.get("nodeTaintsPolicy"))
        for manifest in rendered
        if (template := pod_template(manifest)) and manifest["kind"] != "CronJob"
        for constraint in template["spec"]["topologySpreadConstraints"]
    }
    rule = ("DoNotSchedule", "Honor") if overlay == "prod" else ("ScheduleAnyway", None)
    assert rules == {rule}
    volumes = by_title(rendered, "StatefulSet/bookie")["spec"]["template"]["spec"]["volumes"]
    (racks,) = (volume["configMap"] for volume in volumes if "configMap" in volume)
    assert racks == {"name": "racks", "optional": overlay != "prod"}
    servers = configuration(rendered).count("\nserver.")
    replicas = by_title(rendered, "StatefulSet/zookeeper")["spec"]["replicas"]
    assert (servers, replicas) == ((3, 3) if overlay == "prod" else (0, 1))
    # Without the zone that has the most, three bookies remain.
    bookies = by_title(rendered, "StatefulSet/bookie")["spec"]["replicas"]
    assert bookies - (bookies + 2) // 3 >= 3 if overlay == "prod" else bookies == 3


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_overlay_of_one_node_leaves_something_of_two_cores_and_4_gib() -> None:
    requested = dict.fromkeys(("cpu", "memory"), 0.0)
    for workload in kubectl_renders(BASE.parent / "overlays/dev"):
        if template := pod_template(workload):
            for container in template["spec"]["containers"]:
                for resource in requested:
                    wanted = amount(container["resources"]["requests"][resource])
                    requested[resource] += workload["spec"]["replicas"] * wanted
    assert 0 < requested["cpu"] <= 1
    assert 0 < requested["memory"] <= 2 * 2**30


def amount(quantity: str) -> float:
    """A quantity of Kubernetes as a number."""
    for suffix, factor in (("m", 1e-3), ("Mi", 2.0**20), ("Gi", 2.0**30)):
        if quantity.endswith(suffix):
            return float(quantity.removesuffix(suffix)) * factor
    return float(quantity)


def test_a_bookie_leaves_by_a_job_that_policies_let_through(manifests: list[Manifest]) -> None:
    text = (BASE.parent / "jobs" / "decommission.yaml").read_text("utf-8")
    job = yaml.safe_load(text.replace("BOOKIE", "bookie-4").replace("CREDENTIALS", "none"))
    for version in VERSIONS:
        assert kubernetes_validate.validate(
            job | {"metadata": {**job["metadata"], "name": "given-by-the-server"}},
            version,
            strict=True,
        )
    clients = by_title(manifests, "NetworkPolicy/storage-clients")["spec"]["podSelector"]
    assert selects(clients, pod_labels(job))
    (container,) = containers(job)
    command: Any = get_command(application())
    arguments = list(container["args"])
    for name in ("bookie", "decommission"):
        assert arguments.pop(0) == name
        command = command.commands[name]
    parsed = command.make_context(command.name, arguments)
    assert parsed.params["bookie"] == "bookie-4"
    assert parsed.params["yes"] is True


def test_selectors_find_pods(manifests: list[Manifest], workloads: list[Manifest]) -> None:
    templates = [pod_labels(workload) for workload in workloads]
    for manifest in manifests:
        spec = manifest.get("spec", {})
        selector = spec.get("selector", spec.get("podSelector"))
        if selector is None:
            continue
        assert any(selects(selector, labels) for labels in templates), title(manifest)


def test_services_and_probes_name_ports_that_exist(
    manifests: list[Manifest], workloads: list[Manifest]
) -> None:
    for workload in workloads:
        for container in workload["spec"]["template"]["spec"]["containers"]:
            if workload["metadata"]["name"] == "autorecovery":
                assert not container.keys() & {"ports", "readinessProbe", "livenessProbe"}
                continue  # It listens nowhere.
            open_ports = {port["name"] for port in container["ports"]}
            probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
            handlers = [probe.get("tcpSocket") or probe.get("httpGet") for probe in probes]
            assert {handler["port"] for handler in handlers if handler} <= open_ports
    for service in (manifest for manifest in manifests if manifest["kind"] == "Service"):
        selector = service["spec"]["selector"].items()
        target = next(item for item in workloads if selector <= pod_labels(item).items())
        ports = {port["name"] for item in containers(target) for port in item.get("ports", ())}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_pods_are_restricted(workloads: list[Manifest]) -> None:
    for workload in workloads:
        spec = workload["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(workload):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            requests, limits = (container["resources"][kind] for kind in ("requests", "limits"))
            assert {"cpu", "memory", "ephemeral-storage"} <= requests.keys()
            assert {"memory", "ephemeral-storage"} <= limits.keys()


def test_every_workload_gives_up_one_pod_at_a_time(
    manifests: list[Manifest], workloads: list[Manifest]
) -> None:
    for workload in workloads:
        budget = by_title(manifests, f"PodDisruptionBudget/{workload['metadata']['name']}")
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budget["spec"]["selector"] == workload["spec"]["selector"]


def test_stateful_sets_keep_their_data(manifests: list[Manifest]) -> None:
    for name in ("zookeeper", "bookie"):
        stateful_set = by_title(manifests, f"StatefulSet/{name}")
        claims = {
            claim["metadata"]["name"] for claim in stateful_set["spec"]["volumeClaimTemplates"]
        }
        (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert claims <= mounts.keys()
        assert mounts["data"] == "/data"
        assert len(claims) == 2, "what is synced for each write has a volume of its own"
        retained = stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]
        assert retained == {"whenDeleted": "Retain", "whenScaled": "Retain"}
        service = by_title(manifests, f"Service/{stateful_set['spec']['serviceName']}")
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True


def test_every_zookeeper_server_is_configured(manifests: list[Manifest]) -> None:
    stateful_set = by_title(manifests, "StatefulSet/zookeeper")
    service = stateful_set["spec"]["serviceName"]
    configured = configuration(manifests)
    servers = re.findall(r"^server\.(\d+)=([^:]+):2888:3888$", configured, re.MULTILINE)
    replicas = range(stateful_set["spec"]["replicas"])
    assert servers == [(str(i + 1), f"zookeeper-{i}.{service}") for i in replicas]


def test_commands_and_options_exist(workloads: list[Manifest]) -> None:
    command_line: Any = get_command(application())
    for workload in workloads:
        for container in containers(workload):
            if not container["image"].startswith("fencelog:"):
                continue
            command, arguments = command_line, list(container["args"])
            while arguments and not arguments[0].startswith("--"):
                command = command.commands[arguments.pop(0)]
            parsed = command.make_context(command.name, arguments)  # Refuses what is not known.
            assert parsed.args == []


def test_a_bookie_has_the_name_of_its_volume(manifests: list[Manifest]) -> None:
    """The name of a pod, by which it finds its volume again."""
    *_, bookie = containers(by_title(manifests, "StatefulSet/bookie"))
    (broker,) = containers(by_title(manifests, "Deployment/broker"))
    for container in (bookie, broker):
        arguments = container["args"]
        assert arguments[arguments.index("--id") + 1] == "$(POD_NAME)"


def test_who_is_found_gives_an_address_that_no_cache_outlives(manifests: list[Manifest]) -> None:
    """The address of the pod, not a name that is answered from caches when the pod has gone."""
    for name in ("StatefulSet/bookie", "Deployment/broker"):
        *_, container = containers(by_title(manifests, name))
        arguments = container["args"]
        assert "$(POD_IP)" in arguments[arguments.index("--advertise") + 1]


def test_bookies_are_probed_over_http(manifests: list[Manifest]) -> None:
    *_, bookie = containers(by_title(manifests, "StatefulSet/bookie"))
    arguments = bookie["args"]
    listen = arguments[arguments.index("--health") + 1]
    ports = {port["name"]: port["containerPort"] for port in bookie["ports"]}
    assert listen == f"0.0.0.0:{ports['health']}"
    paths = {
        kind: bookie[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}


def test_a_process_that_hangs_does_not_get_the_time_of_a_clean_stop(
    manifests: list[Manifest],
) -> None:
    for name in ("StatefulSet/bookie", "Deployment/broker"):
        workload = by_title(manifests, name)
        *_, container = containers(workload)
        grace_s = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert container["livenessProbe"]["terminationGracePeriodSeconds"] <= 10 < grace_s


def test_all_are_spread_over_zones_and_have_a_priority(
    manifests: list[Manifest], workloads: list[Manifest]
) -> None:
    classes = {item["metadata"]["name"] for item in manifests if item["kind"] == "PriorityClass"}
    for workload in workloads:
        spec = workload["spec"]["template"]["spec"]
        assert spec["priorityClassName"] in classes
        (constraint,) = spec["topologySpreadConstraints"]
        assert constraint["topologyKey"] == "topology.kubernetes.io/zone"
        assert constraint["labelSelector"] == workload["spec"]["selector"]


def test_no_command_of_the_image_is_needed_but_fencelog(manifests: list[Manifest]) -> None:
    """An image without a shell and without coreutils runs."""
    for manifest in manifests:
        for container in containers(manifest) if pod_template(manifest) else ():
            if container["image"].startswith("fencelog:"):
                assert not container.keys() & {"command", "lifecycle"}


def test_nothing_is_reached_but_by_a_policy_of_its_own(
    manifests: list[Manifest], workloads: list[Manifest]
) -> None:
    deny = by_title(manifests, "NetworkPolicy/default-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    clients = by_title(manifests, "NetworkPolicy/storage-clients")["spec"]["podSelector"]
    (selected,) = clients["matchExpressions"]
    for name in ("zookeeper", "bookie"):
        policy = by_title(manifests, f"NetworkPolicy/{name}")
        (admitted,) = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchExpressions"]
        assert set(admitted["values"]) == set(selected["values"])
    names = {pod_labels(workload)["app.kubernetes.io/name"] for workload in workloads}
    assert set(selected["values"]) - {"admin"} == names - {"zookeeper"}


def test_all_use_the_same_metadata_and_may_reach_it(
    manifests: list[Manifest], workloads: list[Manifest]
) -> None:
    users = {
        pod_labels(workload)["app.kubernetes.io/name"]: container["args"]
        for workload in workloads
        for container in containers(workload)
        if "--metadata" in container.get("args", ())
    }
    stores = {arguments[arguments.index("--metadata") + 1] for arguments in users.values()}
    assert len(stores) == 1
    policy = by_title(manifests, "NetworkPolicy/zookeeper")
    (admitted,) = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchExpressions"]
    assert set(admitted["values"]) == users.keys() | {"admin"}
    assert users.keys() == {"autorecovery", "bookie", "broker"}
