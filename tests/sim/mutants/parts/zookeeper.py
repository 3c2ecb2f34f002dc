"""Wrong adapters of the metadata store in ZooKeeper: nodes, guards, access lists, secrets."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

CREDENTIALS = "fencelog.ledgers.metastore.zookeeper_credentials"
INCARNATIONS = "fencelog.ledgers.metastore.zookeeper_incarnations"
PROTECTION = "fencelog.ledgers.metastore.zookeeper_protection"
STORE = "fencelog.ledgers.metastore.zookeeper"
TLS = "fencelog.ledgers.metastore.zookeeper_tls"
UNTIL_KNOWN = "fencelog.ledgers.metastore.until_known"

_STORE = "PROTOCOL.md: the metadata store"

NODES: tuple[Mutant, ...] = (
    Mutant(
        "creation-is-not-watched",
        _STORE,
        "A watch of a node that is not there does not see it being created.",
        (
            Edit(
                STORE,
                "ZooKeeperMetadataStore._is_there",
                "wire.exists(node, watch=True)",
                "wire.exists(node)",
            ),
        ),
    ),
    Mutant(
        "created-between-two-looks",
        _STORE,
        "A node that is created between the two requests of a watch is reported as absent.",
        (
            Edit(
                STORE,
                "ZooKeeperMetadataStore._read_value",
                "                if not await self._is_there(node):\n"
                "                    return None\n",
                "                await self._is_there(node)\n                return None\n",
            ),
        ),
    ),
    Mutant(
        "watches-of-a-lost-connection",
        _STORE,
        "Watches are not read again when the connection is there again.",
        (
            Edit(
                STORE,
                "ZooKeeperMetadataStore._on_state",
                "            self._watches.refresh_all()",
                "            pass",
            ),
        ),
    ),
    Mutant(
        "changed-for-a-later-node",
        _STORE,
        "A change whose guard is gone is reported as one of a node that is gone.",
        (
            Edit(
                STORE,
                "_parent_that_is_missing",
                "guard_gone=NoNodeError if is_new else BadVersionError",
                "guard_gone=NoNodeError",
            ),
        ),
    ),
    Mutant(
        "refused-for-another-change",
        _STORE,
        "The refusal of a transaction is taken for that of its first change.",
        (
            Edit(
                STORE,
                "_parent_that_is_missing",
                "results[at : at + len(operations)]",
                "results[at:]",
            ),
        ),
    ),
    Mutant(
        "root-open-to-all",
        _STORE,
        "The root is created with the access list of the nodes above it.",
        (
            Edit(
                STORE,
                "ZooKeeperMetadataStore._ensure",
                "len(node) < len(self._root)",
                "len(node) <= len(self._root)",
            ),
        ),
    ),
    Mutant(
        "nodes-open-to-all",
        _STORE,
        "A node is created without the access list of the credentials.",
        (
            Edit(
                STORE,
                "ZooKeeperMetadataStore._part_of",
                "access=self._credentials.access",
                "access=OPEN_TO_ALL",
            ),
        ),
    ),
    Mutant(
        "nodes-of-others-taken",
        _STORE,
        "A store without a root sets the access lists of all nodes of the ensemble.",
        (Edit(STORE, "ZooKeeperMetadataStore.protect", "if not self._root:", "if False:"),),
    ),
    Mutant(
        "guard-not-checked",
        _STORE,
        "A change does not check the guard of the node that it was meant for.",
        (
            Edit(
                INCARNATIONS,
                "GuardedNode.set",
                "[node, check(self._guard(version.incarnation), 0)]",
                "[node]",
            ),
        ),
    ),
    Mutant(
        "guard-outlives-its-node",
        _STORE,
        "A node is deleted whatever its incarnation, and its guard stays.",
        (
            Edit(
                INCARNATIONS,
                "GuardedNode.delete",
                "[node, delete(self._guard(version.incarnation), 0)]",
                "[node]",
            ),
        ),
    ),
    Mutant(
        "guard-outlives-its-session",
        _STORE,
        "The guard of an ephemeral node is not ephemeral.",
        (
            Edit(
                INCARNATIONS,
                "GuardedNode.create",
                'create(guard, b"", ephemeral=ephemeral, access=self._access)',
                'create(guard, b"", access=self._access)',
            ),
        ),
    ),
    Mutant(
        "guards-open-to-all",
        _STORE,
        "A guard is created without the access list of its node.",
        (
            Edit(
                INCARNATIONS,
                "GuardedNode.create",
                'create(guard, b"", ephemeral=ephemeral, access=self._access)',
                'create(guard, b"", ephemeral=ephemeral)',
            ),
        ),
    ),
    Mutant(
        "changed-whatever-its-version",
        _STORE,
        "A compare-and-set of a node does not say of which version.",
        (
            Edit(
                INCARNATIONS,
                "GuardedNode.set",
                "set_data(self._node, data, version.number)",
                "set_data(self._node, data, -1)",
            ),
        ),
    ),
    Mutant(
        "incarnation-given-twice",
        _STORE,
        "Every creation of a node has the same incarnation.",
        (
            Edit(
                STORE,
                "ZooKeeperMetadataStore._part_of",
                'int.from_bytes(self._host.random_bytes(INCARNATION_BYTES), "big")',
                "1",
            ),
        ),
    ),
)

SECRETS: tuple[Mutant, ...] = (
    Mutant(
        "children-read-first",
        _STORE,
        "What a stranger creates before a node's access list is set keeps its own.",
        (
            Edit(
                PROTECTION,
                "_Walk.visit",
                "            await self._give(node)\n            data, _ =",
                "            names: list[str] = await self._session.read("
                "what, wire.get_children(node))\n"
                "            await self._give(node)\n            data, _ =",
            ),
            Edit(
                PROTECTION,
                "_Walk.visit",
                "            names: list[str] = await self._session.read("
                "what, wire.get_children(node))\n"
                "        except",
                "        except",
            ),
        ),
    ),
    Mutant(
        "guards-keep-their-list",
        _STORE,
        "The access lists of guards stay as they are.",
        (
            Edit(
                PROTECTION,
                "_Walk.visit",
                "                    await self._give(guard)",
                "                    pass",
            ),
        ),
    ),
    Mutant(
        "unknown-once-more-is-a-refusal",
        _STORE,
        "A request whose outcome was lost counts as not made when it cannot be sent again.",
        (
            Edit(
                UNTIL_KNOWN,
                "until_known",
                "                raise unknown from error",
                "                raise",
            ),
        ),
    ),
    Mutant(
        "new-nodes-stay-open",
        _STORE,
        "New nodes stay open to all although the file of credentials does not say so.",
        (
            Edit(
                CREDENTIALS,
                "credentials_from",
                "OPEN_TO_ALL if is_open else CREATORS_ALONE",
                "OPEN_TO_ALL",
            ),
        ),
    ),
    Mutant(
        "file-without-users",
        _STORE,
        "A file without users is taken: the process authenticates as nobody.",
        (Edit(CREDENTIALS, "credentials_from", "if not 0 < len(users)", "if not 0 <= len(users)"),),
    ),
    Mutant(
        "server-of-any-name",
        _STORE,
        "A server is taken whose certificate is for another name.",
        (
            Edit(
                TLS,
                "tls_context",
                "        read = certificate\n",
                "        context.check_hostname = False\n        read = certificate\n",
            ),
        ),
    ),
    Mutant(
        "server-of-any-authority",
        _STORE,
        "A server is taken whoever has signed its certificate.",
        (
            Edit(
                TLS,
                "tls_context",
                "        read = certificate\n",
                "        context.check_hostname = False\n"
                "        context.verify_mode = ssl.CERT_NONE\n"
                "        read = certificate\n",
            ),
        ),
    ),
)
