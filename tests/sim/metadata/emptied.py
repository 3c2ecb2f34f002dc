"""The view of a metadata store that was emptied, and perhaps created anew.

Only bookies see it, and nobody writes to it: whatever clients do meanwhile takes effect on the true
tree, so that the history stays one that can be checked. That bookies are registered is seen, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fencelog.bookie.identity.cookie_registry import COOKIES_PATH
from fencelog.ledgers.ledger_metadata.store import LEDGERS_PATH
from fencelog.ledgers.metastore.instance import INSTANCE_PATH
from fencelog.ledgers.metastore.paths import not_found
from fencelog.ledgers.metastore.port import NO_VERSION, Versioned


@dataclass(frozen=True, slots=True, eq=False)
class Emptied:
    """``instance``: the id that ``fencelog metadata init`` gave it; empty: nobody did that."""

    instance: str

    def value(self, path: str, found: Versioned) -> Versioned:
        """Return what stands there in place of what was found. Raises METADATA_NOT_FOUND."""
        if path == INSTANCE_PATH and self.instance:
            return Versioned(json.dumps({"instance": self.instance}).encode(), NO_VERSION)
        if _is_gone(path):
            raise not_found(path)
        return found

    def children(self, path: str, names: list[str]) -> list[str]:
        if _is_gone(path):
            raise not_found(path)
        return names


def _is_gone(path: str) -> bool:
    return any(
        f"{path}/".startswith(f"{top}/") for top in (INSTANCE_PATH, LEDGERS_PATH, COOKIES_PATH)
    )
