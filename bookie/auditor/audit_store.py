"""The results of an auditor's checks, and requests for a check, in the metadata store: they outlive
the auditor, and any process may read them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fencelog.bookie.auditor.election import AUDITOR_PATH
from fencelog.bookie.auditor.schedule_core import CheckName
from fencelog.bookie.replication.store import OVERTAKEN
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned
from fencelog.ledgers.metastore.until_known import until_known
from fencelog.ledgers.metastore.watch import value_or_none

CHECKS_PATH = f"{AUDITOR_PATH}/checks"
REQUEST_PATH = f"{AUDITOR_PATH}/request"


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The checks that someone has asked for, and the version of the request."""

    checks: tuple[CheckName, ...]
    version: Version


class AuditStore:
    """The results and requests in one metadata store. Raises FencelogError: METADATA_UNAVAILABLE,
    METADATA_UNKNOWN (safe to repeat)."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def results(self) -> dict[CheckName, dict[str, Any]]:
        """Return the last result of each check that was ever made: ``finished_us``, and what the
        check found. A result that cannot be read is left out: the check is made again."""
        found = {}
        for name in CheckName:
            node = await value_or_none(self._store.get(f"{CHECKS_PATH}/{name.value}"))
            if node is not None and (result := _object(node)) is not None:
                found[name] = result
        return found

    async def put(self, name: CheckName, result: dict[str, Any]) -> None:
        """Replace the result of a check; the last of several auditors wins. One that has failed, or
        was skipped, remembers when the check was last made to its end (``completed_us``)."""
        if not _is_complete(result):
            before_us = completed_us((await self.results()).get(name, {}))
            if before_us is not None:
                result = {**result, "completed_us": before_us}
        await self._replace(f"{CHECKS_PATH}/{name.value}", json.dumps(result).encode())

    async def request(self, checks: Collection[CheckName]) -> None:
        """Ask for checks now. The auditor removes the request once it has made them; a request that
        waits is replaced by one for the checks of both."""

        async def ask() -> None:
            while True:
                before = await self.requested()
                wanted = {*checks, *(before.checks if before else ())}
                value = json.dumps({"checks": sorted(name.value for name in wanted)}).encode()
                try:
                    if before is None:
                        await self._store.create(REQUEST_PATH, value)
                    else:
                        await self._store.set(REQUEST_PATH, value, before.version)
                except FencelogError as error:
                    if error.code not in OVERTAKEN:
                        raise
                else:
                    return

        await until_known(ask)

    async def requested(self) -> AuditRequest | None:
        """Return the request that waits, None if there is none."""
        node = await value_or_none(self._store.get(REQUEST_PATH))
        if node is None:
            return None
        named = (_object(node) or {}).get("checks")
        known = {name.value: name for name in CheckName}
        names = [n for n in named if isinstance(n, str)] if isinstance(named, list) else []
        return AuditRequest(tuple(known[n] for n in names if n in known), node.version)

    async def done(self, request: AuditRequest) -> None:
        """Remove a request, unless there is a newer one."""

        async def delete() -> None:
            try:
                await self._store.delete(REQUEST_PATH, request.version)
            except FencelogError as error:
                if error.code not in OVERTAKEN:
                    raise

        await until_known(delete)

    async def _replace(self, path: str, value: bytes) -> None:
        async def write() -> None:
            while True:
                before = await value_or_none(self._store.get(path))
                try:
                    if before is None:
                        await self._store.create(path, value)
                    else:
                        await self._store.set(path, value, before.version)
                except FencelogError as error:
                    if error.code not in OVERTAKEN:
                        raise
                else:
                    return

        await until_known(write)


def completed_us(result: Mapping[str, Any]) -> int | None:
    """Return when a check was last made to its end, by its last result; None: never, or that is not
    known."""
    at_us = result.get("finished_us" if _is_complete(result) else "completed_us")
    return at_us if isinstance(at_us, int) else None


def _is_complete(result: Mapping[str, Any]) -> bool:
    return "error" not in result and "skipped" not in result


def _object(node: Versioned) -> dict[str, Any] | None:
    try:
        found = json.loads(node.value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
