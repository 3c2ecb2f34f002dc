"""Wrong brokers: what they answer of a log's tail, times and ranges."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

READER = "fencelog.broker.read.log_reader"
LOG = "fencelog.broker.partition.partition_log"
SEGMENT = "fencelog.broker.read.segment_reader"
TIMES = "fencelog.broker.read.time_index"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "tail-goes-back-at-a-roll",
        "SEMANTICS.md, readers",
        "When a ledger is sealed its end is taken for the tail, though messages go on in the next.",
        (
            Edit(
                READER,
                "LogReader.seal",
                "                segment.seal(metadata, messages=messages)\n",
                "                segment.seal(metadata, messages=messages)\n"
                "                self.tail_offset = segment.base_offset + messages\n",
            ),
        ),
    ),
    Mutant(
        "time-of-the-message-before",
        "SEMANTICS.md, readers",
        "By time an offset is found whose message is older.",
        (
            Edit(
                TIMES,
                "TimeIndex.first_at",
                "                low = place.entry_id + 1\n",
                "                found = place\n                break\n",
            ),
        ),
    ),
    Mutant(
        "time-in-the-next-ledger",
        "SEMANTICS.md, readers",
        "A time that a ledger ends with is looked for in the next one.",
        (
            Edit(
                READER,
                "LogReader.offset_for_time",
                "bisect_left(self._segments, time_us, key=_LAST_PUBLISH)",
                "bisect_right(self._segments, time_us, key=_LAST_PUBLISH)",
            ),
        ),
    ),
    Mutant(
        "ranges-of-a-ledger-up-to-the-tail",
        "SEMANTICS.md, readers",
        "A ledger that is being closed is described as if it held what its successor holds.",
        (
            Edit(
                READER,
                "LogReader.segments",
                "end_offset=end)\n",
                "end_offset=self.tail_offset)\n",
            ),
        ),
    ),
    Mutant(
        "ranges-beyond-what-is-confirmed",
        "SEMANTICS.md, readers",
        "Direct readers are told of entries that are not acknowledged.",
        (
            Edit(
                SEGMENT,
                "SegmentReader.describe",
                "            metadata, last = self._writer.metadata, self._confirmed\n",
                "            metadata = self._writer.metadata\n"
                "            last = self._writer.last_add_pushed\n",
            ),
        ),
    ),
)

DENIED: tuple[Mutant, ...] = (
    Mutant(
        "denied-by-who-was-replaced",
        "SEMANTICS.md, readers",
        "An offset beyond the tail is refused without a look at the list of ledgers.",
        (
            Edit(
                READER,
                "LogReader.check_below_tail",
                "            await self.check_owner()\n",
                "            self.check_open()\n",
            ),
        ),
    ),
    Mutant(
        "successors-ids-are-stale",
        "SEMANTICS.md, consumers",
        "An id of a later epoch is called stale without a look at the list of ledgers.",
        (
            Edit(
                "fencelog.broker.subscriptions.subscriptions",
                "Subscriptions._parsed",
                "            await self._reader.check_owner()\n",
                "            self._reader.check_open()\n",
            ),
        ),
    ),
    Mutant(
        "busy-at-who-was-replaced",
        "SEMANTICS.md, consumers",
        "A consumer is turned away for another one without a look at the list of ledgers.",
        (
            Edit(
                "fencelog.broker.subscriptions.subscriptions",
                "Subscriptions._refusing_as_owner",
                "*_DECIDED_BY_CONSUMERS",
                "",
            ),
        ),
    ),
    Mutant(
        "no-place-at-who-was-replaced",
        "SEMANTICS.md, consumers",
        "Cursors are counted without a look at the list of ledgers.",
        (
            Edit(
                "fencelog.broker.subscriptions.table",
                "SubscriptionTable.open",
                "                await self._reader.check_owner()  # a later one may have fewer\n",
                "",
            ),
        ),
    ),
)
"""What an owner that was replaced says for certain, and its successor knows better."""

ASKED_DIRECTLY: tuple[Mutant, ...] = (
    Mutant(
        "ranges-without-an-owner",
        "SEMANTICS.md, readers",
        "Who asks for ranges alone does not make an owner look whether it was replaced.",
        (
            Edit(
                READER,
                "LogReader.segments",
                "        self.check_open()\n        wanted",
                "        wanted",
            ),
            Edit(
                READER,
                "LogReader.segments",
                "        self.check_open()\n        # From here on",
                "        # From here on",
            ),
        ),
    ),
    Mutant(
        "confirmed-by-an-owner-that-was-replaced",
        "SEMANTICS.md, readers",
        "An owner confirms its answer without a look whether it still is one.",
        (
            Edit(
                LOG,
                "PartitionLog.segments",
                "            await self.check_owner()\n",
                "            self._reader.check_open()\n",
            ),
        ),
    ),
)
"""Mutants that need an owner which was replaced, and which is then asked for ranges alone."""

STALE_BY_A_LOST_SEEK: tuple[Mutant, ...] = (
    Mutant(
        "stale-by-a-seek-that-is-lost",
        "SEMANTICS.md, consumers",
        "A cumulative ack is called stale by a seek that is not durable yet.",
        (
            Edit(
                "fencelog.broker.subscriptions.subscriptions",
                "Subscriptions.ack_through",
                "            await self._cursors.settled()  # the seek that made it stale\n",
                "",
            ),
        ),
    ),
)
"""A mutant that needs a cumulative ack between a seek and the takeover that loses it."""
