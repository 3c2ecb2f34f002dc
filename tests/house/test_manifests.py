"""The Kubernetes base: valid for old and new servers, restricted, and true to the command line."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from fencelog.api.cli.main import application
from tests.house.manifests import Manifest, containers, pod_template, render

BASE = Path(__file__).parents[2] / "k8s" / "base"

VERSIONS = ("1.27", kubernetes_validate.latest_version())
"""The oldest Kubernetes that the base is for, and the newest whose schema is known."""


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render(BASE)


@pytest.fixture(scope="module")
def workloads(manifests: list[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if pod_template(manifest)]


@pytest.fixture(scope="module")
def services(workloads: list[Manifest]) -> list[Manifest]:
    """The workloads that go on, unlike a Job."""
    return [workload for workload in workloads if workload["kind"] != "Job"]


def title(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def by_title(manifests: list[Manifest], name: str) -> Manifest:
    return next(manifest for manifest in manifests if title(manifest) == name)


def pod_labels(manifest: Manifest) -> dict[str, str]:
    labels: dict[str, str] = manifest["spec"]["template"]["metadata"]["labels"]
    return labels


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
        "Job/metadata-init",
        "Service/zookeeper",
        "Service/bookie",
        "Service/fencelog",
    }
    assert len({title(manifest) for manifest in manifests}) == len(manifests)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_the_same(manifests: list[Manifest]) -> None:
    command = ["kubectl", "kustomize", str(BASE)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rendered = {title(manifest): manifest for manifest in yaml.safe_load_all(run.stdout)}
    assert rendered == {title(manifest): manifest for manifest in manifests}


def test_selectors_find_pods(manifests: list[Manifest], workloads: list[Manifest]) -> None:
    templates = [pod_labels(workload) for workload in workloads]
    for manifest in manifests:
        spec = manifest.get("spec", {})
        selector = spec.get("selector", spec.get("podSelector"))
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= labels.items() for labels in templates), title(manifest)


def test_services_and_probes_name_ports_that_exist(
    manifests: list[Manifest], services: list[Manifest]
) -> None:
    for workload in services:
        for container in containers(workload):
            if workload["metadata"]["name"] == "autorecovery":
                assert not container.keys() & {"ports", "readinessProbe", "livenessProbe"}
                continue  # It listens nowhere.
            open_ports = {port["name"] for port in container["ports"]}
            probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
            handlers = [probe.get("tcpSocket") or probe.get("httpGet") for probe in probes]
            assert {handler["port"] for handler in handlers if handler} <= open_ports
    for service in (manifest for manifest in manifests if manifest["kind"] == "Service"):
        selector = service["spec"]["selector"].items()
        target = next(item for item in services if selector <= pod_labels(item).items())
        ports = {port["name"] for item in containers(target) for port in item["ports"]}
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
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]


def test_every_workload_gives_up_one_pod_at_a_time(
    manifests: list[Manifest], services: list[Manifest]
) -> None:
    for workload in services:
        budget = by_title(manifests, f"PodDisruptionBudget/{workload['metadata']['name']}")
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"] == workload["spec"]["selector"]


def test_stateful_sets_keep_their_data(manifests: list[Manifest]) -> None:
    for name in ("zookeeper", "bookie"):
        stateful_set = by_title(manifests, f"StatefulSet/{name}")
        claims = {
            claim["metadata"]["name"] for claim in stateful_set["spec"]["volumeClaimTemplates"]
        }
        (container,) = containers(stateful_set)
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounts["/data"] in claims
        service = by_title(manifests, f"Service/{stateful_set['spec']['serviceName']}")
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True


def test_every_zookeeper_server_is_configured(manifests: list[Manifest]) -> None:
    stateful_set = by_title(manifests, "StatefulSet/zookeeper")
    service = stateful_set["spec"]["serviceName"]
    configured = by_title(manifests, "ConfigMap/zookeeper")["data"]["zoo.cfg"]
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
            while not arguments[0].startswith("--"):
                command = command.commands[arguments.pop(0)]
            parsed = command.make_context(command.name, arguments)  # Refuses what is not known.
            assert parsed.args == []


def test_a_bookie_has_the_name_of_its_volume(manifests: list[Manifest]) -> None:
    """The name of a pod, by which it finds its volume again."""
    (bookie,) = containers(by_title(manifests, "StatefulSet/bookie"))
    arguments = bookie["args"]
    assert arguments[arguments.index("--id") + 1] == "$(POD_NAME)"


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
    assert set(admitted["values"]) == users.keys()
    assert users.keys() == {"autorecovery", "bookie", "broker", "metadata-init"}
