"""The deletion of everything that belongs to a topic whose node is gone.

The topic's node is deleted first, and with it its id, permanently; from then on every step here may
be repeated by any process, in any order with others: by the process that deletes the topic or,
should that one die, by the sweep, which finds the nodes below an id that no topic has.

An owner that is opening a partition for the first time creates the ledger list's node and then
reads the topic's again; so either the deleter finds the ledger list, or the opener finds the topic
gone.
"""

from __future__ import annotations

from contextlib import suppress

from fencelog.broker.ledger_list.ledger_list import LedgerList
from fencelog.broker.ledger_list.ledger_port import Ledgers
from fencelog.broker.ledger_list.store import LedgerListLost, LedgerListStore, ledger_list_path
from fencelog.broker.registry.subscription_registry import SUBSCRIPTIONS_PATH
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.watch import names_or_empty

LOGS_PATH = "/logs"

_GONE = (ErrorCode.METADATA_NOT_FOUND,)
_NOT_NOW = (ErrorCode.METADATA_NOT_FOUND, ErrorCode.METADATA_CONFLICT)
"""The errors of a node that has children again, those of an opener that is about to find the topic
gone."""


class TopicDeletion:
    """The steps of a deletion. Each can be repeated, and none depends on the knowledge of another
    one."""

    def __init__(self, store: MetadataStore, *, host: Host, ledgers: Ledgers) -> None:
        self._store = store
        self._host = host
        self._ledgers = ledgers

    async def finish(self, topic_id: str) -> None:
        """Delete everything left of a topic whose node is gone. Raises RECOVERY_INCOMPLETE,
        METADATA_…: the rest can still be found."""
        for partition in await names_or_empty(self._store.children(f"{LOGS_PATH}/{topic_id}")):
            await self.delete_ledger_list(topic_id, int(partition))
        for name in await names_or_empty(self._store.children(f"{SUBSCRIPTIONS_PATH}/{topic_id}")):
            await self._delete(f"{SUBSCRIPTIONS_PATH}/{topic_id}/{name}", _GONE)
        await self._delete(f"{SUBSCRIPTIONS_PATH}/{topic_id}", _NOT_NOW)
        await self._delete(f"{LOGS_PATH}/{topic_id}", _NOT_NOW)

    async def delete_ledger_list(self, topic_id: str, partition: int) -> None:
        """Delete a partition: mark its ledger list, so that no owner can change it any more; fence
        its ledgers, so that none can be written; delete them, those of its state and of its
        compacted view too, and then the ledger list."""
        node = LedgerListStore(self._store, ledger_list_path(topic_id, partition), host=self._host)
        while True:
            try:
                await node.load()
                if not node.ledger_list.deleted:
                    await node.change(LedgerList.as_deleted)
                break
            except LedgerListLost:
                # The owner was rolling: mark the ledger list that it has written.
                node = LedgerListStore(self._store, node.path, host=self._host)
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_NOT_FOUND:
                    return
                raise
        for segment in node.ledger_list.segments:
            if segment.sealed is None:
                with suppress(FencelogError):  # an unrecoverable one is still deleted
                    await self._ledgers.recover(segment.ledger_id)
        for ledger_id in sorted(node.ledger_list.ledgers):
            await self._ledgers.delete(ledger_id, unfenced=True)
        await node.delete()

    async def _delete(self, path: str, tolerated: tuple[ErrorCode, ...]) -> None:
        try:
            node = await self._store.get(path)
            await self._store.delete(path, node.version)
        except FencelogError as error:
            if error.code not in tolerated:
                raise
