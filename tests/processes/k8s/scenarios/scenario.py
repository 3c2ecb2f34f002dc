"""What a scenario is, and what clients may notice of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.processes.k8s.cluster import CommandFailed, say
from tests.processes.k8s.installation import BASE, PROD, TOPIC, Installation
from tests.processes.k8s.table import Limits

UNNOTICED = Limits(gap_s=1.0, errors=False)
LOST_OWNER = Limits(gap_s=6.0, errors=True)
"""The owner's session ends after six seconds, and another broker opens its partitions."""

LOST_LEADER_S = 9.0
"""ZooKeeper's other servers notice after five seconds (`syncLimit`), elect one of them, and every
session begins anew with it."""

LOST_NODE = Limits(gap_s=12.0, errors=True, leader_s=LOST_LEADER_S)
"""An answer that never comes costs a client five seconds, and the Service still names pods of the
node: to those of a lost owner, one time-out and some attempts to connect are added."""

RESTORED = Limits(gap_s=420.0, errors=True)
"""Everything stops and starts: two minutes for bookies to stop, and the rest for images, volumes,
elections and copies of files."""

PAUSED_NODE = Limits(gap_s=26.0, errors=True, leader_s=LOST_LEADER_S)
"""A machine that stands still takes connections: while the Service names it, every second attempt
of a client ends there, after five seconds. Five in a row are allowed for."""


@dataclass(frozen=True)
class Scenario:
    """A scenario. ``limits`` None: the load has not begun yet. ``needs``: the one that has to be
    played before. ``breaks_nodes``: it takes a command that does. ``updates``: it takes the image
    of an earlier version, too. ``kinds``: the installations in which it is played."""

    name: str
    play: Callable[[Installation], None]
    limits: Limits | None
    needs: str = ""
    breaks_nodes: bool = False
    updates: bool = False
    kinds: tuple[str, ...] = (BASE, PROD)


def expect_refusal(run: Callable[[], str], why: str) -> None:
    """Run a command that has to fail, and to say why. Raises CommandFailed."""
    try:
        said = run()
    except CommandFailed as refused:
        if why not in str(refused):
            raise
        say(f"  refused: {why}")
        return
    raise CommandFailed(f"not refused ({why}): {said}")


def owner_of(installed: Installation, partition: int) -> str:
    """Return the pod of the broker that owns a partition. Raises CommandFailed."""
    shown = installed.cluster.fencelog("topic", "internal", TOPIC, str(partition))
    return str(json.loads(shown)["owner"])


def is_ready(pod: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", ())
    )
