"""The Helm chart makes what kustomize makes, the base or the overlay prod, by its values."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.helm.render import (
    K8S,
    Manifest,
    alternatives,
    kustomize,
    objects,
    rendered,
    with_components,
)
from tests.house.manifests import by_title, containers, title
from tests.processes.k8s.document import block
from tests.processes.k8s.scenarios.pods import UPDATE_BY_HELM

CHART = K8S / "helm"

RENDER = """
import json, sys
from helm_python import Chart, lint
chart, values, namespace = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
with Chart.load(chart) as loaded:
    files = loaded.render(values, name="fencelog", namespace=namespace)
print(json.dumps({"files": files, "lint": lint(chart, values, strict=True)}))
"""
"""A process of its own: the library starts threads, and takes signals."""

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def helm(
    values: Manifest, namespace: str = "fencelog", chart: Path = CHART
) -> tuple[list[Manifest], list[Any]]:
    """What Helm makes of the chart and values, and what it complains of."""
    command = [sys.executable, "-c", RENDER, str(chart), json.dumps(values), namespace]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    made = [each for text in said["files"].values() for each in yaml.safe_load_all(text) if each]
    return made, said["lint"]["errors"]


def plain(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Objects by their titles; a name that follows from contents is one that does not."""
    text = re.sub(r"\bzookeeper-[0-9a-z]{10}\b", "zookeeper", json.dumps(manifests))
    return {title(each): each for each in json.loads(text)}


def values(name: str) -> Manifest:
    found: Manifest = yaml.safe_load((CHART / f"{name}.yaml").read_text("utf-8"))
    return found


@pytest.mark.parametrize(("name", "folder"), [("values", "base"), ("values_prod", "overlays/prod")])
def test_a_chart_is_what_kustomize_makes(name: str, folder: str) -> None:
    made, errors = helm(values(name))
    assert errors == []
    expected = plain(objects(kustomize(K8S / folder)))
    assert plain(made).keys() == expected.keys()
    for each, manifest in plain(made).items():
        assert manifest == expected[each], each


def test_the_files_are_what_is_written_from_kustomize() -> None:
    found = rendered()
    for path, text in found.items():
        assert path.read_text("utf-8") == text, f"python k8s/helm/render.py, for {path.name}"
    assert {path for path in found if path.parent != CHART} == set(Path(CHART).glob("templates/*"))


def test_credentials_are_what_the_component_makes() -> None:
    made, errors = helm({**values("values"), "zookeeperCredentials": "zookeeper-credentials"})
    assert errors == []
    expected = plain(objects(with_components("zookeeper-credentials")))
    assert plain(made) == expected
    other, _ = helm({**values("values"), "zookeeperCredentials": "the-next-ones"})
    named = re.findall(r'"secretName": "([^"]+)"', json.dumps(other))
    assert named == ["the-next-ones"] * 3, "another Secret restarts what has it"


def test_tls_is_what_the_component_makes_and_one_role_after_the_other() -> None:
    given = values("values")
    given["zookeeper"]["tls"] = True
    for secret, components in (("", []), ("zookeeper-credentials", ["zookeeper-credentials"])):
        given["zookeeperCredentials"] = secret
        made, errors = helm(given)
        assert errors == []
        expected = with_components(*components, "zookeeper-tls/servers")
        assert plain(made) == plain(objects(expected))
    for role in ("bookie", "autorecovery", "broker"):
        given[role]["zookeeperTls"] = True
    expected = with_components("zookeeper-credentials", "zookeeper-tls")
    made, errors = helm(given)
    assert errors == []
    assert plain(made) == plain(objects(expected))
    given["broker"]["zookeeperTls"] = False
    changed = {name for name, each in plain(helm(given)[0]).items() if each != plain(made)[name]}
    assert changed == {"Deployment/broker"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bookies": {"replicas": 9}}, "'bookies' not allowed"),
        ({"zookeeperTls": True}, "'zookeeperTls' not allowed"),
        ({"bookie": {"tls": True}}, "'tls' not allowed"),
        ({"broker": {"autoscaling": True}}, "'autoscaling' not allowed"),
        ({"autoscaling": "false"}, "'/autoscaling': got string"),
        ({"zookeeper": {"tls": "false"}}, "'/zookeeper/tls': got string"),
        ({"zookeeperCredentials": False}, "'/zookeeperCredentials': got boolean"),
        ({"image": {"repository": "x"}}, "'/image': got object"),
        ({"bookie": {"replicas": "5"}}, "'/bookie/replicas': got string"),
        ({"bookie": {"replicas": None}}, "missing property 'replicas'"),
        ({"broker": {"extraArgs": ["--copies", 2]}}, "'/broker/extraArgs/1': got number"),
        (
            {"zookeeper": {"replicas": 5}},
            "replicas is 5, and the configuration has 3 servers",
        ),
        (
            {"zookeeper": {"configuration": "server.1=a"}},
            "replicas is 3, and the configuration has 1 servers",
        ),
    ],
)
def test_a_value_that_would_do_nothing_is_refused(wrong: Manifest, said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm(wrong)
    assert said in refused.value.stderr


def test_servers_are_as_many_as_members() -> None:
    other = "server.4=zookeeper-3.zookeeper-peers:2888:3888\n"
    configuration = values("values")["zookeeper"]["configuration"] + other
    for replicas, zoo_cfg in ((4, configuration), (0, configuration), (1, "tickTime=2000\n")):
        made, errors = helm({"zookeeper": {"replicas": replicas, "configuration": zoo_cfg}})
        assert errors == []
        assert by_title(made, "StatefulSet/zookeeper")["spec"]["replicas"] == replicas


def test_a_chart_may_be_a_part_of_another_one() -> None:
    """``enabled`` is what a parent's ``condition`` asks for."""
    assert helm({"global": {"storageClass": "fast"}, "enabled": True})[1] == []


def test_a_list_that_an_earlier_chart_did_not_have_is_empty() -> None:
    """``--reuse-values`` has the defaults of the earlier chart; null stands for what it lacked."""
    expected, _ = helm({})
    assert helm({role: {"extraArgs": None} for role in ("bookie", "broker", "autorecovery")}) == (
        expected,
        [],
    )
    secret = {"zookeeperCredentials": "zookeeper-credentials", "bookie": {"volumes": None}}
    bookie = by_title(helm(secret)[0], "StatefulSet/bookie")
    (volume,) = bookie["spec"]["template"]["spec"]["volumes"]
    assert volume["name"] == "zookeeper-credentials"


def test_what_other_releases_or_a_later_one_need_is_left() -> None:
    made, _ = helm(values("values_prod"))
    kept = {
        title(each)
        for each in made
        if each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {
        "PriorityClass/fencelog-service",
        "PriorityClass/fencelog-storage",
        "PersistentVolumeClaim/zookeeper-backup",
    }


@pytest.mark.parametrize("live", [{}, {"spec": {"replicas": 5}}])
def test_an_update_leaves_the_autoscaler_its_number(tmp_path: Path, live: Manifest) -> None:
    """Nothing is looked up where nothing is installed: a value stands for what is."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    (chart / "values.schema.json").unlink()
    template = chart / "templates/broker.yaml"
    asked = 'lookup "apps/v1" "Deployment" .Release.Namespace "broker"'
    text = template.read_text("utf-8")
    assert text.count(asked) == 1
    template.write_text(text.replace(asked, ".Values.live"), "utf-8")
    for autoscaling, expected in ((True, live.get("spec", {})), (False, {"replicas": 2})):
        made, _ = helm({"autoscaling": autoscaling, "live": live}, chart=chart)
        spec = by_title(made, "Deployment/broker")["spec"]
        assert {name: spec[name] for name in spec if name == "replicas"} == expected


@pytest.mark.parametrize("missing", ["zookeeperCredentials", "tls"])
def test_tls_takes_credentials_and_servers_that_have_it(missing: str) -> None:
    given = {**values("values"), "zookeeperCredentials": "zookeeper-credentials"}
    given["zookeeper"]["tls"] = given["broker"]["zookeeperTls"] = True
    (given if missing in given else given["zookeeper"])[missing] = ""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm(given)
    assert missing in refused.value.stderr


def test_templates_have_what_differs_alone() -> None:
    assert alternatives("a\nb\nc\n", ("C", "a\nx\nc\n"), ("T", "a\ny\nc\n")) == (
        "a\n{{- if T }}\ny\n{{- else if C }}\nx\n{{- else }}\nb\n{{- end }}\nc\n"
    )
    assert alternatives("a\n", ("C", "a\n"), ("T", "a\nt\n")) == ("a\n{{- if T }}\nt\n{{- end }}\n")
    assert alternatives("a\n", ("C", "c\na\n"), ("T", "c\na\n")) == (
        "{{- if C }}\nc\n{{- end }}\na\n"
    )


def test_values_arrive() -> None:
    given = values("values")
    given["image"] = "registry.example.org/fencelog@sha256:12"
    given["bookie"]["image"] = "registry.example.org/fencelog:next"
    given["broker"] |= {"replicas": 7, "extraArgs": ["--allow-host", 'a "name"']}
    given["zookeeper"]["configuration"] += "tickTime=3000\n"
    made, errors = helm(given, namespace="elsewhere")
    assert errors == []
    broker = by_title(made, "Deployment/broker")
    (container,) = broker["spec"]["template"]["spec"]["containers"]
    assert broker["spec"]["replicas"] == 7
    assert container["args"][-2:] == ["--allow-host", 'a "name"']
    namespaced = [each for each in made if each["kind"] != "PriorityClass"]
    assert {each["metadata"]["namespace"] for each in namespaced} == {"elsewhere"}
    assert images_of(made) == {
        *(given["image"], given["zookeeper"]["image"], given["bookie"]["image"])
    }
    # The init container is of the same version.
    bookie = by_title(made, "StatefulSet/bookie")
    assert {each["image"] for each in containers(bookie)} == {given["bookie"]["image"]}
    for role in ("broker", "autorecovery"):
        (container,) = containers(by_title(made, f"Deployment/{role}"))
        assert container["image"] == given["image"]
    # Another configuration has another name, so that servers are restarted for it.
    names = [
        {each["metadata"]["name"] for each in objects_ if each["kind"] == "ConfigMap"}
        for objects_ in (made, helm(values("values"))[0])
    ]
    assert len(names[0]) == 1
    assert names[0] != names[1]


def test_an_update_as_documented_leaves_no_earlier_image() -> None:
    # The defaults are those of the new chart.
    assert "--reset-then-reuse-values --set" in block(UPDATE_BY_HELM).text
    given = values("values_prod")
    (earlier,) = {found for found in images_of(helm(given)[0]) if "fencelog" in found}
    for names in re.findall(r"((?:[\w.]+=\$to,?)+)$", block(UPDATE_BY_HELM).text, re.MULTILINE):
        for name in names.replace("=$to", "").split(","):
            *roles, last = name.split(".")
            (given.setdefault(roles[0], {}) if roles else given)[last] = "fencelog:next"
    found = images_of(helm(given)[0])
    assert "fencelog:next" in found
    assert earlier not in found


def images_of(made: list[Manifest]) -> set[str]:
    return set(re.findall(r'"image": "([^"]+)"', json.dumps(made)))


def test_a_component_is_there_if_it_is_wanted() -> None:
    given = values("values_prod")
    everything = set(plain(helm(given)[0]))
    parts = (("autoscaling", 1), ("backup", 5), ("drills", 2), ("priorityClasses", 2))
    for component, count in parts:
        without = set(plain(helm({**given, component: False})[0]))
        assert len(everything - without) == count, component
