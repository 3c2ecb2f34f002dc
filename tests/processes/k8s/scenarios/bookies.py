"""More and fewer bookies, their racks and their volumes."""

from __future__ import annotations

import time

import yaml

from tests.processes.k8s.cluster import CommandFailed
from tests.processes.k8s.document import block
from tests.processes.k8s.installation import Installation
from tests.processes.k8s.scenarios.pods import RACKS
from tests.processes.k8s.scenarios.scenario import expect_refusal

BOOKIES_OF_OVERLAY = "kubectl apply -k overlay -l app.kubernetes.io/component=bookie\n"
MORE_BOOKIES = f"{BOOKIES_OF_OVERLAY}kubectl -n fencelog rollout"
DECOMMISSION = "k8s/decommission.sh"
FEWER_BOOKIES = f"{BOOKIES_OF_OVERLAY}kubectl -n fencelog wait"
RESIZED = "kubectl -n fencelog delete statefulset/bookie --cascade=orphan"
BALANCE = "fencelog bookies list --metadata $M                    # the new ones"
TYPED = (MORE_BOOKIES, DECOMMISSION, FEWER_BOOKIES, RESIZED, BALANCE)


def set_racks(installed: Installation) -> None:
    """The zone of each node becomes the rack of its bookies: no two copies of one zone."""
    installed.cluster.type(block(RACKS).text)
    installed.wait_ready()


def add_bookies(installed: Installation) -> None:
    """Five bookies, with ledgers on all of them: three remain when a node with two is lost. The
    next apply leaves them alone."""
    installed.set_bookies(5)
    installed.cluster.type(block(MORE_BOOKIES).text)
    installed.wait_ready()
    installed.seal()
    installed.cluster.type("kubectl apply -k overlay")
    installed.wait_ready()
    if (left := len(installed.pods("bookie"))) != 5:
        raise CommandFailed(f"{left} bookies are left after another apply")
    if "bookie-4" not in installed.cluster.type(block(BALANCE).text):
        raise CommandFailed("bookie-4 is not registered")
    time.sleep(10)


def remove_bookies(installed: Installation) -> None:
    """Three bookies again, each let go by the script of the document before the overlay does."""
    for number in (4, 3):
        for begins in (DECOMMISSION, FEWER_BOOKIES):
            typed = block(begins).text.replace("bookie-4", f"bookie-{number}")
            installed.cluster.type(typed, timeout_s=1200)
            installed.set_bookies(number)


def refuse_removal(installed: Installation) -> None:
    """Of three bookies none may go: the script says so, and bookie-2 stays what it was."""
    typed = block(DECOMMISSION).text.replace("bookie-4", "bookie-2")
    expect_refusal(lambda: installed.cluster.type(typed, timeout_s=600), "bookie-2 stays")
    status = ("bookie", "decommission", "bookie-2", "--status")
    expect_refusal(lambda: installed.cluster.fencelog(*status), "bookie-2 is not being removed")


def resize_volumes(installed: Installation) -> None:
    """The StatefulSet of bookies is made anew with another size of volumes, around its pods."""
    size = "/spec/volumeClaimTemplates/0/spec/resources/requests/storage"
    operation = {"op": "replace", "path": size, "value": "51Gi"}
    target = {"kind": "StatefulSet", "name": "bookie"}
    patch = {"target": target, "patch": yaml.dump([operation])}
    installed.write_overlay(lambda overlay: overlay["patches"].append(patch))
    before = claims(installed)
    expect_refusal(
        lambda: installed.cluster.type("kubectl apply -k overlay"), "updates to statefulset spec"
    )
    installed.cluster.type(block(RESIZED).text)
    installed.wait_ready()
    if before != claims(installed):
        raise CommandFailed("bookies do not have the same volumes as before")


def claims(installed: Installation) -> set[str]:
    """Return the ids of all claims of volumes."""
    found = installed.cluster.items("persistentvolumeclaims", "-n", "fencelog")
    return {str(claim["metadata"]["uid"]) for claim in found}
