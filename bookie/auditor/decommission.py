"""Decommissions: one node each, which any auditor carries on from where the last one stopped.

A bookie leaves only when nothing is left that needs it. It serves reads until then, read-only, so
that its copies are a source. What remains is counted in *metadata*: marks come and go, and a mark
that is missing proves nothing. The cookie goes last, by compare-and-set, after a scan of all
metadata that is not older than the moment at which the bookie was seen to be stopped.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial

from fencelog.bookie.auditor.decommission_core import (
    Decommission,
    Demand,
    Phase,
    Remainder,
    decode_decommission,
    encode_decommission,
    refusal,
)
from fencelog.bookie.auditor.limits import MIN_RACKS_PER_WRITE_SET
from fencelog.bookie.auditor.registered import KnownBookies, read_bookies
from fencelog.bookie.auditor.scan import bookies_of, scan_ledgers
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.replication.store import OVERTAKEN, Cause, UnderReplicatedLedgers
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.update import retry_pauses
from fencelog.ledgers.metastore.port import MetadataStore, Version
from fencelog.ledgers.metastore.until_known import until_known
from fencelog.ledgers.rpc.bookie_port import BookieDirectory

_log = logging.getLogger(__name__)

DECOMMISSIONS_PATH = "/decommissions"

_LEDGERS_PER_LOOK = 64
"""The ledgers that are marked between two looks at whether the decommission was cancelled."""


class Decommissions:
    """The decommissions in a metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def get(self, bookie_id: str) -> tuple[Decommission, Version] | None:
        """Return the decommission of a bookie; None if there is none. Raises FencelogError:
        METADATA_UNAVAILABLE, CORRUPT, BAD_REQUEST (an id that no path can hold)."""
        path = f"{DECOMMISSIONS_PATH}/{bookie_id}"
        try:
            node = await self._store.get(path)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return None
            raise
        return decode_decommission(path, node.value), node.version

    async def names(self) -> list[str]:
        """Return the bookies that are being decommissioned. Raises METADATA_UNAVAILABLE."""
        try:
            return await self._store.children(DECOMMISSIONS_PATH)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return []
            raise

    async def list(self) -> list[Decommission]:
        """Return all decommissions, as the session sees them. Raises FencelogError:
        METADATA_UNAVAILABLE, CORRUPT."""
        found = [await self.get(name) for name in await self.names()]
        return [item[0] for item in found if item is not None]

    async def start(self, bookie_id: str, *, host: Host) -> Decommission:
        """Begin the decommission of a bookie, running or dead; one that has begun goes on.

        Raises FencelogError: BAD_REQUEST where there is no such bookie, or where the others could
        not hold all ledgers without it: nothing was changed then; METADATA_CONFLICT while an
        earlier one is being cancelled; METADATA_UNAVAILABLE, METADATA_UNKNOWN (safe to repeat),
        CORRUPT.
        """
        if (found := await self.get(bookie_id)) is not None:
            if found[0].phase is Phase.CANCELLING:
                raise FencelogError(
                    ErrorCode.METADATA_CONFLICT,
                    f"the last decommission of bookie {bookie_id} is still being cancelled",
                )
            return found[0]
        known = await read_bookies(self._store)
        if known.is_gone(bookie_id):
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"there is no bookie {bookie_id}: it has no cookie"
            )
        await self._check_possible(bookie_id, known)
        info = known.registered.get(bookie_id)
        was_read_only = info is not None and info.is_read_only
        job = Decommission(bookie_id, host.now_us(), was_read_only=was_read_only)

        async def create() -> Decommission:
            try:
                await self._store.create(
                    f"{DECOMMISSIONS_PATH}/{bookie_id}", encode_decommission(job)
                )
            except FencelogError as error:
                if error.code is not ErrorCode.METADATA_EXISTS:
                    raise
                found = await self.get(bookie_id)
                return job if found is None else found[0]
            return job

        return await until_known(create)

    async def _check_possible(self, bookie_id: str, known: KnownBookies) -> None:
        """Check that the others could hold all ledgers. Raises FencelogError(BAD_REQUEST)."""
        leaving = {bookie_id, *await self.names()}
        racks = {b: info.rack for b, info in known.writable.items() if b not in leaving}
        demand = Demand()
        async for metadata in scan_ledgers(self._store):
            demand.add(metadata, bookie_id, racks.keys())
        own_rack = known.racks.get(bookie_id, "")
        why = refusal(
            bookie_id, demand, racks, own_rack=own_rack, min_racks=MIN_RACKS_PER_WRITE_SET
        )
        if why is not None:
            raise FencelogError(ErrorCode.BAD_REQUEST, why)

    async def cancel(self, bookie_id: str, bookies: BookieDirectory) -> None:
        """End a decommission without removing the bookie. What was copied stays where it is; the
        bookie takes adds again, unless it was read-only before or does not answer now.

        Raises FencelogError: NOT_FOUND; METADATA_CONFLICT where its cookie may be about to go;
        METADATA_UNAVAILABLE: nothing was changed; METADATA_UNKNOWN (safe to repeat), also where the
        rest is left to an auditor.
        """
        job, version = await until_known(partial(self._begin_to_cancel, bookie_id))
        # From here on an auditor completes it, whatever becomes of this call.
        try:
            await self.undo(job, bookies)
            await self.remove(bookie_id, version)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_CONFLICT:
                return  # an auditor has, and another decommission has begun
            raise FencelogError(
                ErrorCode.METADATA_UNKNOWN,
                f"an auditor completes the cancellation for bookie {bookie_id}: {error.detail}",
                last_code=error.code.slug,
            ) from error

    async def _begin_to_cancel(self, bookie_id: str) -> tuple[Decommission, Version]:
        """Have the node say that the decommission is being cancelled; return it as it was before,
        and the node's version. Raises FencelogError as ``cancel``."""
        pauses = retry_pauses()
        while True:
            found = await self.get(bookie_id)
            if found is None:
                raise FencelogError(ErrorCode.NOT_FOUND, f"bookie {bookie_id} is not being removed")
            job, version = found
            if job.phase is Phase.CANCELLING:
                return found  # by a call that ended early, or an attempt of this one
            if job.phase is Phase.REMOVING:
                raise FencelogError(
                    ErrorCode.METADATA_CONFLICT,
                    f"bookie {bookie_id} is stopped, and its cookie may be gone at any moment; if "
                    "it is started in time, its decommission can be cancelled",
                )
            try:
                return job, await self.write(replace(job, phase=Phase.CANCELLING), version)
            except FencelogError as error:
                if error.code not in OVERTAKEN:
                    raise
            await asyncio.sleep(next(pauses))  # an auditor has carried it on

    async def undo(self, job: Decommission, bookies: BookieDirectory) -> None:
        """Take back what the steps of a decommission have done. It may be repeated. Raises
        FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN."""
        bookie_id, marks = job.bookie_id, UnderReplicatedLedgers(self._store)
        async for mark in marks.list(lambda error: _log.error("decommission: %s", error.detail)):
            if bookie_id in mark.missing:
                await marks.withdraw(mark.ledger_id, bookie_id, Cause.DECOMMISSION)
        if not job.was_read_only:
            try:
                await bookies.client(bookie_id).admin({"do": "read_only", "on": False})
            except FencelogError as error:
                _log.warning("bookie %s stays read-only: %s", bookie_id, error.detail)

    async def write(self, job: Decommission, version: Version) -> Version:
        """Replace a decommission by compare-and-set. Raises FencelogError: METADATA_CONFLICT,
        METADATA_NOT_FOUND, METADATA_UNAVAILABLE, METADATA_UNKNOWN."""
        path = f"{DECOMMISSIONS_PATH}/{job.bookie_id}"
        return await self._store.set(path, encode_decommission(job), version)

    async def remove(self, bookie_id: str, version: Version) -> None:
        """Remove a node of that version; one that is gone is no error. Raises FencelogError:
        METADATA_CONFLICT, METADATA_UNAVAILABLE, METADATA_UNKNOWN."""

        async def delete() -> None:
            try:
                await self._store.delete(f"{DECOMMISSIONS_PATH}/{bookie_id}", version)
            except FencelogError as error:
                if error.code is not ErrorCode.METADATA_NOT_FOUND:
                    raise

        await until_known(delete)


async def check_not_removed(store: MetadataStore, bookie_id: str, incarnation: str) -> None:
    """Check that a bookie which has just registered is still part of the cluster: the last step of
    its decommission may have run since it read its cookie. That step looks for a registration
    after it has announced itself, so one of the two sees the other. Raises FencelogError:
    BAD_REQUEST, METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT."""
    cookie = (await CookieRegistry(store).read(bookie_id)).registered.cookie
    found = await Decommissions(store).get(bookie_id)
    if cookie is None or cookie.incarnation != incarnation:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"bookie {bookie_id} was taken out of the cluster while it started: empty its "
            "directories to start it as a new one",
        )
    if found is not None and found[0].phase is Phase.REMOVING:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"bookie {bookie_id} is being taken out of the cluster: start it again if it shall "
            "stay, then cancel its decommission",
        )


class Decommissioner:
    """The part of an auditor that carries decommissions on. Each step may be repeated, and be
    interrupted anywhere, by any auditor."""

    def __init__(self, store: MetadataStore, bookies: BookieDirectory, *, host: Host) -> None:
        self._store = store
        self._bookies = bookies
        self._host = host
        self._jobs = Decommissions(store)
        self._marks = UnderReplicatedLedgers(store)
        self._cookies = CookieRegistry(store)

    async def step(self, bookie_id: str) -> Decommission | None:
        """Carry one decommission on; return it as it is now, None if it is over. Raises
        FencelogError: METADATA_CONFLICT (it was cancelled, or another auditor is at work),
        METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT; the next step goes on all the same."""
        found = await self._jobs.get(bookie_id)
        if found is None:
            return None
        job, version = found
        if job.phase is Phase.CANCELLING:
            await self._jobs.undo(job, self._bookies)
            await self._jobs.remove(bookie_id, version)
            return None
        known = await read_bookies(self._store)
        if job.phase is not Phase.REMOVING:
            return await self._drain_or_undo(job, version, known)
        if bookie_id in known.registered:
            return await self._write(replace(job, phase=Phase.DRAINING), version)
        remainder = await self._remainder(job, version, marks=False)
        if not remainder.is_empty:
            draining = replace(job, phase=Phase.DRAINING, remainder=remainder)
            return await self._write(draining, version)
        return await self._remove_cookie(job, version)

    async def _drain_or_undo(
        self, job: Decommission, version: Version, known: KnownBookies
    ) -> Decommission:
        """Mark what is left; where the job is cancelled meanwhile, take back what comes after what
        the cancelling process has taken back."""
        try:
            return await self._drain(job, version, known)
        except FencelogError as error:
            if error.code in OVERTAKEN:
                found = await self._jobs.get(job.bookie_id)
                if found is None or found[0].phase is Phase.CANCELLING:
                    await self._jobs.undo(job, self._bookies)
            raise

    async def _check_goes_on(self, job: Decommission, version: Version) -> None:
        """Check that nobody has cancelled the job, or carried it on. Raises METADATA_CONFLICT."""
        found = await self._jobs.get(job.bookie_id)
        if found is None or found[1] != version:
            raise FencelogError(
                ErrorCode.METADATA_CONFLICT,
                f"the decommission of bookie {job.bookie_id} was cancelled, or carried on by "
                "another auditor",
            )

    async def _drain(
        self, job: Decommission, version: Version, known: KnownBookies
    ) -> Decommission:
        """Mark what is left, and count it; go on when nothing is."""
        is_running = job.bookie_id in known.registered
        info = known.registered.get(job.bookie_id)
        takes_adds = is_running and (info is None or not info.is_read_only)
        if takes_adds:
            await self._check_goes_on(job, version)
            await self._make_read_only(job.bookie_id)
        # While it takes adds, new ledgers would take the place of those that leave.
        remainder = await self._remainder(job, version, marks=not takes_adds)
        phase = Phase.DRAINING
        incarnation = ""
        if remainder.is_empty and is_running:
            phase = Phase.DRAINED
        elif remainder.is_empty:
            phase = Phase.REMOVING
            cookie = (await self._cookies.read(job.bookie_id)).registered.cookie
            incarnation = "" if cookie is None else cookie.incarnation
        changed = replace(job, phase=phase, remainder=remainder, incarnation=incarnation)
        return await self._write(changed, version)

    async def _make_read_only(self, bookie_id: str) -> None:
        """Ask a running bookie to take no more adds; after each of its restarts again."""
        try:
            await self._bookies.client(bookie_id).admin({"do": "read_only", "on": True})
        except FencelogError as error:
            _log.warning("bookie %s is not read-only yet: %s", bookie_id, error.detail)

    async def _remainder(self, job: Decommission, version: Version, *, marks: bool) -> Remainder:
        """Count what is left in metadata, none of it older than this call; mark it on the way.
        Raises METADATA_CONFLICT where the job does not go on meanwhile."""
        unreadable: list[int] = []
        corrupt: FencelogError | None = None
        remainder = Remainder(self._host.now_us())
        async for metadata in scan_ledgers(self._store, unreadable=unreadable):
            if job.bookie_id not in bookies_of(metadata):
                continue
            remainder = remainder.with_ledger(metadata, job.bookie_id)
            if marks:
                if remainder.ledgers % _LEDGERS_PER_LOOK == 0:
                    await self._check_goes_on(job, version)
                try:
                    await self._mark(metadata.ledger_id, job.bookie_id)
                except FencelogError as error:  # of one ledger; it is counted, and holds up the end
                    if error.code is not ErrorCode.CORRUPT:
                        raise
                    corrupt = error
        if corrupt is not None:
            _log.error("decommission of bookie %s: %s", job.bookie_id, corrupt.detail)
        return replace(remainder, unreadable=len(unreadable))

    async def _mark(self, ledger_id: int, bookie_id: str) -> None:
        """Mark a ledger unless it is: a mark that is renewed cannot be removed by its worker."""
        mark = await self._marks.get(ledger_id)
        if mark is not None and Cause.DECOMMISSION in mark.missing.get(bookie_id, ()):
            return
        await self._marks.mark(
            ledger_id,
            missing=[bookie_id],
            why=Cause.DECOMMISSION,
            now_us=self._host.now_us(),
        )

    async def _remove_cookie(self, job: Decommission, version: Version) -> Decommission | None:
        """Delete the cookie that was registered when REMOVING began, then the node."""
        held = await self._cookies.read(job.bookie_id)
        if held.registered.is_serving:
            return await self._write(replace(job, phase=Phase.DRAINING), version)
        cookie = held.registered.cookie
        if cookie is not None and held.version is not None:
            if cookie.incarnation == job.incarnation:
                await self._cookies.delete(job.bookie_id, held.version)
                _log.info("bookie %s was decommissioned", job.bookie_id)
            else:
                _log.warning("bookie %s began anew meanwhile, and stays", job.bookie_id)
        await self._jobs.remove(job.bookie_id, version)
        return None

    async def _write(self, job: Decommission, version: Version) -> Decommission:
        await self._jobs.write(job, version)
        return job
