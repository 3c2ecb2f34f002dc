"""A fault that was not seen to happen proves nothing, and is mended all the same."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.processes.k8s.cluster import CommandFailed
from tests.processes.k8s.scenarios.nodes import broken, electable, have_leader


class Recorded:
    """An installation whose broker answers, or does not, and that notes faults of nodes."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers
        self.cluster = self
        self.faults: list[tuple[str, ...]] = []

    def fault(self, verb: str, *nodes: str) -> None:
        self.faults.append((verb, *nodes))

    def answers(self, address: str) -> bool:
        return self._answers


def break_nodes(installed: Any, *, fails: bool = False) -> None:
    with broken(installed, "cut", "heal", ["node1", "node2"], "10.0.0.1"):
        if fails:
            raise CommandFailed("in between")


MENDED = [("cut", "node1", "node2"), ("heal", "node1", "node2")]


def test_nodes_are_mended_at_the_end() -> None:
    installed = Recorded(answers=False)
    break_nodes(installed)
    assert installed.faults == MENDED


def test_nodes_are_mended_when_the_scenario_fails() -> None:
    installed = Recorded(answers=False)
    with pytest.raises(CommandFailed, match="in between"):
        break_nodes(installed, fails=True)
    assert installed.faults == MENDED


def test_a_fault_without_an_effect_fails_the_scenario() -> None:
    installed = Recorded(answers=True)
    with pytest.raises(CommandFailed, match="answers although cut was done to node1, n"):
        break_nodes(installed)
    assert installed.faults == MENDED


class Servers:
    """An installation of three servers of ZooKeeper, of which the last one that is not deleted is
    elected; server n is on node n + 1, and the load on node 3."""

    load_node = "node3"

    def __init__(self, *, leader: int) -> None:
        self._leader = leader
        self.cluster = self
        self.deleted: list[str] = []

    def pods(self, role: str) -> list[dict[str, Any]]:
        return [self._pod(number) for number in (2, 0, 1)]

    def items(self, *of: str) -> list[dict[str, Any]]:
        return [self._pod(number) for number in range(3) if of[-1].endswith(f"=node{number + 1}")]

    def zookeeper_servers(self) -> dict[str, dict[str, str]]:
        states = ["leader" if number == self._leader else "follower" for number in range(3)]
        return {
            f"zookeeper-{number}": {"zk_server_state": state, "zk_synced_followers": "2.0"}
            for number, state in enumerate(states)
        }

    def in_namespace(self, *command: str) -> str:
        self.deleted.append(command[-1])
        self._leader = 1 if self._leader == 2 else 2
        return ""

    def wait_ready(self) -> None:
        pass

    @staticmethod
    def _pod(number: int) -> dict[str, Any]:
        name, node = f"zookeeper-{number}", f"node{number + 1}"
        return {"metadata": {"name": name}, "spec": {"nodeName": node}}


def test_the_last_server_that_is_not_beside_the_load_can_be_elected() -> None:
    assert electable(cast(Any, Servers(leader=2))) == "node2"


@pytest.mark.parametrize(
    ("leader", "deleted"),
    [(1, []), (2, ["zookeeper-2"]), (0, ["zookeeper-0", "zookeeper-2"])],
)
def test_leaders_are_deleted_until_one_of_the_node_leads(leader: int, deleted: list[str]) -> None:
    servers = Servers(leader=leader)
    have_leader(cast(Any, servers), "node2")
    assert servers.deleted == deleted


def test_a_server_that_is_never_elected_is_an_error() -> None:
    with pytest.raises(CommandFailed, match="no server of node1 was elected 4 times"):
        have_leader(cast(Any, Servers(leader=2)), "node1")
