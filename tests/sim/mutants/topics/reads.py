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
        "tail-of-a-read-is-its-end",
        "SEMANTICS.md, readers",
        "A read shows the end of its messages as the tail, though more follow.",
        (
            Edit(
                READER,
                "LogReader.read",
                "batches[-1].end_offset, self.tail_offset)",
                "batches[-1].end_offset, batches[-1].end_offset)",
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

RANGES: tuple[Mutant, ...] = (
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
    Mutant(
        "confirmed-is-not-passed-on",
        "SEMANTICS.md, readers",
        "The endpoint does not tell the owner that its answer has to be confirmed.",
        (
            Edit(
                "fencelog.api.read.read",
                "Read.get_segments",
                "confirmed=confirmed",
                "confirmed=False",
            ),
        ),
    ),
    Mutant(
        "confirmed-by-a-late-server",
        "SEMANTICS.md, readers",
        "The topic that there is now is read from a server of metadata that may be late.",
        (
            Edit(
                "fencelog.broker.registry.topics",
                "TopicRegistry.latest",
                "await catch_up(self._store)",
                "self._store.session_id",
            ),
        ),
    ),
    Mutant(
        "ranges-from-an-offset-leave-its-ledger-out",
        "SEMANTICS.md, readers",
        "Who asks for ranges from the last message of a ledger on gets those behind the ledger.",
        (
            Edit(
                READER,
                "LogReader.segments",
                "            if end > from_offset\n",
                "            if end > from_offset + 1\n",
            ),
        ),
    ),
    Mutant(
        "ranges-begin-one-entry-too-late",
        "SEMANTICS.md, readers",
        "Who asks for ranges from an offset on gets those from the entry behind it on.",
        (
            Edit(
                SEGMENT,
                "SegmentReader.describe",
                "max(0, from_offset - self.base_offset)",
                "max(0, from_offset - self.base_offset) + 1",
            ),
        ),
    ),
    Mutant(
        "ranges-with-metadata-from-memory",
        "SEMANTICS.md, readers",
        "Asked for the present metadata of a ledger, an owner answers with those that it has.",
        (
            Edit(
                SEGMENT,
                "SegmentReader.refresh",
                "        if self._writer is None:\n",
                "        if not self.is_described:\n",
            ),
        ),
    ),
    Mutant(
        "ranges-begin-with-a-ledger",
        "SEMANTICS.md, trim",
        "Direct readers are told that the log begins where its first ledger does.",
        (
            Edit(
                READER,
                "LogReader.segments",
                '"earliest_offset": self.earliest_offset,',
                '"earliest_offset": self._bases[0] if self._bases else self.earliest_offset,',
            ),
        ),
    ),
    Mutant(
        "ranges-end-with-a-ledger-that-is-written",
        "SEMANTICS.md, terminate",
        "The last ledger is left out where none is being written, since the log has ended.",
        (
            Edit(
                READER,
                "LogReader.segments",
                "            if end > from_offset\n",
                "            if end > from_offset\n"
                "            if segment.is_open or segment is not self._segments[-1]\n",
            ),
        ),
    ),
    Mutant(
        "times-below-the-start",
        "SEMANTICS.md, trim",
        "By time a message is found that was trimmed, in the ledger or batch of one that was not.",
        (
            Edit(
                READER,
                "LogReader.offset_for_time",
                "max(recent, self.earliest_offset)",
                "recent",
            ),
            Edit(
                READER,
                "LogReader.offset_for_time",
                "max(await segment.offset_for_time(time_us), self.earliest_offset)",
                "await segment.offset_for_time(time_us)",
            ),
        ),
    ),
)
"""What readers are told that read from bookies, or look for a time: by an owner that was replaced,
from an offset on, in a log that was trimmed within a ledger or has ended."""

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
)
"""A mutant that needs an owner which was replaced, and is then asked for ranges alone for half a
minute."""

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
