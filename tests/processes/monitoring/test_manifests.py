"""The manifests for the Prometheus operator fit the pods and policies of the base."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.house.manifests import VERSIONS, Manifest, containers, pod_template, render
from tests.processes.monitoring.prometheus import DASHBOARDS, MONITORING
from tests.support.house import ROOT


def read(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((MONITORING / name).read_text("utf-8")))


@pytest.fixture(scope="module")
def base() -> list[Manifest]:
    return render(ROOT / "k8s" / "base")


def labels_of(workload: Manifest) -> dict[str, str]:
    """The labels of its pods; none if it has no pods."""
    template = pod_template(workload) or {"metadata": {"labels": {}}}
    labels: dict[str, str] = template["metadata"]["labels"]
    return labels


def pods_of(base: list[Manifest], labels: dict[str, str]) -> list[Manifest]:
    """The workloads whose pods have these labels."""
    return [each for each in base if labels.items() <= labels_of(each).items()]


def port_of(workload: Manifest, name: str) -> int:
    ports = [port for each in containers(workload) for port in each.get("ports", ())]
    (found,) = (port["containerPort"] for port in ports if port["name"] == name)
    assert isinstance(found, int)
    return found


def test_monitors_ask_ports_that_policies_open(base: list[Manifest]) -> None:
    policies = [each for each in base if each["kind"] == "NetworkPolicy"] + read("network.yaml")
    asked = {}
    for monitor in read("pod_monitors.yaml"):
        spec = monitor["spec"]
        (workload,) = pods_of(base, spec["selector"]["matchLabels"])
        (endpoint,) = spec["podMetricsEndpoints"]
        assert endpoint["path"] == "/metrics"
        job = labels_of(workload)[spec["jobLabel"]]
        asked[job] = port_of(workload, endpoint["port"])
        assert asked[job] in open_ports(policies, job)
    assert asked == {"broker": 8080, "bookie": 8081, "zookeeper": 7000}


def open_ports(policies: list[Manifest], name: str) -> set[int]:
    """The ports of a role that Prometheus may reach from another namespace."""
    found = set()
    for policy in policies:
        spec = policy["spec"]
        if spec["podSelector"].get("matchLabels") != {"app.kubernetes.io/name": name}:
            continue
        for rule in spec.get("ingress", ()):
            if "from" not in rule or any(admits(peer) for peer in rule["from"]):
                found |= {port["port"] for port in rule["ports"]}
    return found


def admits(peer: dict[str, Any]) -> bool:
    labels = peer.get("podSelector", {}).get("matchLabels")
    return peer.get("namespaceSelector") == {} and labels == {
        "app.kubernetes.io/name": "prometheus"
    }


def test_without_the_policies_storage_cannot_be_asked(base: list[Manifest]) -> None:
    policies = [each for each in base if each["kind"] == "NetworkPolicy"]
    assert 8081 not in open_ports(policies, "bookie")
    assert 7000 not in open_ports(policies, "zookeeper")


def test_zookeeper_shows_metrics_at_the_port_that_is_asked(base: list[Manifest]) -> None:
    overlays = ROOT / "k8s" / "overlays"
    for path in (ROOT / "k8s/base/zoo.cfg", *overlays.glob("*/zoo.cfg")):
        lines = path.read_text("utf-8").splitlines()
        assert "metricsProvider.httpPort=7000" in lines
        (provider,) = (line for line in lines if line.startswith("metricsProvider.className="))
        assert provider.endswith(
            "=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_policy_is_valid(version: str) -> None:
    for policy in read("network.yaml"):
        assert kubernetes_validate.validate(policy, version, strict=True)


def test_everything_is_applied() -> None:
    (given,) = read("kustomization.yaml")
    (generated,) = given["configMapGenerator"]
    assert [MONITORING / name for name in generated["files"]] == DASHBOARDS
    assert generated["options"]["labels"] == {"grafana_dashboard": "1"}
    kinds = [each["kind"] for name in given["resources"] for each in read(name)]
    assert sorted(kinds) == ["NetworkPolicy"] * 2 + ["PodMonitor"] * 3 + ["PrometheusRule"]
    assert given["namespace"] == "fencelog"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_it() -> None:
    command = ["kubectl", "kustomize", str(MONITORING)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rendered = list(yaml.safe_load_all(run.stdout))
    assert {each["metadata"]["namespace"] for each in rendered} == {"fencelog"}
    (dashboards,) = (each for each in rendered if each["kind"] == "ConfigMap")
    assert dashboards["data"] == {path.name: path.read_text("utf-8") for path in DASHBOARDS}
    assert dashboards["metadata"]["name"] == "fencelog-dashboards"
