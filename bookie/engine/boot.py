"""The step before serving for a bookie that may have lost acknowledged data (PROTOCOL.md rule 10).

Its directories are new, although a bookie of this id may have held ledgers before; or one of them
was lost and created again (``identity/claim.py``); or adds were not synced and it was not closed
cleanly. Without this step it would take adds of a ledger that it had fenced (seed 002, scenario 1),
or deny an entry that it had acknowledged (scenario 2). So, durably and before anything else:

* every ledger that names it in any fragment is fenced, closed ones too: a writer that was suspended
  before the close may resume; and so is every ledger that is being recovered, whichever bookies it
  names: the recoverer may have written entries to this bookie, and will name it when it closes;
* so is every closed ledger that is marked as lacking copies: a replication worker may have copied
  entries to this bookie, and be about to name it. An open one is not: its writer may choose this
  bookie, and would be ended by the fence. Nobody concludes anything from a denial of an entry in
  its closed fragments: readers do not while it is open, and recoveries read behind them;
* all of them enter limbo: a missing entry of theirs is unknown. (BP-46 leaves closed ones out:
  their end is settled, and denying an entry cannot move it. But a reader would get "no" for an
  entry that is merely not here, and limbo also marks the ledger for repair.)

The proof that these are all. Let T be the moment at which the listing begins; it holds, at least as
new as T, every ledger that existed at T (``LedgerStore.read_all``), in the cluster that the bookie
belongs to: the instance id is read before it in the same session. (The listing of an emptied store
would be empty too.) The bookie has a new incarnation, durable since before T, which it registers
after this step, and which no other process knows before. The process that may have acknowledged the
lost data was dead before T: it held the lock of the directory, or its directory is gone and its id
was given away. (Two processes that run under one id at once cannot be detected here; cookies keep
the second from starting.) So a ledger, or a fragment, that was written after T and names this
bookie

* has no entry that was added at that process: a writer adds only to bookies that it has written to
  the metadata before. Only a recovery adds to members that it names later, with the close: it has
  set IN_RECOVERY before it added any entry, hence before T, and at T the ledger is still in that
  state, or closed and names this bookie. (Closed without it, or deleted, none of that counts.) If
  the ledger were served as one that was never here, the bookie would deny acknowledged entries, and
  no bookie would ever copy them back. And a replication worker copies entries to a bookie that it
  names later: only while the ledger is marked, and its adds, and its look at what is there after it
  has named the bookie, are for one incarnation. If the copies were made before T, and the look is
  not after T, the ledger was marked at T. If it is after T, it fails, and the ledger is marked
  again, so that the entries are copied once more;
* was never fenced at that process, for the same reason: recovery fences the members it reads there;
* gets regular adds only from a writer that saw the new incarnation, hence chose this bookie after
  it was registered: all that it ever acknowledges under that incarnation, it remembers. A writer
  that saw an older one is refused (WRONG_INCARNATION).

A fragment that named it and was gone by T was replaced. A writer that still uses that fragment is
refused in the same way, and a recoverer cannot close the ledger: its compare-and-set fails.

A crash during this step is safe. The identity says "forgot" until all fences are durable, and the
next start repeats the whole step, under the same incarnation, which no other process has seen.
"""

from __future__ import annotations

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import MARKS_PATH, list_ledgers
from fencelog.ledgers.ledger_metadata.model import LedgerState
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import check_session, read_instance
from fencelog.ledgers.metastore.port import MetadataStore


async def fence_before_serving(bookie: Bookie, store: MetadataStore) -> None:
    """Return when the bookie may serve; at once for a bookie that has lost nothing.

    Raises FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT (an incomplete listing
    counts for nothing), BAD_REQUEST (another cluster's store), STORAGE_FAILED. The bookie must then
    be closed unserved.
    """
    if not bookie.may_have_forgotten:
        return
    session_id = store.session_id
    instance = await read_instance(store)
    if instance != bookie.instance:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"bookie {bookie.bookie_id} belongs to instance {bookie.instance}, the metadata store "
            f"is that of {instance}",
        )
    marked = {ledger_id async for ledger_id in list_ledgers(store, MARKS_PATH)}
    async for metadata in LedgerStore(store).read_all():
        is_named = any(bookie.bookie_id in fragment.bookies for fragment in metadata.fragments)
        is_copied = metadata.is_closed and metadata.ledger_id in marked
        if is_named or is_copied or metadata.state is LedgerState.IN_RECOVERY:
            bookie.fence_forgotten(metadata.ledger_id)
    check_session(store, session_id, "read all ledgers")
    await bookie.forgotten_are_fenced()
