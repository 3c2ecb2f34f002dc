"""The list of the entries of a ledger that are here, from index and write cache alone (BP-34).

No entry log is opened: the scrubber finds out whether the runs that the index points to can still
be read. The time is linear in runs, and at most MAX_LISTED_RUNS of each place are read at a time.

A list names only what is durable: whoever finds all copies there lets go of others. An entry in the
cache may have been added for somebody who died before its answer, and a power loss would take it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from fencelog.bookie.engine.shard import Shard
from fencelog.bookie.format.runs import Range
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import MAX_ENTRY_ID, Availability
from fencelog.ledgers.format.entry_list import EntryList
from fencelog.ledgers.limits import MAX_LISTED_RUNS


async def list_entries(shard: Shard, ledger_id: int, from_entry: int) -> EntryList:
    """List entries from the ledger's shard; the contract of ``BookieClient.list_entries``."""
    if not 0 <= from_entry <= MAX_ENTRY_ID:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"{from_entry} is no entry id")
    state = shard.reads.known(ledger_id)
    was_in_limbo, removals = state.limbo, state.removals
    # An entry moves from the cache to the index and never back: an entry found in neither, with
    # the cache read first, was in neither place.
    places = shard.cache.first_ranges(ledger_id, from_entry, MAX_LISTED_RUNS)
    are_cached = any(places)
    if from_entry <= state.last_entry:
        index = shard.storage.index
        places.append(
            await shard.read_io_thread.run(
                lambda: [
                    (run.first_entry_id, run.last_entry_id)
                    for run in islice(index.runs_from(ledger_id, from_entry), MAX_LISTED_RUNS)
                ]
            )
        )
    if are_cached:  # what is cached is in the journal, and perhaps not synced yet
        await shard.settle()
    shard.reads.known(ledger_id)  # else it was deleted while we looked
    ranges, next_entry = first_page(places, from_entry, MAX_LISTED_RUNS)
    # The ledger may have been dropped meanwhile, and even repaired since: then we may have looked
    # before its entries were back.
    in_limbo = was_in_limbo or state.limbo or state.removals != removals
    return EntryList(Availability.of(ranges), next_entry, in_limbo)


def first_page(
    places: Sequence[Sequence[Range]], from_entry: int, most: int
) -> tuple[list[Range], int | None]:
    """Return at most ``most`` ranges, and the entry from which to ask for the others (None: there
    are none).

    ``places`` have ranges in ascending order; a place with ``most`` ranges may have more. The
    ranges may overlap one another, where a run is moved or replaced.
    """
    end = min((place[-1][1] for place in places if len(place) >= most), default=MAX_ENTRY_ID)
    page: list[Range] = []
    for first, last in sorted(chain.from_iterable(places)):
        low, high = max(first, from_entry), min(last, end)
        if low > high:
            continue
        if page and low <= page[-1][1] + 1:
            page[-1] = (page[-1][0], max(high, page[-1][1]))
        else:
            page.append((low, high))
    if len(page) > most:
        del page[most:]
        end = page[-1][1]
    return page, end + 1 if end < MAX_ENTRY_ID else None
