"""The work of clients within a broker's process in histories of administration, and the notes of
it: of the incarnation that the instance which answered belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from fencelog.broker.append.conditions import (
    NO_CONDITIONS,
    AppendConditions,
    AppendFuture,
    AppendResult,
)
from fencelog.broker.append.producer_access import WAIT
from fencelog.broker.broker import Broker
from fencelog.broker.log.retention import Trimmed
from fencelog.broker.partition.partition_log import PartitionLog
from fencelog.broker.read.stored import CompactedBatch, ReadLimits, ReadResult
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.errors import Effects, ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import SequenceRange, producer_digest
from fencelog.ledgers.record_batch import decode_batch
from tests.sim.oracle.access_history import Change, Held, Register
from tests.sim.oracle.incarnation_lists import IncarnationLedgerLists
from tests.sim.oracle.incarnations import AdminLog, Incarnations
from tests.sim.oracle.log_history import Sent, payload_of
from tests.sim.topics.brokers import TOPIC
from tests.sim.topics.clients import _append, _noted, note_read
from tests.sim.topics.reads import READ_BYTES, look_at_tail, read_at

WAIT_MS = 150
CLAIM_WAIT_MS = 100

LESS_ABOVE = 0.9
"""The share of a log above which another trim follows, to less."""


class Edge:
    """``instance`` and ``log`` of everything belong together."""

    def __init__(self, incarnations: Incarnations, ledger_lists: IncarnationLedgerLists) -> None:
        self.incarnations = incarnations
        self.ledger_lists = ledger_lists

    async def open(self, broker: Broker, partition: int) -> tuple[PartitionLog, AdminLog]:
        return self.of(await broker.partition(TOPIC, partition), partition)

    def of(self, instance: PartitionLog, partition: int) -> tuple[PartitionLog, AdminLog]:
        topic_id, _, number = instance.name.partition("/")
        log = self.incarnations.log(topic_id, partition)
        if int(number) != partition or instance.partition != partition:
            log.violate(16, f"it is served from the list of partition {number}")
        look_at_tail(log, instance)
        log.state.cursors()  # what has become durable since is judged now
        return instance, log

    # -- appends ---------------------------------------------------------------------------------

    async def append(
        self, partition: int, wanted: list[Sent], broker: Broker, *, only: str | None = None
    ) -> list[FencelogError | None]:
        """Append them together; what became of each. ``only``: to this incarnation, [] for any
        other. ``wanted`` belongs to no log: each incarnation has its own notes."""
        instance, log = await self.open(broker, partition)
        if only is not None and log.topic_id != only:
            return []
        futures = []
        for want in wanted:
            sent = log.sent.get(want.payloads[0]) or log.new(
                *want.payloads, is_batch=want.is_batch, key=want.key, conditions=want.conditions
            )
            sent.removes = want.removes
            sent.conditions = want.conditions  # another token, of the same messages
            log.attempted(sent)
            tried = None
            if log.producer_limit is not None:
                rows = len(sent.payloads)
                tried = log.producer_limit.tried(
                    sent.conditions.sequences, rows, instance.tail_offset
                )
            future = _append(instance, sent)
            if tried is not None:
                future.add_done_callback(partial(_noted, tried))
            began_s = asyncio.get_running_loop().time()
            future.add_done_callback(
                partial(self._answered, log, sent, want.conditions, instance, began_s)
            )
            futures.append(future)
        if futures:
            await asyncio.wait(futures)
        return [_error_of(future) for future in futures]

    def _answered(
        self,
        log: AdminLog,
        sent: Sent,
        conditions: AppendConditions,
        instance: PartitionLog,
        began_s: float,
        future: AppendFuture,
    ) -> None:
        if future.cancelled():
            return
        error: Any = future.exception()
        now_s = asyncio.get_running_loop().time()
        if error is not None:
            log.refused(sent, error)
            log.check_refusal(error)
            wrong = log.access.refused(conditions, error, began_s, now_s)
            if wrong is not None:
                log.violate(25, wrong)
            return
        told = future.result()
        if told.partition != log.partition:
            log.violate(16, f"an append was answered for partition {told.partition}")
        log.acknowledged(sent, told, instance, instance.epoch)
        look_at_tail(log, instance)
        if told.duplicate:
            return
        wrong = log.access.appended(conditions, told.offset, began_s, now_s)
        if wrong is not None:
            log.violate(25, wrong)
        log.counts["appends by forgotten claims"] += log.access.has_forgotten(
            conditions, began_s, now_s
        )
        if log.end is not None and told.offset >= log.end:
            log.violate(24, f"{told.offset} is acknowledged, it ended at {log.end}")

    async def find_key(
        self, partition: int, want: Sent, sequences: SequenceRange, topic: TopicInfo, broker: Broker
    ) -> tuple[AppendResult | None]:
        """Return what the partition, of this incarnation, has under an idempotency key."""
        instance, log = await self.open(broker, partition)
        if log.topic_id != topic.topic_id:
            raise FencelogError(ErrorCode.METADATA_CONFLICT, "another incarnation")
        found = await instance.access.find_key(sequences, topic.config.partitions)
        if found is not None:
            sent = log.sent.get(want.payloads[0])
            if sent is None:
                log.violate(26, f"{want.payloads[0]!r} is there, and was never sent there")
            else:
                log.acknowledged(sent, found, instance, instance.epoch)
            log.counts["keys found"] += 1
        return (found,)

    # -- reads -----------------------------------------------------------------------------------

    async def read(
        self, partition: int, offset: int, topic_id: str, max_messages: int, broker: Broker
    ) -> tuple[str, ReadResult | None]:
        """Return what stands there, and of which incarnation; None of another one than
        ``topic_id``, in which the offset means nothing."""
        instance, log = await self.open(broker, partition)
        if topic_id and log.topic_id != topic_id:
            return log.topic_id, None
        limits = ReadLimits(max_messages=max_messages, max_bytes=READ_BYTES, wait_ms=WAIT_MS)
        result = await read_at(log, instance, offset, limits)
        note_read(log, offset, result)
        return log.topic_id, result

    # -- who may append --------------------------------------------------------------------------

    async def fence(self, partition: int, token: str | None, broker: Broker) -> None:
        instance, log = await self.open(broker, partition)
        await self.fence_at(instance, log, token)

    async def fence_at(self, instance: PartitionLog, log: AdminLog, token: str | None) -> None:
        await self._change(
            log, instance, log.access.token, token, lambda _: instance.access.fence(token)
        )

    async def claim(self, partition: int, name: str, mode: str, broker: Broker) -> tuple[str, int]:
        """The topic's id and the epoch that was given."""
        instance, log = await self.open(broker, partition)
        wait_ms = CLAIM_WAIT_MS if mode == WAIT else 0
        return log.topic_id, await self.claim_at(instance, log, name, mode, wait_ms)

    async def claim_at(
        self, instance: PartitionLog, log: AdminLog, name: str, mode: str, wait_ms: int
    ) -> int:
        digest = producer_digest(name.encode())

        async def claim(change: Change) -> int:
            epoch = await instance.access.claim(name, mode, wait_ms=wait_ms)
            wrong = log.access.claimed(change, digest, epoch)
            if wrong is not None:
                log.violate(25, wrong)
            return epoch

        epoch: int = await self._change(log, instance, log.access.holder, Held(digest, None), claim)
        log.counts["claims"] += 1
        log.history.on_event("claimed")
        return epoch

    async def release(
        self, partition: int, name: str, topic_id: str, epoch: int, broker: Broker
    ) -> None:
        instance, log = await self.open(broker, partition)
        if log.topic_id == topic_id:
            await self.release_at(instance, log, name, epoch)

    async def release_at(
        self, instance: PartitionLog, log: AdminLog, name: str, epoch: int
    ) -> None:
        held = Held(producer_digest(name.encode()), epoch)

        async def release(change: Change) -> None:
            try:
                await instance.access.release(name, epoch)
            except FencelogError as error:
                wrong = log.access.not_released(change, held, error)
                if wrong is not None:
                    log.violate(25, wrong)
                raise

        await self._change(log, instance, log.access.holder, None, release)

    async def _change(
        self,
        log: AdminLog,
        instance: PartitionLog,
        register: Register,
        value: Any,
        work: Callable[[Change], Awaitable[Any]],
    ) -> Any:
        loop = asyncio.get_running_loop()
        change = register.begin(value, instance.epoch, loop.time())
        try:
            result = await work(change)
        except FencelogError as error:
            log.counts[f"access: {error.code.slug}"] += 1
            if error.code.effects is Effects.NONE:
                register.refused(change)
            else:
                register.unknown(change, loop.time())
            raise
        register.confirmed(change, loop.time(), tail=instance.tail_offset)
        if self.incarnations.is_living(log.topic_id):
            log.check_access()
        return result

    # -- what may go -----------------------------------------------------------------------------

    async def trim(self, partition: int, share: float, broker: Broker) -> None:
        """Forget so much of what is there; and where that is nearly all of it, ask for less then:
        nothing comes back."""
        instance, log = await self.open(broker, partition)
        start, tail = instance.earliest_offset, instance.tail_offset
        before = start + round((tail - start) * share)
        await self.trim_at(instance, log, before)
        if share > LESS_ABOVE and before > 1:
            await self.trim_at(instance, log, before - 1)

    async def trim_at(self, instance: PartitionLog, log: AdminLog, before: int) -> Trimmed:
        trimmed = await instance.retention.trim(before)
        log.counts["trimmed by hand"] += 1
        log.known_start = max(log.known_start, trimmed.earliest_offset)
        if trimmed.held_back != (trimmed.earliest_offset < before):
            log.violate(20, f"trimmed to {trimmed}, {before} was asked for")
        if trimmed.held_back and not self.incarnations.has_had_subscriptions(log.topic_id):
            log.violate(20, f"trimmed to {trimmed}, {before} was asked for: nobody holds it back")
        ledger_list = self.ledger_lists.by_key.get((log.topic_id, log.partition))
        if ledger_list is not None and ledger_list.start_offset < trimmed.earliest_offset:
            log.violate(
                20, f"told to be trimmed to {trimmed}, the list has {ledger_list.start_offset}"
            )
        return trimmed

    async def terminate(self, partition: int, broker: Broker) -> None:
        instance, log = await self.open(broker, partition)
        await self.terminate_at(instance, log)

    async def terminate_at(self, instance: PartitionLog, log: AdminLog) -> None:
        await instance.terminate()
        log.counts["terminated"] += 1
        log.ended(instance.tail_offset)

    # -- the compacted view ----------------------------------------------------------------------

    async def read_view(self, partition: int, broker: Broker) -> bool:
        """Read the view from its beginning to its horizon, and compare; whether it was one."""
        instance, log = await self.open(broker, partition)
        view, found = instance.compaction.view, dict[int, bytes]()
        compacted = instance._node.ledger_list.compacted
        if compacted is None:
            return False
        offset = 0
        while offset < compacted.end_offset:
            result = await view.read(offset, ReadLimits(max_messages=100, max_bytes=READ_BYTES))
            if instance._node.ledger_list.compacted is not compacted:
                return False
            for batch in result.entries:
                if isinstance(batch, CompactedBatch):
                    payloads = [payload_of(message) for message in decode_batch(batch.batch)]
                    found.update(zip(batch.offsets, payloads, strict=True))
            offset = result.next_offset
        check_view(log, found, compacted.end_offset, log.horizons[compacted.end_offset])
        return True


def check_view(log: AdminLog, found: dict[int, bytes], horizon: int, previous: int = 0) -> None:
    """The view holds the newest message of every key, and all without one. A removal is in
    the first view alone that has read it: in this one, if it is not below the ``previous`` horizon.
    Some messages below the horizon were reported to no client; their senders are known. Of a key
    whose newest message was lost to the view, it may have an older one, or none."""
    log.counts["views read"] += 1
    for offset, payload in found.items():
        log.seen(offset, (payload,), "the view")
    newest: dict[bytes, int] = {}
    for offset in sorted(log.messages):
        sent = log.sent.get(log.messages[offset])
        if offset >= horizon or sent is None:
            continue
        if sent.key is not None:
            newest[sent.key] = offset
        elif offset not in found and offset not in log.lost_to_view:
            log.violate(24, f"{offset} has no key and is not in the view below {horizon}")
    keys = _keys_of(log, found)
    removed = {key for key, offset in newest.items() if offset < previous and _removes(log, offset)}
    wanted = {key: offset for key, offset in newest.items() if key not in removed}
    untold = {key for key in wanted if key not in keys} & _perhaps_removed(log)
    lost = {key for key, offset in newest.items() if offset in log.lost_to_view}
    untold |= lost
    log.counts["keys lost to a view"] += len(lost)
    told = {key: offset for key, offset in keys.items() if key not in untold}
    if told != {key: offset for key, offset in wanted.items() if key not in untold}:
        log.violate(24, f"the view from {previous} to {horizon} has {keys}, newest are {wanted}")
    log.counts["keys removed"] += len(removed)


def _keys_of(log: AdminLog, found: dict[int, bytes]) -> dict[bytes, int]:
    """Return where the view has each key, once."""
    keys: dict[bytes, int] = {}
    for offset in sorted(found):
        sent = log.sent.get(found[offset])
        if sent is None:
            log.violate(24, f"the view has {found[offset]!r}, which nobody sent")
        elif sent.key is not None and sent.key in keys:
            log.violate(24, f"the view has {keys[sent.key]} and {offset} of {sent.key!r}")
        elif sent.key is not None:
            keys[sent.key] = offset
    return keys


def _removes(log: AdminLog, offset: int) -> bool:
    return log.sent[log.messages[offset]].removes


def _perhaps_removed(log: AdminLog) -> set[bytes]:
    """Keys with a removal that may be there, and of which nobody was told where."""
    return {
        sent.key
        for sent in log.sent.values()
        if sent.removes
        and sent.key is not None
        and sent.may_be_there
        and any(payload not in log.places for payload in sent.payloads)
    }


def conditions_of(token: str | None) -> AppendConditions:
    return NO_CONDITIONS if token is None else AppendConditions(fencing_token=token)


def _error_of(future: AppendFuture) -> FencelogError | None:
    return cast("FencelogError | None", future.exception())
