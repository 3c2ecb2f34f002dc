"""Backups, drills and autoscaling beside the service."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.processes.k8s.cluster import CommandFailed, say, wait_until
from tests.processes.k8s.document import block
from tests.processes.k8s.installation import Installation

COMPONENTS = "# overlay/kustomization.yaml\ncomponents: [../k8s/components/backup"
DRILLS = "kubectl -n fencelog create job --from=cronjob/drills"
BACK_UP = "kubectl -n fencelog create job --from=cronjob/zookeeper-backup"
SUCCESSES = "kubectl -n fencelog get cronjobs"
AUTOSCALE = "KUBE_EDITOR="
TYPED = (DRILLS, BACK_UP, SUCCESSES, AUTOSCALE)

BACKUP_NAME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ\b")


def add_components(installed: Installation) -> None:
    """The overlay gets the components that the document has in it."""
    written = yaml.safe_load(block(COMPONENTS).text)

    def change(overlay: dict[str, Any]) -> None:
        overlay["components"] = written["components"]

    installed.write_overlay(change)
    installed.cluster.type("kubectl apply -k overlay", timeout_s=120)


def run_drills(installed: Installation) -> None:
    """The drills of the CronJob; one that fails does not complete."""
    say("  " + installed.cluster.type(block(DRILLS).text).strip().replace("\n", "\n  "))


def back_up(installed: Installation) -> str:
    """Make a backup as the document says; return its name. Raises CommandFailed."""
    said = installed.cluster.type(block(BACK_UP).text)
    made = re.search(rf"^backup ({BACKUP_NAME.pattern}):", said, re.MULTILINE)
    if made is None:
        raise CommandFailed(f"no backup is named: {said}")
    return made[1]


def make_backup(installed: Installation) -> None:
    back_up(installed)
    say("  " + installed.cluster.type(block(SUCCESSES).text).strip().replace("\n", "\n  "))


def autoscale(installed: Installation) -> None:
    """As many brokers as the autoscaler wants: three at least, and never fewer on the way."""

    def change(overlay: dict[str, Any]) -> None:
        overlay["components"].append("../k8s/components/autoscaling")

    installed.write_overlay(change)
    installed.cluster.type(block(AUTOSCALE).text)
    if (left := len(installed.pods("broker"))) < 2:
        raise CommandFailed(f"{left} brokers are left when the component has been applied")
    wait_until(lambda: len(installed.pods("broker")) == 3, "three brokers", timeout_s=180)
