"""The secret of bookies, and the passwords of ZooKeeper."""

from __future__ import annotations

from typing import Any

import yaml

from tests.processes.k8s.cluster import say
from tests.processes.k8s.document import block
from tests.processes.k8s.installation import Installation
from tests.processes.k8s.scenarios.pods import UPDATE
from tests.processes.k8s.scenarios.scenario import expect_refusal

FIRST_SECRET = "openssl rand -hex 32 > overlay/secret"
SECRET = "brokers=$(kubectl"
ROTATION = (
    "openssl rand -hex 32 > overlay/accepted",
    "mv overlay/accepted overlay/new",
    "cp overlay/secret overlay/accepted",
)
CREDENTIALS = "# overlay/kustomization.yaml\ncomponents: [../k8s/components/zookeeper"
NEW_USERS = ("(echo world:anyone", "sed -i /world:anyone/d")
OTHER_USERS = ('echo "fencelog:$(openssl rand -hex 32)" >>', "sed -i 1d")
PROTECT = "M='zk://"
TYPED = (FIRST_SECRET, SECRET, *ROTATION, *NEW_USERS, *OTHER_USERS, PROTECT)


def introduce_secret(installed: Installation) -> None:
    """The first secret, for which brokers stop."""
    written = yaml.safe_load(block("# overlay/kustomization.yaml\nsecretGenerator").text)

    def change(overlay: dict[str, Any]) -> None:
        overlay["secretGenerator"] = written["secretGenerator"]
        overlay["patches"] += written["patches"]

    installed.cluster.type(block(FIRST_SECRET).text)
    installed.write_overlay(change)
    installed.cluster.type(block(SECRET).text)


def rotate_secret(installed: Installation) -> None:
    """The three steps of the document."""
    for step in ROTATION:
        installed.cluster.type(block(step).text)
        installed.cluster.type(block(UPDATE).text, timeout_s=1800)
        installed.wait_ready()


def protect_zookeeper(installed: Installation) -> None:
    """Credentials where there were none, and then another password: each change of the file is
    followed by an update and by the command that sets access lists."""
    cluster = installed.cluster
    for step in (*NEW_USERS, *OTHER_USERS):
        cluster.type(block(step).text)
        if step == NEW_USERS[0]:
            installed.write_overlay(add_credentials)
        cluster.type(block(UPDATE).text, timeout_s=1800)
        installed.wait_ready()
        say("  " + cluster.type(block(PROTECT).text).strip())
    listing = 'fencelog bookies list --metadata "$M"'
    expect_refusal(lambda: cluster.type(listing), "the node is not open to all")
    cluster.use_metadata(block(PROTECT).text.split("'")[1])
    cluster.type(listing)


def add_credentials(overlay: dict[str, Any]) -> None:
    """Add the component of credentials, and their Secret, to an overlay that may have others."""
    for key, added in yaml.safe_load(block(CREDENTIALS).text).items():
        overlay[key] = [*overlay.get(key, ()), *added]
