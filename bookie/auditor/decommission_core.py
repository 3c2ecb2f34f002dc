"""The decommission of a bookie: its states, and what forbids it. Pure.

DRAINING   its ledgers are marked, workers copy them to other bookies
DRAINED    no metadata names it any more, but it still runs: stop it
REMOVING   it is stopped: if all metadata, read once more, names it nowhere, its cookie goes
CANCELLING it stays: its marks go, and it takes adds again
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata

MAX_NAMED_LEDGERS = 20
"""The ledgers of a remainder that are named; all are counted."""

_FORMAT_VERSION = 1


class Phase(Enum):
    """The phase of a decommission."""

    DRAINING = "draining"
    DRAINED = "drained"
    REMOVING = "removing"
    CANCELLING = "cancelling"


@dataclass(frozen=True, slots=True)
class Remainder:
    """The fragments in metadata that name the bookie. ``at_us``: when they were counted;
    ``not_closed``: the ledgers among them that are not closed, which a writer or a recovery has to
    leave; ``first``: the first ledgers; ``unreadable``: nodes that may name any bookie."""

    at_us: int
    fragments: int = 0
    ledgers: int = 0
    not_closed: int = 0
    unreadable: int = 0
    first: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.fragments == 0 and self.unreadable == 0

    def with_ledger(self, metadata: LedgerMetadata, bookie_id: str) -> Remainder:
        """Return the remainder with one more ledger, if that names the bookie."""
        count = sum(bookie_id in fragment.bookies for fragment in metadata.fragments)
        if not count:
            return self
        named = (*self.first, metadata.ledger_id)[:MAX_NAMED_LEDGERS]
        return replace(
            self,
            fragments=self.fragments + count,
            ledgers=self.ledgers + 1,
            not_closed=self.not_closed + (not metadata.is_closed),
            first=named,
        )


@dataclass(frozen=True, slots=True)
class Decommission:
    """A decommission as its node states it. ``was_read_only``: the bookie was so before;
    ``incarnation``: that of the cookie to be deleted, from REMOVING on; ``remainder``: None until
    it was counted."""

    bookie_id: str
    since_us: int
    phase: Phase = Phase.DRAINING
    was_read_only: bool = False
    incarnation: str = ""
    remainder: Remainder | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the decommission as JSON-compatible values."""
        remainder = None if self.remainder is None else asdict(self.remainder)
        return {**asdict(self), "phase": self.phase.value, "remainder": remainder}


def encode_decommission(job: Decommission) -> bytes:
    return json.dumps({"v": _FORMAT_VERSION, **job.to_json()}).encode()


def decode_decommission(path: str, value: bytes) -> Decommission:
    """Decode the value of a node. Raises FencelogError(CORRUPT)."""
    try:
        fields = json.loads(value)
        if fields.pop("v") != _FORMAT_VERSION:
            raise ValueError("another version")
        remainder = fields.pop("remainder")
        if remainder is not None:
            remainder = Remainder(**{**remainder, "first": tuple(remainder["first"])})
        return Decommission(**{**fields, "phase": Phase(fields["phase"])}, remainder=remainder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"{path} is not valid: {error}") from error


@dataclass(slots=True)
class Demand:
    """The demand of all ledgers on the cluster."""

    ensemble_size: int = 0
    write_quorum: int = 0
    irreplaceable: list[int] = field(default_factory=list)
    """The first ledgers with a fragment whose copies no remaining bookie could take."""

    def add(self, metadata: LedgerMetadata, bookie_id: str, remaining: Collection[str]) -> None:
        """Account for a ledger. ``remaining``: the bookies that would take adds without this
        one."""
        self.ensemble_size = max(self.ensemble_size, metadata.ensemble_size)
        self.write_quorum = max(self.write_quorum, metadata.write_quorum)
        for fragment in metadata.fragments:
            if bookie_id in fragment.bookies and not set(remaining) - set(fragment.bookies):
                if len(self.irreplaceable) < MAX_NAMED_LEDGERS:
                    self.irreplaceable.append(metadata.ledger_id)
                return


def refusal(
    bookie_id: str, demand: Demand, racks: Mapping[str, str], *, own_rack: str, min_racks: int
) -> str | None:
    """Return why the bookie cannot leave; None if it can. ``racks``: those of the bookies that
    would take adds without it, ``own_rack``: its own, "" if that is not known."""
    if len(racks) < demand.ensemble_size:
        return (
            f"there are ledgers on {demand.ensemble_size} bookies, and without {bookie_id} only "
            f"{len(racks)} take adds: start others first"
        )
    if demand.irreplaceable:
        return (
            f"no bookie could take the copies that {bookie_id} has of ledgers "
            f"{', '.join(map(str, demand.irreplaceable))}: each that takes adds has them already"
        )
    wanted = min(demand.write_quorum, min_racks)
    left, before = set(racks.values()), set(racks.values()) | ({own_rack} - {""})
    if len(left) < wanted <= len(before):
        return (
            f"without {bookie_id} all bookies that take adds are in "
            f"{len(left)} of the {wanted} racks that a write set has to span: start another one in "
            f"rack {own_rack} first"
        )
    return None
