"""Every scenario, in the order in which they are played."""

from __future__ import annotations

from collections.abc import Sequence

from tests.processes.k8s.installation import BASE, DEV, HELM, NEXT_TAG, PROD, TAG
from tests.processes.k8s.scenarios import (
    bookies,
    components,
    credentials,
    healing,
    nodes,
    pods,
    zookeeper,
)
from tests.processes.k8s.scenarios.scenario import (
    LOST_NODE,
    LOST_OWNER,
    PAUSED_NODE,
    RESTORED,
    UNNOTICED,
    Scenario,
)
from tests.processes.k8s.table import Limits

TYPED = (
    *pods.TYPED,
    *nodes.TYPED,
    *bookies.TYPED,
    *zookeeper.TYPED,
    *components.TYPED,
    *credentials.TYPED,
    *healing.TYPED,
)
"""The blocks of OPERATIONS.md that scenarios run, by their beginnings."""

EVERYWHERE = (BASE, DEV, PROD, HELM)
OF_SEVERAL = (BASE, PROD, HELM)
"""With more than one broker, and one server of ZooKeeper."""

OF_THREE_BOOKIES = (BASE, DEV, HELM)

SCENARIOS = (
    Scenario("first-apply", pods.apply_first, None, kinds=EVERYWHERE),
    Scenario("nothing", pods.do_nothing, UNNOTICED, kinds=EVERYWHERE),
    Scenario("restart-bookies", pods.restart("statefulset/bookie"), UNNOTICED, kinds=EVERYWHERE),
    Scenario("roll-bookies", pods.roll_bookies, UNNOTICED, kinds=EVERYWHERE),
    Scenario("restart-brokers", pods.restart("deployment/broker"), UNNOTICED, kinds=EVERYWHERE),
    Scenario(
        "restart-zookeeper", pods.restart("statefulset/zookeeper"), UNNOTICED, kinds=EVERYWHERE
    ),
    Scenario("new-tag", pods.update(NEXT_TAG), UNNOTICED, updates=True, kinds=EVERYWHERE),
    Scenario("roll-back", pods.update(TAG), UNNOTICED, updates=True, kinds=EVERYWHERE),
    Scenario("mix-versions", pods.mix_versions, UNNOTICED, updates=True),
    Scenario("drain-broker", pods.drain_broker, UNNOTICED, kinds=OF_SEVERAL),
    Scenario("kill-bookie", pods.kill_bookie, UNNOTICED, kinds=EVERYWHERE),
    Scenario("replace-disk", pods.replace_disk, UNNOTICED, kinds=EVERYWHERE),
    Scenario("kill-broker", pods.kill_broker, LOST_OWNER, kinds=OF_SEVERAL),
    Scenario("kill-zookeeper", pods.kill_zookeeper, UNNOTICED, kinds=OF_SEVERAL),
    Scenario("kill-autorecovery", pods.kill_autorecovery, UNNOTICED, kinds=EVERYWHERE),
    Scenario("refuse-removal", bookies.refuse_removal, UNNOTICED, kinds=OF_THREE_BOOKIES),
    Scenario("set-racks", bookies.set_racks, UNNOTICED, kinds=(BASE,)),
    Scenario("add-bookies", bookies.add_bookies, UNNOTICED, needs="set-racks", kinds=(BASE,)),
    Scenario("stop-adds", healing.stop_adds, UNNOTICED, needs="add-bookies"),
    Scenario("follow-repairs", healing.follow_repairs, UNNOTICED, needs="add-bookies"),
    Scenario("cut-node", nodes.cut_node, LOST_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("cut-leader", nodes.cut_leader, LOST_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("pause-node", nodes.pause_node, PAUSED_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("lose-zone", nodes.lose_zone, LOST_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("give-node-up", nodes.give_node_up, LOST_NODE, needs="add-bookies", breaks_nodes=True),
    Scenario("drain-node", nodes.drain_node, UNNOTICED, needs="add-bookies"),
    Scenario(
        "remove-bookies", bookies.remove_bookies, UNNOTICED, needs="add-bookies", kinds=(BASE,)
    ),
    Scenario("resize-volumes", bookies.resize_volumes, UNNOTICED),
    Scenario("stop-zookeeper", zookeeper.stop_zookeeper, UNNOTICED),
    Scenario("resize-zookeeper", zookeeper.resize_zookeeper, UNNOTICED, kinds=(BASE,)),
    Scenario("add-components", components.add_components, UNNOTICED, kinds=(BASE,)),
    Scenario("run-drills", components.run_drills, UNNOTICED, needs="add-components"),
    Scenario("back-up", components.make_backup, UNNOTICED, needs="add-components"),
    Scenario("lose-zookeeper", zookeeper.lose_zookeeper, RESTORED, needs="add-components"),
    Scenario("autoscale", components.autoscale, UNNOTICED, needs="add-components", kinds=(BASE,)),
    Scenario("introduce-secret", credentials.introduce_secret, Limits(gap_s=180.0, errors=True)),
    Scenario("rotate-secret", credentials.rotate_secret, UNNOTICED, needs="introduce-secret"),
    # The version before knows no credentials.
    Scenario("protect-zookeeper", credentials.protect_zookeeper, UNNOTICED, needs="new-tag"),
    Scenario("encrypt-zookeeper", credentials.encrypt_zookeeper, UNNOTICED, needs="new-tag"),
)
"""All scenarios. Nodes are broken while there are five bookies: a new ledger takes three."""


def choose_scenarios(names: Sequence[str], kind: str = BASE) -> list[Scenario]:
    """Return the scenarios of these names in the order of SCENARIOS, all without a name; the first
    apply is always among them. ``kind``: that of the installation. Raises LookupError for a name
    that there is not."""
    there = [each for each in SCENARIOS if kind in each.kinds]
    known = [scenario.name for scenario in there]
    if unknown := [name for name in names if name not in known]:
        raise LookupError(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = {SCENARIOS[0].name, *names}
    for each in reversed(there):  # What is needed stands before it, and may need another one.
        if each.name in chosen and each.needs:
            chosen.add(each.needs)
    return [each for each in there if not names or each.name in chosen]
