"""The election of the auditor: an ephemeral node that one process holds.

A process that was suspended may believe that it is still the auditor while another one is. That is
harmless: everything that an auditor changes is a mark, which only makes a worker look, or a
compare-and-set of a decommission.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fencelog.bookie.auditor.limits import ELECTION_RETRY_MS
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import MetadataStore, SessionState, Version, Versioned
from fencelog.ledgers.reader.fan_out import cancel_all

_log = logging.getLogger(__name__)

AUDITOR_PATH = "/auditor"
LEADER_PATH = f"{AUDITOR_PATH}/leader"


@dataclass(frozen=True, slots=True)
class Leader:
    """The auditor. ``process_id``: the name of its process; ``since_us``: since when."""

    process_id: str
    since_us: int


async def who_is_auditor(store: MetadataStore) -> Leader | None:
    """Return the auditor; None: there is none now. Raises FencelogError: METADATA_UNAVAILABLE,
    CORRUPT."""
    try:
        node = await store.get(LEADER_PATH)
    except FencelogError as error:
        if error.code is ErrorCode.METADATA_NOT_FOUND:
            return None
        raise
    try:
        fields = json.loads(node.value)
        return Leader(str(fields["process_id"]), int(fields["since_us"]))
    except (ValueError, KeyError, TypeError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"{LEADER_PATH} is not valid: {error}") from error


class Election:
    """The candidacy of one process. ``work`` runs while the process is the auditor, and is
    cancelled when it is not any more; ``is_leader`` says whether it is."""

    def __init__(self, store: MetadataStore, process_id: str, *, host: Host) -> None:
        self._store = store
        self._process_id = process_id
        self._host = host
        self._token = host.random_bytes(16).hex()
        self._changed = asyncio.Event()
        self.is_leader = False

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Stand for election until cancelled; the office is given up then."""
        watches = [
            self._store.watch_value(LEADER_PATH, lambda node: self._changed.set()),
            self._store.on_session(self._on_session),
        ]
        try:
            while True:
                self._changed.clear()
                version = await self._elected()
                if version is None:
                    await self._pause()
                else:
                    await self._lead(version, work)
        finally:
            for watch in watches:
                watch.close()

    def _on_session(self, state: SessionState) -> None:
        if state is not SessionState.SUSPENDED:
            self._changed.set()

    async def _pause(self) -> None:
        """Wait until the node changes; look now and then all the same: a node that disappears
        before the watch has seen it is no change to the watch."""
        try:
            async with asyncio.timeout(ELECTION_RETRY_MS / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _elected(self) -> Version | None:
        """Try to become the auditor; return the version of our node, None if it is not ours."""
        fields = {
            "process_id": self._process_id,
            "token": self._token,
            "since_us": self._host.now_us(),
        }
        try:
            value = json.dumps(fields).encode()
            return await self._store.create(LEADER_PATH, value, ephemeral=True)
        except FencelogError as error:
            if error.code not in (ErrorCode.METADATA_EXISTS, ErrorCode.METADATA_UNKNOWN):
                _log.warning("no auditor can be elected: %s", error.detail)
                return None
        return await self._own()

    async def _own(self) -> Version | None:
        try:
            node = await self._store.get(LEADER_PATH)
        except FencelogError:
            return None
        return node.version if self._is_ours(node) else None

    def _is_ours(self, node: Versioned) -> bool:
        is_session = node.ephemeral_owner == self._store.session_id
        return is_session and self._token.encode() in node.value

    async def _lead(self, version: Version, work: Callable[[], Awaitable[None]]) -> None:
        _log.info("%s is the auditor", self._process_id)
        self.is_leader = True
        loop = asyncio.get_running_loop()
        working = loop.create_task(_guarded(work), name="auditor")
        losing = loop.create_task(self._until_lost(version), name="auditor-office")
        try:
            await asyncio.wait((working, losing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_leader = False
            await cancel_all((working, losing))
            await self._resign(version)
        _log.info("%s is the auditor no more", self._process_id)
        await asyncio.sleep(ELECTION_RETRY_MS / 1000)  # another one may be luckier

    async def _until_lost(self, version: Version) -> None:
        while True:
            self._changed.clear()
            try:
                node = await self._store.get(LEADER_PATH)
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_NOT_FOUND:
                    return
            else:
                if node.version != version:
                    return
            await self._pause()

    async def _resign(self, version: Version) -> None:
        try:
            await self._store.delete(LEADER_PATH, version)
        except FencelogError as error:
            _log.info("the auditor's node was not removed: %s", error.detail)


async def _guarded(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:  # any error: another process shall try
        _log.exception("the auditor has failed")
    else:
        _log.error("the auditor has ended")
