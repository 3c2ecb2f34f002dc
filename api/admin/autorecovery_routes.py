"""Self-healing over HTTP: its settings, what lacks copies, checks, and bookies that leave."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from fencelog.api.admin.autorecovery import MAX_LISTED_MARKS, AutorecoveryAdmin
from fencelog.api.http.queries import refuse_query

DEFAULT_LISTED_MARKS = 1000
MAX_LEDGER_ID = 2**63 - 1

LedgerId = Annotated[int, Field(ge=0, le=MAX_LEDGER_ID)]
BookieId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][\w.:-]*$")]

Check = Literal["bookies", "ledgers", "cluster", "placement"]
"""A check by the name that ``CheckName`` gives it."""


class ClusterSettings(BaseModel):
    """The settings of the cluster; null: each process uses its own. ``balance_bytes_per_s`` null:
    no copies are moved for a better balance."""

    is_enabled: bool
    lost_bookie_grace_ms: int | None
    copy_bytes_per_s: int | None
    balance_bytes_per_s: int | None


class AutorecoveryChanges(BaseModel):
    """Changes of settings. Null: each process uses its own again; ``balance_bytes_per_s``: no
    copies are moved."""

    model_config = ConfigDict(extra="forbid", strict=True)

    is_enabled: bool = True
    lost_bookie_grace_ms: Annotated[int, Field(ge=0, le=7 * 86_400_000)] | None = None
    copy_bytes_per_s: Annotated[int, Field(ge=1, le=MAX_LEDGER_ID)] | None = None
    balance_bytes_per_s: Annotated[int, Field(ge=1, le=MAX_LEDGER_ID)] | None = None


class AuditorProcess(BaseModel):
    """The process that is the auditor, and since when."""

    process_id: str
    since_us: int


class AuditorAnswer(BaseModel):
    auditor: AuditorProcess | None


class AutorecoveryStatus(ClusterSettings, AuditorAnswer):
    """The settings, the auditor, and the state of each process, as it published it last."""

    processes: list[dict[str, Any]]


class CheckResults(BaseModel):
    """The last result of each check, and the checks that are still to be made."""

    results: dict[str, dict[str, Any]]
    requested: list[str]


class CheckRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    checks: Annotated[list[Check], Field(min_length=1, max_length=4)]


class WaitingRepair(BaseModel):
    """The reason why a process cannot repair a ledger now. ``entries``: the first ranges of entries
    without a copy, where that is the reason; ``entry_count``: how many there are; ``are_more``:
    there may be others."""

    process_id: str
    why: str
    detail: str
    entries: list[tuple[int, int]]
    entry_count: int
    are_more: bool
    bookies_in_limbo: list[str]
    attempts: int


class PlannedMove(BaseModel):
    """The copies of a bookie in the fragment at an entry are to be moved to ``target``."""

    first_entry_id: int
    bookie_id: str
    target: str


class MarkedLedger(BaseModel):
    """A ledger that lacks copies: the bookies whose copies are missing, and the causes;
    ``moves``: for a better balance; ``waiting``: why it cannot be repaired now, as far as processes
    have published that."""

    ledger_id: int
    since_us: int
    missing: dict[str, list[str]]
    moves: list[PlannedMove]
    waiting: list[WaitingRepair]


class MarkedLedgers(BaseModel):
    """One page of marked ledgers, by id, and the number of all."""

    ledgers: list[MarkedLedger]
    total: int
    next_start_after: int | None


class ReplaceBookie(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    bookie_id: BookieId


class ReplacedBookie(BaseModel):
    """A ledger that is marked, so that the copies of a bookie are made elsewhere."""

    ledger_id: int
    bookie_id: str


class RecoveredBookie(BaseModel):
    """The number of ledgers that named a dead bookie, and are marked now; ``unreadable``: nodes of
    metadata that may name any bookie."""

    bookie_id: str
    ledgers: int
    unreadable: int


class DecommissionState(BaseModel):
    """A bookie that is leaving. ``phase``: ``draining``; ``drained``: stop it; ``removing``;
    ``cancelling``: it stays."""

    bookie_id: str
    since_us: int
    phase: str
    was_read_only: bool
    incarnation: str
    remainder: dict[str, Any] | None


class DecommissionList(BaseModel):
    decommissions: list[DecommissionState]


def add_autorecovery_routes(router: APIRouter, admin: AutorecoveryAdmin) -> None:
    """Add the routes to ``router``, which has the prefix ``/v1``; handlers raise FencelogError."""
    _add_settings(router, admin)
    _add_checks(router, admin)
    _add_ledgers(router, admin)
    _add_bookies(router, admin)


def _add_settings(router: APIRouter, admin: AutorecoveryAdmin) -> None:
    @router.get("/admin/autorecovery", tags=["self-healing"])
    async def get_autorecovery(request: Request) -> AutorecoveryStatus:
        """Return settings and state of self-healing. Each process publishes its state every few
        seconds."""
        refuse_query(request)
        return AutorecoveryStatus.model_validate(await admin.status())

    @router.patch("/admin/autorecovery", tags=["self-healing"])
    async def change_autorecovery(
        request: Request, changes: AutorecoveryChanges
    ) -> ClusterSettings:
        """Turn self-healing on or off, or change its settings. All processes follow at once."""
        refuse_query(request)
        wanted = changes.model_dump(exclude_unset=True)
        return ClusterSettings.model_validate(await admin.change(wanted))


def _add_checks(router: APIRouter, admin: AutorecoveryAdmin) -> None:
    @router.get("/admin/auditor", tags=["self-healing"])
    async def get_auditor(request: Request) -> AuditorAnswer:
        """Return the process that is the auditor. Null: there is none at the moment."""
        refuse_query(request)
        return AuditorAnswer.model_validate(await admin.auditor())

    @router.get("/admin/checks", tags=["self-healing"])
    async def get_checks(request: Request) -> CheckResults:
        """Return the last result of each check. With its violations, the first of them."""
        refuse_query(request)
        return CheckResults.model_validate(await admin.checks())

    @router.post("/admin/checks", tags=["self-healing"], status_code=202)
    async def request_checks(request: Request, wanted: CheckRequest) -> CheckResults:
        """Ask the auditor for checks now. They are made when they are `requested` no more."""
        refuse_query(request)
        return CheckResults.model_validate(await admin.audit(wanted.checks))


def _add_ledgers(router: APIRouter, admin: AutorecoveryAdmin) -> None:
    @router.get("/admin/underreplicated", tags=["self-healing"])
    async def list_underreplicated(
        request: Request,
        start_after: Annotated[int | None, Query(ge=0, le=MAX_LEDGER_ID)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_LISTED_MARKS)] = DEFAULT_LISTED_MARKS,
    ) -> MarkedLedgers:
        """List the ledgers that are marked as lacking copies, by id."""
        refuse_query(request, "start_after", "limit")
        after = -1 if start_after is None else start_after
        return MarkedLedgers.model_validate(
            await admin.underreplicated(start_after=after, limit=limit)
        )

    @router.get("/admin/underreplicated/{ledger_id}", tags=["self-healing"])
    async def get_underreplicated(ledger_id: LedgerId, request: Request) -> MarkedLedger:
        """Return the mark of a ledger. 404 if it has none: it is whole, or nobody has looked."""
        refuse_query(request)
        return MarkedLedger.model_validate(await admin.mark(ledger_id))

    @router.post(
        "/admin/underreplicated/{ledger_id}:replace-bookie",
        tags=["self-healing"],
        status_code=202,
    )
    async def replace_bookie(
        ledger_id: LedgerId, request: Request, replaced: ReplaceBookie
    ) -> ReplacedBookie:
        """Have the copies of a bookie of one ledger made on another one. It is done when the ledger
        has no mark any more."""
        refuse_query(request)
        return ReplacedBookie.model_validate(
            await admin.replace_bookie(ledger_id, replaced.bookie_id)
        )


def _add_bookies(router: APIRouter, admin: AutorecoveryAdmin) -> None:
    @router.post("/admin/bookies/{bookie_id}:recover", tags=["self-healing"], status_code=202)
    async def recover_bookie(bookie_id: BookieId, request: Request) -> RecoveredBookie:
        """Have the copies of a dead bookie made elsewhere now. Refused while it is registered."""
        refuse_query(request)
        return RecoveredBookie.model_validate(await admin.recover(bookie_id))

    @router.get("/admin/decommissions", tags=["self-healing"])
    async def list_decommissions(request: Request) -> DecommissionList:
        """List the bookies that are being taken out of the cluster."""
        refuse_query(request)
        return DecommissionList.model_validate(await admin.decommissions())

    @router.get("/admin/decommissions/{bookie_id}", tags=["self-healing"])
    async def get_decommission(bookie_id: BookieId, request: Request) -> DecommissionState:
        """Return how far a decommission is. 404: it is over, or never was."""
        refuse_query(request)
        return DecommissionState.model_validate(await admin.decommission(bookie_id))

    @router.post("/admin/decommissions/{bookie_id}", tags=["self-healing"], status_code=202)
    async def start_decommission(bookie_id: BookieId, request: Request) -> DecommissionState:
        """Begin to take a bookie out of the cluster, running or dead. Refused where the others
        could not hold everything. May be repeated."""
        refuse_query(request)
        return DecommissionState.model_validate(await admin.start_decommission(bookie_id))

    @router.delete("/admin/decommissions/{bookie_id}", tags=["self-healing"], status_code=204)
    async def cancel_decommission(bookie_id: BookieId, request: Request) -> None:
        """End a decommission: the bookie stays, and takes entries again."""
        refuse_query(request)
        await admin.cancel_decommission(bookie_id)
