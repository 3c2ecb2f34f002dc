"""Before a bookie serves that may have forgotten something it acknowledged (PROTOCOL.md rule 10).

Its directories are new, although a bookie of this id may have held ledgers before; or one of them
was lost and made anew (``identity/claim.py``); or adds were not synced and it was not closed
cleanly. Served from as it is, it would take adds of a ledger that it had fenced (seed 002, scenario
1), or deny an entry that it had acknowledged (scenario 2). So, durably and before anything else:

* every ledger that names it in any fragment is fenced, closed ones too: a writer that sleeps since
  before the close may yet wake up; and so is every ledger that is being recovered, whomever it
  names: the recoverer may have written entries to this bookie, and will name it when it closes;
* all of them enter limbo: an entry that is missing of them is unknown. (BP-46 leaves closed ones
  out: where they end is settled, and denying an entry cannot move it. But a reader would be told
  "no" of what is merely not here, and limbo is also what says that there is something to repair.)

Why that is all of them. Let T be the moment at which the listing begins; it holds, at least as new
as T, every ledger that there was at T (``LedgerStore.read_all``), in the cluster that the bookie
belongs to: the instance id is read before it in the same session. (Of a store that was emptied the
listing would be empty too.) The bookie has a new incarnation, durable since before T, which it
registers after this step, and which nobody knows before. The process that may have acknowledged
what is forgotten was dead before T: it held the lock of the directory, or its directory is gone and
its id was given away. (Two that run under one id at once are nothing that can be seen from here;
cookies keep the second from starting.) So a ledger, or a fragment, that names this bookie and was
written after T

* was given nothing by that process: what a writer adds to, it has written to the metadata before.
  Only a recovery adds to members that it names later, with the close: it has said IN_RECOVERY
  before it added anything, hence before T, and at T the ledger is still so, or closed and names
  this bookie. (Closed without it, or deleted, none of that counts.) Served as one that was never
  here, it would deny what was acknowledged, and nobody would ever copy it back;
* was never fenced at that process, for the same reason: recovery fences the members it reads there;
* gets regular adds only from a writer that saw the new incarnation, hence chose this bookie after
  it was registered: all that it ever acknowledges under that incarnation, it remembers. A writer
  that saw an older one is refused (WRONG_INCARNATION).

A fragment that named it and was gone by T was replaced. Whoever still goes by it is refused as a
writer in the same way, and as a recoverer cannot close the ledger: its compare-and-set fails.

What if the process dies here? The identity says "forgot" until all fences are durable, and the
next start does it all again, under the same incarnation: nobody has met it.
"""

from __future__ import annotations

from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerState
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.instance import check_session, read_instance
from fencelog.ledgers.metastore.port import MetadataStore


async def fence_before_serving(bookie: Bookie, store: MetadataStore) -> None:
    """Nothing to do for a bookie that remembers; else return when it may serve.

    Raises FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT (a listing that is not
    whole counts for nothing), BAD_REQUEST (another cluster's store), STORAGE_FAILED. The bookie
    must then be closed unserved.
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
    async for metadata in LedgerStore(store).read_all():
        is_named = any(bookie.bookie_id in fragment.bookies for fragment in metadata.fragments)
        if is_named or metadata.state is LedgerState.IN_RECOVERY:
            bookie.fence_forgotten(metadata.ledger_id)
    check_session(store, session_id, "read all ledgers")
    await bookie.forgotten_are_fenced()
