"""Wrong compactions, views and catch-up reads: what readers below the tail see."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

AHEAD = "fencelog.broker.read.read_ahead"
COMPACTION = "fencelog.broker.compaction.compaction"
ENTRY = "fencelog.broker.compaction.compacted_entry"
VIEW = "fencelog.broker.compaction.compacted_view"

_READERS = "SEMANTICS.md, readers"
_VIEW = "SEMANTICS.md, the compacted view"

COMPACTIONS: tuple[Mutant, ...] = (
    Mutant(
        "listed-before-it-is-durable",
        _VIEW,
        "A view is made of entries whose last ones are not acknowledged.",
        (
            Edit(
                COMPACTION,
                "ViewWriter.close",
                "            await self._acknowledged(ledger, self._last_entry)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "former-view-deleted-first",
        _VIEW,
        "The ledger of the former view is deleted before the new one is listed.",
        (
            Edit(
                COMPACTION,
                "LogCompaction._pass",
                "        try:\n            await self._node.change(",
                "        for ledger_id in () if previous is None else previous.ledgers:\n"
                "            await self._factory.ledgers.delete(ledger_id, unfenced=True)\n"
                "        try:\n            await self._node.change(",
            ),
        ),
    ),
    Mutant(
        "view-deleted-after-an-unknown-listing",
        _VIEW,
        "A view whose listing has failed is deleted, although it may be on the list.",
        (
            Edit(
                COMPACTION,
                "LogCompaction._pass",
                "        except LedgerListLost as lost:\n            await output.discard(lost)\n",
                "        except FencelogError:\n            await output.abandon()\n",
            ),
        ),
    ),
    Mutant(
        "unlisted-view-stays",
        _VIEW,
        "A view that is not listed, because another owner has the log, is not deleted.",
        (
            Edit(
                COMPACTION,
                "LogCompaction._pass",
                "            await output.discard(lost)\n",
                '            log.info("%s", lost)\n',
            ),
        ),
    ),
    Mutant(
        "view-ends-where-the-log-does",
        _VIEW,
        "A view that ends early, for want of space for keys, claims to end where the log did.",
        (
            Edit(
                COMPACTION,
                "LogCompaction._pass",
                "compacted = await output.close(end_offset=end)",
                "compacted = await output.close(end_offset=self._reader.tail_offset)",
            ),
        ),
    ),
    Mutant(
        "message-before-the-offset",
        _VIEW,
        "A read of a view returns the batch that ends at its offset.",
        (
            Edit(
                VIEW,
                "CompactedReader.load",
                "if b.end_offset > offset]",
                "if b.end_offset >= offset]",
            ),
        ),
    ),
    Mutant(
        "view-ends-with-its-first-read",
        _VIEW,
        "A read of a view goes on at its end.",
        (
            Edit(
                VIEW,
                "CompactedReader.load",
                "return list(batches), batches[-1].end_offset",
                "return list(batches), self._end_offset",
            ),
        ),
    ),
    Mutant(
        "messages-of-the-time-passed-over",
        _VIEW,
        "A search for a time passes over the messages of that time.",
        (
            Edit(
                VIEW,
                "CompactedReader.offset_for_time",
                "bisect_left(batch.publish_times, time_us)",
                "min(bisect_left(batch.publish_times, time_us + 1), len(batch.offsets) - 1)",
            ),
        ),
    ),
    Mutant(
        "time-below-the-horizon",
        _VIEW,
        "A search for a time that the view does not have finds messages that it left out.",
        (
            Edit(
                VIEW,
                "CompactedView.offset_for_time",
                "return max(compacted.end_offset, await self._reader.offset_for_time(time_us))",
                "return await self._reader.offset_for_time(time_us)",
            ),
        ),
    ),
    Mutant(
        "replaced-view-is-an-error",
        _VIEW,
        "A read fails because the view is replaced under it.",
        (
            Edit(
                VIEW,
                "CompactedView.fetch",
                "                if self._node.ledger_list.compacted is compacted:\n"
                "                    await self._reader.check_not_deleted(error)\n"
                "                    raise\n"
                "                continue",
                "                raise",
            ),
        ),
    ),
    Mutant(
        "view-given-up-for-a-ledger-of-the-log",
        _VIEW,
        "The view is made anew though its ledger is there: what the log has trimmed is lost.",
        (
            Edit(
                COMPACTION,
                "LogCompaction._is_view_gone",
                "LEDGER_NOT_FOUND\n        return False",
                "LEDGER_NOT_FOUND\n        return True",
            ),
        ),
    ),
    Mutant(
        "deleted-by-its-successor",
        _VIEW,
        "A replaced owner says that there is no such ledger, as if the client had named it.",
        (
            Edit(
                "fencelog.broker.read.log_reader",
                "LogReader.check_not_deleted",
                "await self.check_owner()",
                "return",
            ),
        ),
    ),
    Mutant(
        "view-of-a-closed-log",
        _VIEW,
        "An owner that has lost its log shows the view that it had.",
        (
            Edit(
                VIEW,
                "CompactedView.fetch",
                "            self._reader.check_open()\n",
                "",
            ),
        ),
    ),
    Mutant(
        "time-of-a-closed-log",
        _VIEW,
        "An owner that has lost its log searches the view that it had.",
        (
            Edit(
                VIEW,
                "CompactedView.offset_for_time",
                "            self._reader.check_open()\n",
                "",
            ),
        ),
    ),
    Mutant(
        "entry-of-the-log-in-a-view",
        _VIEW,
        "An entry of another kind is read as one of a view.",
        (Edit(ENTRY, "read_compacted", "header.kind != KIND_COMPACTED or ", ""),),
    ),
    Mutant(
        "entry-at-its-first-time",
        _VIEW,
        "The time of an entry of a view is that of its first message.",
        (
            Edit(
                ENTRY,
                "pack_compacted",
                "publish_time_us=publish_times[-1]",
                "publish_time_us=publish_times[0]",
            ),
        ),
    ),
)

CATCH_UPS: tuple[Mutant, ...] = (
    Mutant(
        "rest-of-a-chunk-is-skipped",
        _READERS,
        "A read that takes a part of a chunk goes on at the chunk's end.",
        (
            Edit(
                AHEAD,
                "_take",
                "end = taken[-1].end_offset if taken and taken[-1] is not chunk.batches[-1] else "
                "chunk.end",
                "end = chunk.end",
            ),
        ),
    ),
    Mutant(
        "failed-chunk-stays",
        _READERS,
        "A read that has failed is not made again.",
        (
            Edit(
                AHEAD,
                "LogReadAhead._fetch",
                "            self.drop(chunk)\n            raise\n",
                "            raise\n",
            ),
        ),
    ),
    Mutant(
        "newer-chunk-dropped-for-an-older",
        _READERS,
        "A chunk that was dropped takes the one in its place along.",
        (
            Edit(
                AHEAD,
                "LogReadAhead.drop",
                "if self._chunks.get(chunk.start) is chunk:",
                "if chunk.start in self._chunks:",
            ),
        ),
    ),
    Mutant(
        "first-reader-ends-the-read-of-all",
        _READERS,
        "A reader that gives up ends the read that others wait for.",
        (
            Edit(
                AHEAD,
                "LogReadAhead.read",
                "await asyncio.wait((chunk.loading,))",
                "await asyncio.gather(chunk.loading, return_exceptions=True)",
            ),
        ),
    ),
    Mutant(
        "chunk-above-the-start-is-dropped",
        _READERS,
        "A trim drops what readers above it have.",
        (
            Edit(
                AHEAD,
                "LogReadAhead.trim",
                "chunk.end <= start_offset",
                "chunk.start <= start_offset",
            ),
        ),
    ),
    Mutant(
        "passed-chunks-are-counted-twice",
        _READERS,
        "A chunk that was read to its end counts against the memory of such chunks for good.",
        (
            Edit(
                AHEAD,
                "BrokerReads._take_out",
                "            self._passed_size -= chunk.size\n",
                "",
            ),
        ),
    ),
    Mutant(
        "dropped-chunks-are-still-ahead",
        _READERS,
        "A prefetched chunk that was dropped counts as one that is ahead for good.",
        (
            Edit(
                AHEAD,
                "BrokerReads.forget",
                "        self.ahead -= chunk.is_ahead\n",
                "",
            ),
        ),
    ),
)
