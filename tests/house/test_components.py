"""The components of k8s/components, in the overlay that has all: valid, restricted, let through by
policies, and true to the command line; and what k8s/jobs has besides."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from fencelog.api.cli.main import application
from k8s.helm.render import with_components
from tests.house.manifests import (
    VERSIONS,
    Manifest,
    by_title,
    containers,
    kubectl_renders,
    pod_labels,
    pod_template,
    selects,
    title,
)
from tests.processes.k8s.document import block
from tests.support.house import ROOT

K8S = ROOT / "k8s"

PLAIN = "zk://zookeeper:2181/fencelog"
WITH_CREDENTIALS = f"{PLAIN}?credentials=/zookeeper/users"
ENCRYPTED = "zks://zookeeper:2281/fencelog?ca=/zookeeper-tls/ca.crt&credentials=/zookeeper/users"
CREDENTIALS, TLS = "zookeeper-credentials", "zookeeper-tls"

NEEDS_KUBECTL = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed"
)


@pytest.fixture(scope="module")
def rendered() -> list[Manifest]:
    return kubectl_renders(K8S / "overlays" / "prod")


def job(name: str) -> Manifest:
    """A file of k8s/jobs, with what has to be put in put in."""
    text = (K8S / "jobs" / f"{name}.yaml").read_text("utf-8")
    for place, found in (
        *(("IMAGE", "image:1"), ("SERVER", "0"), ("BOOKIE", "bookie-4")),
        *(("METADATA", PLAIN), ("CREDENTIALS", "none")),
    ):
        text = text.replace(place, found)
    manifest: Manifest = yaml.safe_load(text)
    manifest["metadata"].setdefault("name", "given-by-the-server")
    return manifest


def pod_spec(manifest: Manifest) -> Manifest:
    spec: Manifest = (pod_template(manifest) or manifest)["spec"]
    return spec


def assert_restricted(manifest: Manifest) -> None:
    spec = pod_spec(manifest)
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        requests, limits = (container["resources"][kind] for kind in ("requests", "limits"))
        assert {"cpu", "memory", "ephemeral-storage"} <= requests.keys()
        assert {"memory", "ephemeral-storage"} <= limits.keys()


def parsed(arguments: list[str]) -> Any:
    """The parameters of a command; what is not known is refused."""
    command: Any = get_command(application())
    while hasattr(command, "commands") and not arguments[0].startswith("--"):
        command = command.commands[arguments.pop(0)]
    return command.make_context(command.name, arguments).params


def egress_of(manifests: list[Manifest], workload: Manifest) -> set[tuple[str, int]]:
    """What policies let the pods of a workload reach: names of pods, and ports, without DNS."""
    found = set()
    for policy in (each for each in manifests if each["kind"] == "NetworkPolicy"):
        if not selects(policy["spec"]["podSelector"], pod_labels(workload)):
            continue
        for rule in policy["spec"].get("egress", ()):
            for peer in rule["to"]:
                labels = peer.get("podSelector", {}).get("matchLabels", {})
                name = labels.get("app.kubernetes.io/name", "")
                found |= {(name, port["port"]) for port in rule["ports"] if name}
    return found


def admits(manifests: list[Manifest], to: str, workload: Manifest, port: int) -> bool:
    """Tell whether policies let pods of a role be reached by those of a workload."""
    return any(
        {"port": port} in rule["ports"]
        and (
            "from" not in rule
            or any(selects(peer["podSelector"], pod_labels(workload)) for peer in rule["from"])
        )
        for policy in manifests
        if policy["kind"] == "NetworkPolicy"
        and selects(policy["spec"]["podSelector"], {"app.kubernetes.io/name": to})
        for rule in policy["spec"].get("ingress", ())
    )


@NEEDS_KUBECTL
@pytest.mark.parametrize("name", ["drills", "zookeeper-backup"])
def test_a_cron_job_is_restricted_and_ends(rendered: list[Manifest], name: str) -> None:
    found = by_title(rendered, f"CronJob/{name}")
    assert_restricted(found)
    assert found["spec"]["concurrencyPolicy"] == "Forbid"
    assert found["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0


@NEEDS_KUBECTL
def test_drills_harm_nobody_and_reach_brokers_alone(rendered: list[Manifest]) -> None:
    drills = by_title(rendered, "CronJob/drills")
    (container,) = containers(drills)
    params = parsed(list(container["args"]))
    assert params["cluster"] == "http://fencelog"
    assert by_title(rendered, "Service/fencelog")["spec"]["ports"][0]["port"] == 80
    assert egress_of(rendered, drills) == {("broker", 8080)}
    assert admits(rendered, "broker", drills, 8080)
    assert drills["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0


@NEEDS_KUBECTL
def test_a_backup_reaches_the_servers_and_has_their_configuration(
    rendered: list[Manifest],
) -> None:
    backup = by_title(rendered, "CronJob/zookeeper-backup")
    zookeeper = by_title(rendered, "StatefulSet/zookeeper")
    assert egress_of(rendered, backup) == {("zookeeper", 2888), ("zookeeper", 3888)}
    for port in (2888, 3888):
        assert admits(rendered, "zookeeper", backup, port)
    assert not admits(rendered, "zookeeper", backup, 2181)
    mounted = [configuration(each) for each in (backup, zookeeper)]
    assert mounted[0] == mounted[1]
    assert containers_image(backup) == containers_image(zookeeper)
    assert heap_of(backup) == heap_of(zookeeper)
    # No Service leads clients to an observer.
    for service in (each for each in rendered if each["kind"] == "Service"):
        assert not selects(service["spec"]["selector"], pod_labels(backup))


@NEEDS_KUBECTL
def test_all_that_talk_to_zookeeper_have_the_credentials() -> None:
    plain = by_kind(kubectl_renders(K8S / "base"))
    protected = by_kind(with_components(CREDENTIALS))
    changed = {name for name, manifest in protected.items() if manifest != plain[name]}
    users = users_of(plain)
    assert changed == users
    for user in users:
        assert kubernetes_validate.validate(protected[user], VERSIONS[0], strict=True)
        assert_has_the_credentials(protected[user])
        secrets = [
            each["secret"] for each in pod_spec(protected[user])["volumes"] if "secret" in each
        ]
        assert secrets == [{"secretName": "zookeeper-credentials", "defaultMode": 0o440}]
    for name in ("decommission", "skip_ledger_ids"):
        text = (K8S / "jobs" / f"{name}.yaml").read_text("utf-8")
        assert_has_the_credentials(yaml.safe_load(text.replace("METADATA", WITH_CREDENTIALS)))


@NEEDS_KUBECTL
def test_the_servers_get_a_port_for_tls_before_anything_uses_it() -> None:
    plain = by_kind(with_components(CREDENTIALS))
    servers = by_kind(with_components(CREDENTIALS, f"{TLS}/servers"))
    settings = servers.keys() - plain.keys()
    assert {name for name in plain if servers[name] != plain[name]} == {
        *("StatefulSet/zookeeper", "Service/zookeeper"),
        *("NetworkPolicy/zookeeper", "NetworkPolicy/storage-clients"),
    }
    zookeeper = servers["StatefulSet/zookeeper"]
    assert kubernetes_validate.validate(zookeeper, VERSIONS[0], strict=True)
    volumes = {each["name"]: each for each in pod_spec(zookeeper)["volumes"]}
    assert settings == {f"ConfigMap/{volumes['tls-settings']['configMap']['name']}"}
    assert volumes["tls"]["secret"] == {"secretName": TLS, "defaultMode": 0o440}
    assert volumes["keys"]["emptyDir"]["medium"] == "Memory"
    for manifests in (servers, by_kind(with_components(CREDENTIALS, TLS))):
        for user in users_of(plain):
            assert admits(list(manifests.values()), "zookeeper", manifests[user], 2281)
            assert ("zookeeper", 2281) in egress_of(list(manifests.values()), manifests[user])
    (service,) = (each for each in servers["Service/zookeeper"]["spec"]["ports"][1:])
    (container,) = containers(zookeeper)
    port = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert port[service["targetPort"]] == service["port"] == 2281


@NEEDS_KUBECTL
def test_all_that_talk_to_zookeeper_do_it_over_tls() -> None:
    plain = by_kind(with_components(CREDENTIALS, f"{TLS}/servers"))
    encrypted = by_kind(with_components(CREDENTIALS, TLS))
    users = users_of(by_kind(kubectl_renders(K8S / "base")))
    assert {name for name in encrypted if encrypted[name] != plain[name]} == users
    jobs = [
        yaml.safe_load((K8S / "jobs" / f"{name}.yaml").read_text("utf-8").replace("METADATA", url))
        for name, url in (("decommission", ENCRYPTED), ("skip_ledger_ids", ENCRYPTED))
    ]
    for user in (*(encrypted[name] for name in users), *jobs):
        assert_has_the_credentials(user, ENCRYPTED)
        for container in containers(user):
            mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
            assert f"ca={mounts[TLS]}/ca.crt&" in ENCRYPTED
        (volume,) = (each for each in pod_spec(user)["volumes"] if each["name"] == TLS)
        # The key of the servers is for the servers alone.
        assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    for name in users:
        assert kubernetes_validate.validate(encrypted[name], VERSIONS[0], strict=True)


def users_of(plain: dict[str, Manifest]) -> set[str]:
    """Return what talks to ZooKeeper."""
    return {
        name
        for name, manifest in plain.items()
        for container in containers(manifest)
        if {PLAIN, WITH_CREDENTIALS} & set(container.get("args", ()))
    }


def assert_has_the_credentials(workload: Manifest, url: str = WITH_CREDENTIALS) -> None:
    """Its containers name a file in a volume that they have, and that their user may read."""
    for container in containers(workload):
        assert container["args"][container["args"].index("--metadata") + 1] == url
        mounts = {each["name"]: each for each in container["volumeMounts"]}
        assert mounts["zookeeper-credentials"]["mountPath"] == "/zookeeper"
        assert mounts["zookeeper-credentials"]["readOnly"] is True
    spec = pod_spec(workload)
    assert "zookeeper-credentials" in {each["name"] for each in spec["volumes"]}
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


@NEEDS_KUBECTL
def test_all_that_serve_accept_two_secrets_as_documented(tmp_path: Path) -> None:
    overlay = yaml.safe_load(block("# overlay/kustomization.yaml\nsecretGenerator").text)
    overlay["resources"] = [os.path.relpath(K8S / "base", os.path.realpath(tmp_path))]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    for name in ("secret", "accepted"):
        (tmp_path / name).write_text(name * 8, "utf-8")
    made = by_kind(kubectl_renders(tmp_path))
    (secret,) = (title(each) for each in made.values() if each["kind"] == "Secret")
    accepting = {"StatefulSet/bookie": True, "Deployment/broker": True}
    for name, accepts in {**accepting, "Deployment/autorecovery": False}.items():
        (volume,) = (each for each in pod_spec(made[name])["volumes"] if each["name"] == "secret")
        assert f"Secret/{volume['secret']['secretName']}" == secret
        (container,) = pod_spec(made[name])["containers"]
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        params = parsed(list(container["args"]))
        assert str(params["secret_file"]) == f"{mounts['secret']}/secret"
        accepted = f"{mounts['secret']}/accepted" if accepts else "None"
        assert str(params.get("accept_secret_file")) == accepted
        security = pod_spec(made[name])["securityContext"]
        assert security["fsGroup"] == security["runAsGroup"]


def by_kind(manifests: list[Manifest]) -> dict[str, Manifest]:
    return {title(each): each for each in manifests}


@NEEDS_KUBECTL
def test_alerts_about_jobs_name_those_that_there_are(rendered: list[Manifest]) -> None:
    written = yaml.safe_load(block("groups:\n  - name: fencelog-jobs").text)
    named = re.findall(r'cronjob="([^"]+)"', str(written))
    assert set(named) == {
        each["metadata"]["name"] for each in rendered if each["kind"] == "CronJob"
    }


def configuration(workload: Manifest) -> str:
    (name,) = (
        volume["configMap"]["name"]
        for volume in pod_spec(workload)["volumes"]
        if volume["name"] == "configuration"
    )
    assert isinstance(name, str)
    return name


def heap_of(workload: Manifest) -> str:
    (container,) = containers(workload)
    (flags,) = (each["value"] for each in container["env"] if each["name"] == "SERVER_JVMFLAGS")
    (limit,) = re.findall(r"-Xmx\w+", flags)
    return str(limit)


def containers_image(workload: Manifest) -> str:
    (container,) = containers(workload)
    image: str = container["image"]
    return image


@NEEDS_KUBECTL
def test_the_number_of_brokers_is_the_autoscalers(rendered: list[Manifest]) -> None:
    scaler = by_title(rendered, "HorizontalPodAutoscaler/broker")["spec"]
    broker = by_title(rendered, "Deployment/broker")
    target = scaler["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", "broker")
    assert "replicas" not in broker["spec"], "each apply would undo what was scaled"
    assert scaler["minReplicas"] >= 3
    (metric,) = scaler["metrics"]
    # A part of one core, however many a pod may have: a broker has one event loop.
    assert metric["resource"]["target"] == {"type": "AverageValue", "averageValue": "600m"}
    assert all(each["metadata"]["name"] != "bookie" for each in rendered if "maxReplicas" in each)
    down = scaler["behavior"]["scaleDown"]
    assert [policy["value"] for policy in down["policies"]] == [1]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["skip_ledger_ids", "zookeeper_backups", "zookeeper_restore"])
def test_what_a_restore_starts_is_valid_and_restricted(name: str, version: str) -> None:
    assert kubernetes_validate.validate(job(name), version, strict=True)
    assert_restricted(job(name))


@NEEDS_KUBECTL
def test_what_a_restore_starts_fits_the_cluster(rendered: list[Manifest]) -> None:
    skip = job("skip_ledger_ids")
    (container,) = containers(skip)
    bookie = by_title(rendered, "StatefulSet/bookie")
    assert parsed(list(container["args"]))["metadata"] in next(containers(bookie))["args"]
    assert ("zookeeper", 2181) in egress_of(rendered, skip)
    assert admits(rendered, "zookeeper", skip, 2181)
    templates = by_title(rendered, "StatefulSet/zookeeper")["spec"]["volumeClaimTemplates"]
    claims = {f"{template['metadata']['name']}-zookeeper-0" for template in templates}
    assert claims_of(job("zookeeper_restore")) == claims
    assert claims_of(job("zookeeper_backups")) == {"zookeeper-backup"}
    assert claims_of(by_title(rendered, "CronJob/zookeeper-backup")) == {"zookeeper-backup"}
    for name in ("zookeeper_restore", "zookeeper_backups"):
        assert egress_of(rendered, job(name)) == set()


def claims_of(workload: Manifest) -> set[str]:
    return {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod_spec(workload)["volumes"]
        if "persistentVolumeClaim" in volume
    }
