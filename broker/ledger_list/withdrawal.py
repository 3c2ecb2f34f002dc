"""The property of a ledger that joins no log any more. Decisions on values.

A ledger that was written elsewhere may join a log by a commit, until it is withdrawn
(``commits.pending_core``). It is withdrawn before it is deleted, by whoever deletes it: its
committer may repeat the batch, and the log may have forgotten that batch.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

Properties = Mapping[str, str]

WITHDRAWN = {"withdrawn": "yes"}
"""The property of a withdrawn ledger, beside those that it had."""


def is_withdrawn(properties: Properties) -> bool:
    """Tell whether the ledger joins no log any more."""
    return "withdrawn" in properties


def withdrawn_properties(metadata: LedgerMetadata) -> Properties | None:
    """Return the properties that withdraw a ledger; None: it is withdrawn already."""
    properties = metadata.properties
    return None if is_withdrawn(properties) else {**properties, **WITHDRAWN}
