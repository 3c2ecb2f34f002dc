"""The cluster is the one that was named, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes.k8s.run_k8s import EXIT_NOTHING_TESTED, main
from tests.processes.k8s.target import NoCluster, Target, choose_target


def chosen(
    environment: dict[str, str], *, is_root: bool = True, has_kubectl: bool = True
) -> Target:
    return choose_target(
        environment,
        is_root=is_root,
        which=lambda name: f"/usr/bin/{name}" if has_kubectl else None,
        is_program=lambda path: path == "/there/lab",
    )


def test_no_cluster_is_taken_unless_it_is_named() -> None:
    for environment in ({}, {"KUBECONFIG": "", "K8S_LAB": ""}, {"HOME": "/root"}):
        with pytest.raises(NoCluster, match="KUBECONFIG names none, and K8S_LAB no lab"):
            chosen(environment)


def test_kubectl_reaches_the_cluster_of_kubeconfig() -> None:
    target = chosen({"KUBECONFIG": "/k"}, is_root=False)
    assert target == Target(kubectl=("/usr/bin/kubectl",))
    with pytest.raises(NoCluster, match="kubectl is not installed"):
        chosen({"KUBECONFIG": "/k"}, has_kubectl=False)


def test_a_lab_comes_first_and_brings_its_own_kubectl() -> None:
    target = chosen({"KUBECONFIG": "/k", "K8S_LAB": "/there/lab"}, has_kubectl=False)
    assert target == Target(kubectl=("/there/lab", "sh", "kubectl"), lab="/there/lab")


def test_a_lab_needs_root_and_has_to_be_there() -> None:
    with pytest.raises(NoCluster, match="needs root"):
        chosen({"K8S_LAB": "/there/lab"}, is_root=False)
    with pytest.raises(NoCluster, match="no program: /elsewhere"):
        chosen({"K8S_LAB": "/elsewhere"})


def test_images_and_faults_have_commands_of_their_own() -> None:
    environment = {"KUBECONFIG": "/k", "K8S_IMPORT": "kind load 'image-archive'"}
    target = chosen({**environment, "K8S_FAULT": "./break.sh --now"})
    assert target.load_image == ("kind", "load", "image-archive")
    assert target.fault_command("cut", "worker") == ["./break.sh", "--now", "cut", "worker"]


def test_a_lab_breaks_its_own_nodes_by_number() -> None:
    target = chosen({"K8S_LAB": "/there/lab"})
    assert target.fault_command("pause", "node2") == ["/there/lab", "pause", "2"]
    with pytest.raises(NoCluster, match="master is no node"):
        target.fault_command("pause", "master")
    with pytest.raises(NoCluster, match="K8S_FAULT names no command"):
        chosen({"KUBECONFIG": "/k"}).fault_command("cut", "node1")


def test_without_a_cluster_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("K8S_LAB", raising=False)
    assert main(["--place", str(tmp_path)]) == EXIT_NOTHING_TESTED
    output = capsys.readouterr()
    assert re.fullmatch(r"k8s-test: no cluster: .*\n", output.err)
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []


def test_without_helm_nothing_is_installed_by_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "kubectl").symlink_to("/bin/true")
    monkeypatch.delenv("K8S_LAB", raising=False)
    monkeypatch.setenv("KUBECONFIG", "/k")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--of", "helm", "--place", str(tmp_path / "place")]) == EXIT_NOTHING_TESTED
    assert capsys.readouterr().err == "k8s-test: helm is not installed\n"
    assert not (tmp_path / "place").exists()
