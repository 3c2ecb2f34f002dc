"""The commands about full disks and repairs that are stuck, where nothing is full or stuck."""

from __future__ import annotations

import json
import time

from tests.processes.k8s.cluster import CommandFailed, wait_until
from tests.processes.k8s.document import block
from tests.processes.k8s.installation import TOPIC, Installation
from tests.processes.k8s.scenarios.scenario import is_ready

READ_ONLY = "fencelog bookies read-only bookie-1 on"
GARBAGE = "fencelog bookies gc bookie-1"
STUCK = "fencelog autorecovery status --metadata $M             # what waits"
STUCK_LEDGER = "fencelog ledger check 4711"
TYPED = (READ_ONLY, GARBAGE, STUCK, STUCK_LEDGER)

READ_ONLY_S = 30.0


def stop_adds(installed: Installation) -> None:
    """A bookie is read-only, as one whose disk is full; it stays ready, collects its garbage, and
    takes entries again."""
    cluster = installed.cluster
    typed = block(READ_ONLY).text
    cluster.type(typed)
    try:
        wait_until(lambda: "bookie-1" in read_only(installed), "it says so", timeout_s=30)
        cluster.type(block(GARBAGE).text)
        time.sleep(READ_ONLY_S)
        if not all(is_ready(pod) for pod in installed.pods("bookie")):
            raise CommandFailed("a bookie that is read-only is not ready")
    finally:
        cluster.type(typed.replace(" on ", " off "))
    wait_until(lambda: not read_only(installed), "all take entries again", timeout_s=30)


def read_only(installed: Installation) -> list[str]:
    """Return the bookies that take no entries."""
    listed = json.loads(installed.cluster.type('fencelog bookies list --json --metadata "$M"'))
    return [str(bookie["id"]) for bookie in listed if bookie["read_only"]]


def follow_repairs(installed: Installation) -> None:
    """Each repair that waits says why, and the copies that one bookie has of a ledger are made on
    another one."""
    cluster = installed.cluster
    if "the auditor is" not in cluster.type(block(STUCK).text):
        raise CommandFailed("no auditor is named")
    installed.wait_whole()
    ledger, bookie = closed_ledger(installed)
    typed = block(STUCK_LEDGER).text.replace("4711", str(ledger)).replace("bookie-1", bookie)
    if f"no copies on bookie {bookie}" not in cluster.type(typed, timeout_s=300):
        raise CommandFailed(f"{bookie} still has copies of ledger {ledger}")


def closed_ledger(installed: Installation) -> tuple[int, str]:
    """Return the latest closed ledger of partition 0, and a bookie that has copies of it."""
    cluster = installed.cluster
    segments = json.loads(cluster.fencelog("topic", "internal", TOPIC, "0"))["segments"]
    ledger = max(segment["ledger_id"] for segment in segments if segment["sealed"])
    shown = json.loads(cluster.type(f'fencelog ledger show {ledger} --metadata "$M"'))
    return ledger, str(shown["fragments"][-1][1][0])
