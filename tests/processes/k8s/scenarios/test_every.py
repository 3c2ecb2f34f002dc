"""The scenarios: chosen by name, played in one order, with commands that the document has."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencelog.api.processes.rack import rack_of
from fencelog.ledgers.metastore.zookeeper_credentials import credentials_from
from fencelog.ledgers.metastore.zookeeper_wire import CREATORS_ALONE, OPEN_TO_ALL
from fencelog.ledgers.rpc.bookie_port import DEFAULT_RACK
from tests.processes.k8s.cluster import CommandFailed
from tests.processes.k8s.document import OPERATIONS, block, blocks, part
from tests.processes.k8s.installation import BASE, DEV, HELM, NEXT_TAG, PROD, REGISTRY, TAG
from tests.processes.k8s.run_k8s import EXIT_NOTHING_TESTED, main
from tests.processes.k8s.scenarios.components import BACKUP_NAME, COMPONENTS
from tests.processes.k8s.scenarios.credentials import (
    CREDENTIALS,
    ENCRYPTED,
    NEW_USERS,
    OTHER_USERS,
    PORT,
    PROTECT,
    SECURE_PORT,
    SERVERS_FIRST,
    add_credentials,
    add_servers,
    connected_ports,
    use_them,
)
from tests.processes.k8s.scenarios.every import SCENARIOS, TYPED, choose_scenarios
from tests.processes.k8s.scenarios.pods import (
    FIRST_START,
    FIRST_START_BY_HELM,
    RACKS,
    REPAIR,
    RESTART,
    ROLL,
    UPDATE,
    UPDATE_BY_HELM,
)
from tests.processes.k8s.scenarios.scenario import UNNOTICED, expect_refusal
from tests.processes.k8s.scenarios.zookeeper import RESIZE_ZOOKEEPER, RESTORE, SERVER_LIST

BY_PROCESSES = "tests/processes/test_runbooks.py runs it"
NOT_TYPED = {
    "docker build": "takes a registry; `make image` makes what is installed",
    "fencelog metadata init": "without Kubernetes",
    'echo "fencelog:$(openssl rand -hex 32)" > overlay/zookeeper-users': "new clusters alone; "
    "`protect-zookeeper` changes one",
    "M='zks://zk1": "tests/conformance",
    "fencelog namespace set": "topics are not about Kubernetes",
    "fencelog topic trim": "topics are not about Kubernetes",
    "fencelog topic sweep": "topics are not about Kubernetes",
    "fencelog cookie list --metadata $M\n": "`replace-disk` needs the cookie that it shows",
    "fencelog cookie repair": "`replace-disk` runs it in a pod",
    "fencelog check --metadata $M     ": "every scenario ends with it",
    "fencelog bookies status": "no bookie is in limbo for long",
    "fencelog ledger recover": "nothing is ever lost",
    "fencelog bookie verify": "the image has no shell, and a volume one pod",
    "fencelog bookies scrub": BY_PROCESSES,
    "fencelog autorecovery --metadata": BY_PROCESSES,
    "fencelog bookies list --metadata $M                    # it is not": BY_PROCESSES,
    "fencelog bookie decommission": BY_PROCESSES,
    "fencelog cookie list --metadata $M    ": BY_PROCESSES,
    "fencelog drill all": "`run-drills` runs those that spare the cluster; `make drills` all",
    "make k8s-test": "is what runs",
    "python k8s/monitoring/render.py": "tests/processes/monitoring",
    "kubectl -n fencelog exec deployment/broker": "the test's own `fencelog` is this command",
    "kubectl delete node NODE": "its disks are lost for good; `replace-disk` plays what follows",
    "for number in 0 1 2": "volumes of the lab cannot be enlarged; `resize-volumes` plays the rest",
    "kubectl apply -k k8s/monitoring": "needs the kinds of the Prometheus operator",
}
"""Blocks that no scenario runs, and why."""


def names(*given: str) -> list[str]:
    return [scenario.name for scenario in choose_scenarios(given)]


def test_all_are_played_unless_some_are_named() -> None:
    assert names() == [scenario.name for scenario in SCENARIOS]
    assert len(set(names())) == len(SCENARIOS)


def test_some_are_played_in_the_order_of_all_after_the_first_apply() -> None:
    assert names("kill-broker", "restart-bookies", "kill-broker") == [
        "first-apply",
        "restart-bookies",
        "kill-broker",
    ]
    assert names("first-apply") == ["first-apply"]


def test_what_a_scenario_needs_is_played_before_it() -> None:
    assert names("cut-node") == ["first-apply", "set-racks", "add-bookies", "cut-node"]
    assert names("rotate-secret") == ["first-apply", "introduce-secret", "rotate-secret"]
    order = names()
    assert all(order.index(each.needs) < order.index(each.name) for each in SCENARIOS if each.needs)


def test_an_installation_is_played_without_what_it_has_from_the_beginning_or_has_not() -> None:
    assert names() == [each.name for each in SCENARIOS if BASE in each.kinds]
    for kind, without in ((PROD, "add-bookies"), (DEV, "kill-broker"), (HELM, "mix-versions")):
        every = [scenario.name for scenario in choose_scenarios((), kind)]
        assert without in names()
        assert without not in every
        assert every == [name for name in names() if name in every]
        with pytest.raises(LookupError, match=f"no scenario {without}"):
            choose_scenarios((without,), kind)
    chosen = [scenario.name for scenario in choose_scenarios(("lose-zone",), PROD)]
    assert chosen == ["first-apply", "lose-zone"]


@pytest.mark.parametrize("kind", [DEV, PROD, HELM])
def test_what_a_scenario_needs_in_another_installation_is_played_there(kind: str) -> None:
    # Bookies, racks and components that the overlay of PROD has are not added to it.
    had = {"add-bookies", "set-racks", "add-components"} if kind == PROD else set()
    every = choose_scenarios((), kind)
    there = {each.name for each in every} | had
    assert [each.name for each in every if each.needs and each.needs not in there] == []


def test_the_update_by_helm_changes_every_image_of_fencelog_brokers_last() -> None:
    changed = re.findall(r"(\w+)\.image=", block(UPDATE_BY_HELM).text)
    assert changed == ["bookie", "autorecovery", "broker"]
    assert f"{REGISTRY}/fencelog:{TAG}" in block(FIRST_START_BY_HELM).text
    assert block(UPDATE_BY_HELM).text.count(f":{NEXT_TAG}") == 1


def test_a_name_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LookupError, match=r"no scenario kill-all; there are first-apply, "):
        names("kill-broker", "kill-all")
    assert main(["kill-all"]) == EXIT_NOTHING_TESTED
    assert "no scenario kill-all" in capsys.readouterr().err


def test_only_the_first_one_is_played_without_a_load() -> None:
    assert [each.name for each in SCENARIOS if each.limits is None] == ["first-apply"]


def test_a_planned_change_may_not_be_noticed() -> None:
    planned = {each.name: each.limits for each in SCENARIOS}
    for name in (
        "restart-bookies",
        "restart-brokers",
        "new-tag",
        "drain-broker",
        "stop-adds",
        "drain-node",
        "rotate-secret",
        "protect-zookeeper",
        "encrypt-zookeeper",
    ):
        assert planned[name] == UNNOTICED, name


def test_names_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == names()


def test_every_block_is_run_or_excused() -> None:
    found = [each.text for each in blocks() if each.language == "bash"]
    left_out = [text for text in found if not text.startswith((*TYPED, *NOT_TYPED))]
    assert left_out == []
    for begins in NOT_TYPED:
        assert any(text.startswith(begins) for text in found), begins


@pytest.mark.parametrize("begins", TYPED)
def test_every_block_that_is_run_is_there(begins: str) -> None:
    assert block(begins).language == "bash"


def test_the_number_of_bookies_is_changed_in_the_overlay_alone() -> None:
    scaled = re.compile(r"scale\b.*\bstatefulset/bookie")
    assert [each.text for each in blocks() if scaled.search(each.text)] == []
    first = yaml.safe_load(block("# overlay/kustomization.yaml\napiVersion").text)
    assert first["replicas"] == [{"name": "bookie", "count": 3}]


def test_an_update_applies_one_kind_after_the_other_and_bookies_through_their_gate() -> None:
    lines = block(UPDATE).text.splitlines()
    applied = [line.partition("apply -k overlay")[2] for line in lines if " apply " in line]
    label = " -l app.kubernetes.io/component="
    assert applied == [
        " -l '!app.kubernetes.io/component'",
        *(f"{label}{kind}" for kind in ("zookeeper", "bookie", "autorecovery")),
        "",  # the rest: brokers
    ]
    assert [line for line in lines if "bookie" in line] == [
        f"{ROLL} kubectl apply -k overlay{label}bookie"
    ]


def test_a_refusal_has_to_say_why() -> None:
    def fails() -> str:
        raise CommandFailed("bookie-2 stays")

    expect_refusal(fails, "bookie-2 stays")
    with pytest.raises(CommandFailed, match="bookie-2 stays"):
        expect_refusal(fails, "no such thing")
    with pytest.raises(CommandFailed, match="not refused"):
        expect_refusal(lambda: "done", "bookie-2 stays")


def test_a_restore_names_a_backup_as_backups_are_named() -> None:
    listing, restoring = block(RESTORE).text.splitlines()
    assert listing.split("#")[0].split() == [RESTORE.strip()]
    assert BACKUP_NAME.findall(restoring) == BACKUP_NAME.findall(block(RESTORE).text)
    script = (OPERATIONS.parent / "components/backup/back_up.sh").read_text("utf-8")
    assert BACKUP_NAME.search(script)
    assert "date -u +%Y-%m-%dT%H-%M-%SZ" in script


def test_a_repair_has_the_name_of_a_node_to_be_put_in() -> None:
    assert block(REPAIR).text.count("NODE-OF-BOOKIE-1") == 1


NODES = """#!/bin/bash
case "$*" in
    *custom-columns=*) printf 'node1   a\\nnode2   <none>\\n' ;;
    "get nodes"*) printf 'node1   Ready   5d   v1.34.1   a\\nnode2   Ready   5d   v1.34.1   \\n' ;;
esac
"""


def test_a_node_without_a_zone_is_in_the_rack_of_all(tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text(NODES, "utf-8")
    (tmp_path / "kubectl").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", block(RACKS).text]
    subprocess.run(command, cwd=tmp_path, env={"PATH": path}, check=True)
    mapping = (tmp_path / "racks").read_text("utf-8")
    assert [rack_of("", node, mapping) for node in ("node1", "node2")] == ["a", DEFAULT_RACK]


def test_components_are_those_that_there_are() -> None:
    for begins in (COMPONENTS, CREDENTIALS, SERVERS_FIRST):
        written = yaml.safe_load(block(begins).text)["components"]
        assert all((OPERATIONS.parent.parent / path[3:]).is_dir() for path in written)


def test_the_fourth_server_is_added_to_the_three_of_the_base() -> None:
    base = (OPERATIONS.parent / "base/zoo.cfg").read_text("utf-8")
    listed = [line for line in base.splitlines() if line.startswith("server.")]
    counts = yaml.safe_load(block(SERVER_LIST).text)["replicas"]
    assert {"name": "zookeeper", "count": len(listed) + 1} in counts
    added = block(RESIZE_ZOOKEEPER).text.splitlines()[0].split()[1]
    assert [re.sub(r"(\.)3(=zookeeper-)2", r"\g<1>4\g<2>3", listed[-1])] == [added]


def test_credentials_come_beside_what_the_overlay_has() -> None:
    overlay = {"components": ["../k8s/components/backup"], "secretGenerator": [{"name": "bookies"}]}
    add_credentials(overlay)
    assert overlay["components"] == [
        *("../k8s/components/backup", "../k8s/components/zookeeper-credentials")
    ]
    secret = {"name": "zookeeper-credentials", "namespace": "fencelog"}
    files = {"files": ["users=zookeeper-users"]}
    assert overlay["secretGenerator"] == [{"name": "bookies"}, secret | files]
    empty: dict[str, Any] = {}
    add_credentials(empty)
    assert empty.keys() == {"components", "secretGenerator"}


def test_tls_is_for_the_servers_first_and_then_for_all() -> None:
    overlay: dict[str, Any] = {"components": ["../k8s/components/backup"]}
    add_credentials(overlay)
    add_servers(overlay)
    before = [f"../k8s/components/{name}" for name in ("backup", "zookeeper-credentials")]
    assert overlay["components"] == [*before, "../k8s/components/zookeeper-tls/servers"]
    use_them(overlay)
    assert overlay["components"] == [*before, "../k8s/components/zookeeper-tls"]


def test_commands_use_the_url_that_the_component_for_tls_gives() -> None:
    (url,) = re.findall(r"'(zks://.*)'", block(ENCRYPTED).text)
    component = OPERATIONS.parent / "components/zookeeper-tls/kustomization.yaml"
    assert set(re.findall(r"zks://.*", component.read_text("utf-8"))) == {url}


def test_connections_of_other_pods_are_told_from_those_of_probes() -> None:
    listing = """  sl  local_address rem_address   st tx_queue rx_queue tr
   0: 00000000:0885 00000000:0000 0A 00000000:00000000 00:00000000
   1: 0100007F:0885 0100007F:D2A0 01 00000000:00000000 00:00000000
   2: 0500F40A:08E9 0700F40A:D2A2 01 00000000:00000000 00:00000000
   3: 0000000000000000FFFF00000500F40A:0885 0000000000000000FFFF00000800F40A:D2A4 01
   4: 0000000000000000FFFF00000100007F:0885 0000000000000000FFFF00000100007F:D2A6 01
   5: 0500F40A:08E9 0700F40A:D2A8 06 00000000:00000000 00:00000000
"""
    assert connected_ports(listing) == [SECURE_PORT, PORT]


def test_nodes_are_protected_with_the_url_that_the_component_gives() -> None:
    (url,) = re.findall(r"'(zk://.*)'", block(PROTECT).text)
    component = OPERATIONS.parent / "components/zookeeper-credentials/kustomization.yaml"
    assert set(re.findall(r"zk://.*", component.read_text("utf-8"))) == {url}


def test_the_file_of_users_is_one_after_each_of_its_changes(tmp_path: Path) -> None:
    (tmp_path / "overlay").mkdir()
    file = tmp_path / "overlay/zookeeper-users"
    found = []
    for step in (*NEW_USERS, *OTHER_USERS):
        subprocess.run(["bash", "-euc", block(step).text], cwd=tmp_path, check=True)
        found.append(credentials_from(file))
    assert [each.access for each in found] == [OPEN_TO_ALL, *[CREATORS_ALONE] * 3]
    first, second = found[2].users
    assert [each.users for each in found] == [(first,), (first,), (first, second), (second,)]


def test_versions_are_mixed_after_what_ends_with_the_first_one() -> None:
    order = names()
    assert order.index("roll-back") + 1 == order.index("mix-versions")


def test_a_part_of_a_block_ends_with_the_line_that_is_named() -> None:
    bookies = part(
        RESTART,
        "kubectl -n fencelog rollout restart statefulset/bookie",
        "kubectl -n fencelog rollout status statefulset/bookie",
    )
    assert bookies.splitlines() == [
        "kubectl -n fencelog rollout restart statefulset/bookie",
        "kubectl -n fencelog rollout status statefulset/bookie",
    ]
    with pytest.raises(LookupError):
        part(RESTART, "kubectl -n fencelog rollout restart statefulset/absent", "kubectl")
    with pytest.raises(LookupError, match=f"0 blocks of {OPERATIONS.name}"):
        block("kubectl absent")


def test_a_block_stands_below_its_heading() -> None:
    assert block(FIRST_START).heading == "First start"
    indented = [each for each in blocks() if "fencelog cookie repair --metadata" in each.text]
    assert indented[0].text.startswith("fencelog cookie repair")
