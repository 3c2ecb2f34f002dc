"""The producer access of a partition: its fencing token, and the producer that holds it
exclusively.

A section of the partition's state; every change is an event, durable before anything is appended
under it (``access_changes``).

A claim gives an epoch, higher than any that the partition has given or seen of that producer. The
previous holder is fenced for good, with its epoch and all below. Epochs given begin at 1, so that
instances that have claimed nothing (0) are fenced, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.ledger_list.state_core import Event
from fencelog.broker.limits import MAX_CHOSEN_EPOCH, MAX_CLAIMED_PRODUCERS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_SEQUENCE, producer_digest

EXCLUSIVE, FENCING, WAIT = "exclusive", "fencing", "wait"
MODES = (EXCLUSIVE, FENCING, WAIT)


class ExclusiveProducer(NamedTuple):
    """The only producer that may append, with this epoch."""

    producer_id: str
    epoch: int


class Access:
    """The access to one partition. ``token`` and ``holder`` are None where there is none."""

    kinds = ("fencing_token", "claimed", "released", "lowest_epoch", "given_epoch", "partitions")

    def __init__(self) -> None:
        self.token: str | None = None
        self.holder: ExclusiveProducer | None = None
        self.partitions = 0
        """The number of partitions that the topic is known to have, once that has mattered to an
        idempotency key: no key that was routed by fewer is written any more."""
        self._given_epoch = 0
        self._lowest: OrderedDict[str, int] = OrderedDict()
        self._lowest_of: dict[bytes, int] = {}

    @property
    def is_open(self) -> bool:
        """Tell whether every producer may append."""
        return self.token is None and self.holder is None

    def check(self, conditions: AppendConditions) -> None:
        """Check an append against the access. Raises PRECONDITION_FAILED, PRODUCER_BUSY,
        PRODUCER_FENCED; BAD_REQUEST: an epoch that is too high; METADATA_CONFLICT: a partition that
        was chosen before the topic got more."""
        if conditions.routed_by is not None and conditions.routed_by < self.partitions:
            raise FencelogError(
                ErrorCode.METADATA_CONFLICT,
                f"the partition was chosen among {conditions.routed_by}; the topic has "
                f"{self.partitions}",
            )
        if conditions.fencing_token != self.token:
            why = "has another fencing token" if self.token is not None else "has no fencing token"
            raise FencelogError(ErrorCode.PRECONDITION_FAILED, f"the partition {why}")
        sequences, holder = conditions.sequences, self.holder
        if sequences is not None and sequences.kind == RANGE_SEQUENCE:
            lowest = self._lowest_of.get(sequences.id, 0)
            if sequences.epoch < lowest:
                raise _fenced(sequences.epoch, lowest)
            if sequences.epoch > max(MAX_CHOSEN_EPOCH, self._given_epoch):
                raise FencelogError(
                    ErrorCode.BAD_REQUEST,
                    f"epochs above {MAX_CHOSEN_EPOCH} are given by claims, "
                    f"{sequences.epoch} was not",
                )
            if holder is not None and sequences.id == producer_digest(holder.producer_id.encode()):
                if sequences.epoch != holder.epoch:
                    raise _fenced(sequences.epoch, holder.epoch)
                return
        if holder is not None:
            raise _busy(holder)

    # -- changes, as the events to be recorded ---------------------------------------------------

    def fence(self, token: str | None, *, expected: tuple[str | None] | None = None) -> Event:
        """Return the event that sets the token. ``expected``: what the token has to be now. Raises
        PRECONDITION_FAILED."""
        if expected is not None and expected != (self.token,):
            raise FencelogError(
                ErrorCode.PRECONDITION_FAILED, "the partition's fencing token is another one"
            )
        return ["fencing_token", token]

    def claim(self, producer_id: str, mode: str, *, seen_epoch: int) -> Event:
        """Return the event of a claim; it ends with the epoch that is given. ``seen_epoch``: the
        producer's highest in the log, -1 for none. Raises PRODUCER_BUSY."""
        holder = self.holder
        if holder is not None and holder.producer_id != producer_id and mode != FENCING:
            raise _busy(holder)
        return ["claimed", producer_id, max(self._given_epoch, seen_epoch) + 1]

    def release(self, producer_id: str, epoch: int) -> Event:
        """Return the event of a release. Raises PRODUCER_FENCED if this is not the holder, and was
        not when it was released."""
        released = self.holder is None and self._lowest.get(producer_id) == epoch
        if self.holder != (producer_id, epoch) and not released:
            raise FencelogError(
                ErrorCode.PRODUCER_FENCED,
                f"producer {producer_id} does not hold the partition with epoch {epoch}",
            )
        return ["released", producer_id, epoch]

    def grow(self, partitions: int) -> Event:
        """Return the event that the topic has so many partitions, or more."""
        return ["partitions", max(partitions, self.partitions)]

    # -- the section -----------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        match event:
            case ["fencing_token", str() | None as token]:
                self.token = token
            case ["claimed", str(producer_id), int(epoch)]:
                if self.holder is not None and self.holder.producer_id != producer_id:
                    self._raise_lowest(self.holder.producer_id, self.holder.epoch + 1)
                self._raise_lowest(producer_id, epoch)
                self.holder = ExclusiveProducer(producer_id, epoch)
                self._given_epoch = max(self._given_epoch, epoch)
            case ["released", str(), int()]:
                self.holder = None
            case ["lowest_epoch", str(producer_id), int(epoch)]:
                self._raise_lowest(producer_id, epoch)
            case ["partitions", int(partitions)]:
                self.partitions = partitions
            case ["given_epoch", int(epoch)]:
                self._given_epoch = epoch
            case _:
                raise ValueError(event)

    def snapshot(self) -> Iterator[Event]:
        if self.token is not None:
            yield ["fencing_token", self.token]
        if self.partitions:
            yield ["partitions", self.partitions]
        if self._given_epoch:
            yield ["given_epoch", self._given_epoch]
        for producer_id, epoch in self._lowest.items():
            yield ["lowest_epoch", producer_id, epoch]
        if self.holder is not None:
            yield ["claimed", *self.holder]

    def _raise_lowest(self, producer_id: str, epoch: int) -> None:
        self._lowest[producer_id] = epoch
        self._lowest.move_to_end(producer_id)
        self._lowest_of[producer_digest(producer_id.encode())] = epoch
        if len(self._lowest) > MAX_CLAIMED_PRODUCERS:
            oldest, _ = self._lowest.popitem(last=False)
            del self._lowest_of[producer_digest(oldest.encode())]


def _fenced(epoch: int, wanted: int) -> FencelogError:
    return FencelogError(
        ErrorCode.PRODUCER_FENCED,
        f"the producer has to append with epoch {wanted}, not {epoch}",
        epoch=wanted,
    )


def _busy(holder: ExclusiveProducer) -> FencelogError:
    return FencelogError(
        ErrorCode.PRODUCER_BUSY,
        f"producer {holder.producer_id} holds the partition exclusively",
        producer_id=holder.producer_id,
    )
