"""The ledger chain of a partition, for people: its ledgers with their bookies and missing copies,
who wrote them, what retention cuts next, and how far subscriptions have read.

The owner answers, from memory and with two reads of metadata for each ledger of the window. A
client that asks again names the ``ETag`` it has: an answer that has not changed is not sent
again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from fencelog.api.http.asgi import JSON, Exchange, parse_number
from fencelog.api.http.etags import etag_of, is_current
from fencelog.api.http.read_request import MAX_OFFSET
from fencelog.api.http.targets import Target
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.bookie.replication.store import UnderReplicatedLedgers
from fencelog.broker.limits import MAX_VIEWED_LEDGERS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker
    from fencelog.broker.partition.partition_log import PartitionLog

VIEW_PARAMETERS = frozenset(("ledgers", "before"))
DEFAULT_VIEWED_LEDGERS = 40
"""The ledgers of an answer by default: more cannot be told apart in a picture of one screen."""

Json = dict[str, Any]


class LedgerView:
    """The endpoint ``GET …/partitions/P/chain``."""

    def __init__(self, broker: Broker, ownership: OwnerProxy, store: MetadataStore) -> None:
        self._broker = broker
        self._ownership = ownership
        self._ledgers = LedgerStore(store)
        self._marks = UnderReplicatedLedgers(store)

    async def get(self, exchange: Exchange, target: Target) -> None:
        """Answer 200 with the chain, or 304 if it is as the client knows it. Raises
        METADATA_UNAVAILABLE, …."""
        query = exchange.query(VIEW_PARAMETERS)
        limit, before = DEFAULT_VIEWED_LEDGERS, None
        if "ledgers" in query:
            limit = parse_number("ledgers", query["ledgers"], low=1, high=MAX_VIEWED_LEDGERS)
        if "before" in query:
            before = parse_number("before", query["before"], low=0, high=MAX_OFFSET)

        async def local(log: PartitionLog) -> None:
            body = msgspec.json.encode(await self._view(log, target, limit, before))
            headers = [(b"etag", etag_of(body)), (b"cache-control", b"no-cache")]
            if is_current(exchange, headers[0][1]):
                await exchange.start(304, headers)
                await exchange.send_body(b"")
            else:
                await exchange.respond(200, JSON, body, headers)

        await self._ownership.serve(exchange, target.topic, target.partition, local)

    async def _view(
        self, log: PartitionLog, target: Target, limit: int, before: int | None
    ) -> Json:
        info = await self._broker.topic(target.topic)
        view = log.view(limit=limit, before=before)
        names = {
            each.info.subscription_id: each.info.name
            for each in await self._broker.subscriptions.list(info.topic_id)
        }
        for each in view["subscriptions"]:
            subscription_id = each.pop("subscription_id")
            each["subscription"] = names.get(subscription_id, subscription_id)
        async with asyncio.TaskGroup() as group:
            for segment in view["segments"]:
                group.create_task(self._add_storage(segment))
        return {
            "topic": str(target.topic),
            "topic_id": info.topic_id,
            "partition": log.partition,
            "partitions": info.config.partitions,
            "retention_ms": info.policy.retention_ms,
            "retention_bytes": info.policy.retention_bytes,
            "bookies": sorted(self._broker.bookie_addresses()),
            **view,
        }

    async def _add_storage(self, segment: Json) -> None:
        """Add the ledger's metadata, null if it was deleted meanwhile, and the bookies whose copies
        the auditor misses."""
        ledger_id = segment["ledger_id"]
        segment["ledger"] = None
        try:
            metadata, _ = await self._ledgers.get(ledger_id)
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
        else:
            segment["ledger"] = {
                "state": metadata.state.value,
                "ensemble_size": metadata.ensemble_size,
                "write_quorum": metadata.write_quorum,
                "ack_quorum": metadata.ack_quorum,
                "last_entry_id": metadata.last_entry_id,
                "fragments": _fragments(metadata),
            }
        mark = await self._marks.get(ledger_id)
        segment["missing"] = [] if mark is None else sorted(mark.missing)
        segment["missing_since_us"] = None if mark is None else mark.since_us


def _fragments(metadata: LedgerMetadata) -> list[Json]:
    """Return the fragments, with the time since when entries were written to these bookies; None:
    nobody has noted it."""
    begun_us = [each.since_us or None for each in metadata.fragments]
    begun_us[0] = begun_us[0] or metadata.created_us or None
    return [
        {"first_entry": each.first_entry_id, "bookies": list(each.bookies), "since_us": since_us}
        for each, since_us in zip(metadata.fragments, begun_us, strict=True)
    ]
