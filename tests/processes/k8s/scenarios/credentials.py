"""The secret of bookies, the passwords of ZooKeeper, and its certificates."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

from tests.processes.k8s.cluster import Cluster, say, wait_until
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
CERTIFICATE = "openssl req -x509"
SERVERS_FIRST = (
    "# overlay/kustomization.yaml\ncomponents:\n  - ../k8s/components/zookeeper-credentials"
)
ENCRYPTED = "M='zks://zookeeper:2281"
TYPED = (
    *(FIRST_SECRET, SECRET, *ROTATION, *NEW_USERS, *OTHER_USERS, PROTECT),
    *(CERTIFICATE, ENCRYPTED),
)

PORT, SECURE_PORT = 2181, 2281

STATE = 3
"""The place of a connection's state in /proc/net/tcp."""
ESTABLISHED = "01"
LOOPBACK = "0100007F"
"""127.0.0.1 there, also at the end of an address of IPv6."""


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


def encrypt_zookeeper(installed: Installation) -> None:
    """TLS where there was none: the servers first, then what talks to them."""
    cluster = installed.cluster
    cluster.type(block(CERTIFICATE).text)
    if not (cluster.place / "overlay/zookeeper-users").exists():
        cluster.type(block(NEW_USERS[0]).text)
        installed.write_overlay(add_credentials)
    for change in (add_servers, use_them):
        installed.write_overlay(change)
        cluster.type(block(UPDATE).text, timeout_s=1800)
        installed.wait_ready()
    cluster.use_metadata(block(ENCRYPTED).text.split("'")[1])
    cluster.type(block(ENCRYPTED).text)
    wait_until(
        lambda: all_use(SECURE_PORT, cluster),
        f"all are connected to port {SECURE_PORT} of ZooKeeper",
        timeout_s=60,  # A broker that was replaced ends its session after the update.
    )


def all_use(port: int, cluster: Cluster) -> bool:
    """Tell whether other pods are connected to that port of ZooKeeper, and none to the other."""
    ports = Counter(each for server in range(3) for each in connections_of(cluster, server))
    by_port = {each: ports[each] for each in (PORT, SECURE_PORT)}
    say(f"  connections to ZooKeeper, by port: {by_port}")
    return by_port[port] > 0 and sum(by_port.values()) == by_port[port]


def add_servers(overlay: dict[str, Any]) -> None:
    """Add what gives the servers their port."""
    written = yaml.safe_load(block(SERVERS_FIRST).text)["components"]
    here = overlay.setdefault("components", [])
    here += [each for each in written if each not in here]


def use_them(overlay: dict[str, Any]) -> None:
    """Put the component for everything in place of the one for servers alone."""
    overlay["components"] = [each.removesuffix("/servers") for each in overlay["components"]]


def connections_of(cluster: Cluster, server: int) -> list[int]:
    """Return the ports of a server of ZooKeeper that other pods are connected to, for each
    connection."""
    listing = cluster.in_namespace(
        *("exec", f"zookeeper-{server}", "--", "cat", "/proc/net/tcp", "/proc/net/tcp6")
    )
    return connected_ports(listing)


def connected_ports(listing: str) -> list[int]:
    """Return the local ports of the connections that a listing of Linux has, without those from the
    same pod, as of probes."""
    found = []
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) > STATE and fields[STATE] == ESTABLISHED:
            local, remote = (field.partition(":") for field in fields[1:STATE])
            if not remote[0].endswith(LOOPBACK):
                found.append(int(local[2], 16))
    return found
