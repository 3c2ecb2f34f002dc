"""Administration of self-healing: one place for HTTP and for the command line.

Answers are JSON-compatible values, the same over HTTP and with ``--json``. Everything goes through
the metadata store, so any process that reaches it answers for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from fencelog.bookie.auditor.audit_store import AuditStore
from fencelog.bookie.auditor.decommission import Decommissions
from fencelog.bookie.auditor.election import who_is_auditor
from fencelog.bookie.auditor.lost_bookies import check_bookies
from fencelog.bookie.auditor.registered import read_bookies
from fencelog.bookie.auditor.scan import bookies_of
from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.replication.settings import (
    AutorecoverySettings,
    change_settings,
    read_settings,
)
from fencelog.bookie.replication.statuses import read_statuses
from fencelog.bookie.replication.store import (
    Cause,
    UnderReplicatedLedger,
    UnderReplicatedLedgers,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

MAX_LISTED_MARKS = 10_000
"""The marks in one answer, some hundred bytes each; a client asks for the next page."""

Json = dict[str, Any]


class AutorecoveryAdmin:
    """The requests. All raise FencelogError: METADATA_UNAVAILABLE, CORRUPT; those that change
    something METADATA_UNKNOWN as well, and may be repeated."""

    def __init__(self, store: MetadataStore, bookies: BookieDirectory, *, host: Host) -> None:
        self._store = store
        self._bookies = bookies
        self._host = host
        self._marks = UnderReplicatedLedgers(store)
        self._ledgers = LedgerStore(store)
        self._audits = AuditStore(store)
        self._jobs = Decommissions(store)

    def now_us(self) -> int:
        return self._host.now_us()

    async def ledger(self, ledger_id: int) -> LedgerMetadata:
        """Return the metadata of a ledger. Raises LEDGER_NOT_FOUND."""
        metadata, _ = await self._ledgers.get(ledger_id)
        return metadata

    # -- the whole -------------------------------------------------------------------------------

    async def status(self) -> Json:
        """Return the settings of the cluster, and the state of every process."""
        shown = _shown_settings(await read_settings(self._store))
        return {**shown, **await self.auditor(), "processes": await read_statuses(self._store)}

    async def change(self, changes: Mapping[str, Any]) -> Json:
        """Change settings of the cluster: ``is_enabled``, ``lost_bookie_grace_ms``,
        ``copy_bytes_per_s`` (None: that of each process again), ``balance_bytes_per_s`` (None:
        nothing is moved). Raises BAD_REQUEST, too."""
        fields = dict(changes)
        if "is_enabled" in fields:
            fields["is_disabled"] = not fields.pop("is_enabled")
        return _shown_settings(await change_settings(self._store, **fields))

    async def auditor(self) -> Json:
        """Return who is the auditor; null: nobody, now."""
        leader = await who_is_auditor(self._store)
        return {"auditor": None if leader is None else asdict(leader)}

    # -- checks ----------------------------------------------------------------------------------

    async def checks(self) -> Json:
        """Return the last result of each check, and the checks that were asked for and have not
        been made."""
        request = await self._audits.requested()
        results = await self._audits.results()
        return {
            "results": {name.value: results[name] for name in CheckName if name in results},
            "requested": [] if request is None else [name.value for name in request.checks],
        }

    async def audit(self, checks: Collection[str]) -> Json:
        """Ask the auditor for checks now. Raises BAD_REQUEST for an unknown one, too."""
        await self._audits.request([_check_of(name) for name in checks])
        return await self.checks()

    # -- ledgers ---------------------------------------------------------------------------------

    async def underreplicated(
        self, *, start_after: int = -1, limit: int = MAX_LISTED_MARKS
    ) -> Json:
        """Return marked ledgers by id, from the one after ``start_after`` on."""
        ids = [i async for i in self._marks.list_ids()]
        page = sorted(i for i in ids if i > start_after)
        marks = [await self._marks.get(ledger_id) for ledger_id in page[:limit]]
        statuses = await read_statuses(self._store)
        found = [_shown_mark(mark, statuses) for mark in marks if mark is not None]
        return {
            "ledgers": found,
            "total": len(ids),
            "next_start_after": page[limit - 1] if len(page) > limit else None,
        }

    async def replace_bookie(self, ledger_id: int, bookie_id: str) -> Json:
        """Have the copies of a bookie of one ledger made elsewhere, running or not. The bookie
        leaves the metadata when they are durable. Raises LEDGER_NOT_FOUND, BAD_REQUEST, too."""
        metadata, _ = await self._ledgers.get_latest(ledger_id)
        if bookie_id not in bookies_of(metadata):
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"bookie {bookie_id} has no part of ledger {ledger_id}"
            )
        now_us = self._host.now_us()
        why = Cause.DECOMMISSION
        await self._marks.mark(ledger_id, missing=[bookie_id], why=why, now_us=now_us)
        return {"ledger_id": ledger_id, "bookie_id": bookie_id}

    async def mark(self, ledger_id: int) -> Json:
        """Return the mark of a ledger. Raises NOT_FOUND, too: it has none. ``bookies`` of that
        error: those that the metadata names, None if the ledger was deleted."""
        mark = await self._marks.get(ledger_id)
        if mark is None:  # which says nothing about copies: only metadata does
            raise FencelogError(
                ErrorCode.NOT_FOUND,
                f"ledger {ledger_id} is not marked",
                bookies=await self._bookies_of(ledger_id),
            )
        return _shown_mark(mark, await read_statuses(self._store))

    async def _bookies_of(self, ledger_id: int) -> list[str] | None:
        try:
            return sorted(bookies_of(await self.ledger(ledger_id)))
        except FencelogError as error:
            if error.code is not ErrorCode.LEDGER_NOT_FOUND:
                raise
            return None

    # -- bookies ---------------------------------------------------------------------------------

    async def recover(self, bookie_id: str) -> Json:
        """Mark the ledgers of a dead bookie now, before its grace time has ended. Raises
        BAD_REQUEST for a bookie that runs or is unknown, too."""
        if bookie_id in (await read_bookies(self._store)).registered:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"bookie {bookie_id} is registered: stop it for good first, or decommission it",
            )
        found = await check_bookies(self._store, host=self._host, lost=lambda: {bookie_id})
        known = await read_bookies(self._store)
        if bookie_id in known.registered:
            raise FencelogError(ErrorCode.BAD_REQUEST, f"bookie {bookie_id} has just come back")
        unreadable = len(found.unreadable)
        if known.is_gone(bookie_id) and not found.named[bookie_id]:
            which = f"; {unreadable} could not be read" if unreadable else ""
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"there is no bookie {bookie_id}: it has no cookie, and no ledger names it{which}",
                unreadable=unreadable,
            )
        return {
            "bookie_id": bookie_id,
            "ledgers": found.named[bookie_id],
            "unreadable": unreadable,
        }

    async def decommissions(self) -> Json:
        """Return all decommissions that are not over."""
        return {"decommissions": [job.to_json() for job in await self._jobs.list()]}

    async def decommission(self, bookie_id: str) -> Json:
        """Return the decommission of a bookie. Raises NOT_FOUND, too; ``has_cookie`` of it:
        whether the bookie is one of the cluster."""
        found = await self._jobs.get(bookie_id)
        if found is None:  # the cookie goes before the node, so it is looked for after that
            cookies = await CookieRegistry(self._store).names()
            raise FencelogError(
                ErrorCode.NOT_FOUND,
                f"bookie {bookie_id} is not being removed",
                has_cookie=bookie_id in cookies,
            )
        return found[0].to_json()

    async def start_decommission(self, bookie_id: str) -> Json:
        """Begin to take a bookie out of the cluster; one that has begun goes on. Raises
        BAD_REQUEST where the others could not hold all ledgers, too."""
        return (await self._jobs.start(bookie_id, host=self._host)).to_json()

    async def cancel_decommission(self, bookie_id: str) -> None:
        """End a decommission: the bookie stays. Raises NOT_FOUND, METADATA_CONFLICT, too."""
        await self._jobs.cancel(bookie_id, self._bookies)


def _shown_settings(settings: AutorecoverySettings) -> Json:
    return {
        "is_enabled": not settings.is_disabled,
        "lost_bookie_grace_ms": settings.lost_bookie_grace_ms,
        "copy_bytes_per_s": settings.copy_bytes_per_s,
        "balance_bytes_per_s": settings.balance_bytes_per_s,
    }


def _shown_mark(mark: UnderReplicatedLedger, statuses: Collection[Json]) -> Json:
    """Return a mark, and the reasons that workers give for the repair to wait: each publishes the
    first of those that it knows."""
    missing = {b: sorted(cause.value for cause in why) for b, why in sorted(mark.missing.items())}
    waiting = [
        {"process_id": status["process_id"], **waiting}
        for status in statuses
        for waiting in status["worker"]["waiting"]
        if waiting["ledger_id"] == mark.ledger_id
    ]
    return {
        "ledger_id": mark.ledger_id,
        "since_us": mark.since_us,
        "missing": missing,
        "moves": [asdict(move) for move in mark.moves],
        "waiting": waiting,
    }


def _check_of(name: str) -> CheckName:
    try:
        return CheckName(name)
    except ValueError:
        known = ", ".join(each.value for each in CheckName)
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"there is no check {name!r}; known: {known}"
        ) from None
