"""The choice of a cluster from the environment, and the commands that reach it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

KUBECONFIG, LAB, IMPORT, FAULT = "KUBECONFIG", "K8S_LAB", "K8S_IMPORT", "K8S_FAULT"


class NoCluster(Exception):
    """The reason why there is nothing to test on, in one line."""


@dataclass(frozen=True)
class Target:
    """The commands of one cluster; None: it has no such thing.

    ``kubectl``: before its arguments. ``lab``: starts and ends the cluster. ``load_image``: puts an
    archive on every node, given its path. ``fault``: cuts, heals, pauses, resumes a node, given
    that verb and the node's name.
    """

    kubectl: tuple[str, ...]
    lab: str | None = None
    load_image: tuple[str, ...] | None = None
    fault: tuple[str, ...] | None = None

    def fault_command(self, verb: str, node: str) -> list[str]:
        """Return the command of a fault of a node. Raises NoCluster if there is none."""
        if self.fault is not None:
            return [*self.fault, verb, node]
        if self.lab is not None:
            # Its nodes are named node1, node2, …, and asked for by number.
            number = re.fullmatch(r"\D*(\d+)", node)
            if number is None:
                raise NoCluster(f"{node} is no node of {self.lab}")
            return [self.lab, verb, number[1]]
        raise NoCluster(f"{FAULT} names no command that cuts a node off")


def choose_target(
    environment: Mapping[str, str],
    *,
    is_root: bool,
    which: Callable[[str], str | None],
    is_program: Callable[[str], bool],
) -> Target:
    """Return the cluster that the environment names: the lab first. Raises NoCluster.

    Without a variable there is none: what kubectl takes by default may be a cluster that somebody
    needs.
    """
    target = _lab_or_cluster(environment, is_root=is_root, which=which, is_program=is_program)
    load_image, fault = (shlex.split(environment.get(name, "")) for name in (IMPORT, FAULT))
    if load_image:
        target = replace(target, load_image=tuple(load_image))
    return replace(target, fault=tuple(fault)) if fault else target


def _lab_or_cluster(
    environment: Mapping[str, str],
    *,
    is_root: bool,
    which: Callable[[str], str | None],
    is_program: Callable[[str], bool],
) -> Target:
    lab = environment.get(LAB)
    if lab:
        if not is_program(lab):
            raise NoCluster(f"{LAB} is no program: {lab}")
        if not is_root:
            raise NoCluster(f"{LAB} makes namespaces and mounts, for which it needs root")
        return Target(kubectl=(lab, "sh", "kubectl"), lab=lab)
    if not environment.get(KUBECONFIG):
        raise NoCluster(f"no cluster: {KUBECONFIG} names none, and {LAB} no lab")
    kubectl = which("kubectl")
    if kubectl is None:
        raise NoCluster("kubectl is not installed")
    return Target(kubectl=(kubectl,))
