"""The registered bookies as the metadata store has them now, not as a watch saw them last.

A lagging server shows a bookie that has just registered as absent. A decision that follows from
absence is made on reads that are not older than the decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.instance import check_session
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.registration import BOOKIES_PATH
from fencelog.ledgers.rpc.bookie_directory import parse_registration
from fencelog.ledgers.rpc.bookie_port import BookieInfo


@dataclass(frozen=True, slots=True)
class KnownBookies:
    """The bookies of the cluster at one time. ``registered``: what each running bookie states,
    writable or read-only; None where it is not valid. ``with_cookie``: all that have a cookie.
    ``session_id``: the metadata session that has read this."""

    registered: Mapping[str, BookieInfo | None]
    with_cookie: frozenset[str]
    session_id: int

    @property
    def racks(self) -> dict[str, str]:
        """Return the racks of the registered bookies, as far as they are known."""
        return {b: info.rack for b, info in self.registered.items() if info is not None}

    @property
    def writable(self) -> dict[str, BookieInfo]:
        """Return the registered bookies that take adds."""
        infos = self.registered.items()
        return {b: info for b, info in infos if info is not None and not info.is_read_only}

    def is_gone(self, bookie_id: str) -> bool:
        """Tell whether the bookie was taken out of the cluster: nothing will bring its copies
        back."""
        return bookie_id not in self.registered and bookie_id not in self.with_cookie


async def read_bookies(store: MetadataStore) -> KnownBookies:
    """Read all registrations and the names of all cookies, none older than this call. Raises
    FencelogError: METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT."""
    session_id = store.session_id
    # Cookies first: a bookie has a cookie before it registers, so that one which comes now is in
    # one of the two. And this listing is no older than the call, so nothing that follows is.
    cookies = frozenset(await CookieRegistry(store).names())
    try:
        names = await store.children(BOOKIES_PATH)
    except FencelogError as error:
        if error.code is not ErrorCode.METADATA_NOT_FOUND:
            raise
        names = []
    nodes = await asyncio.gather(*(_registration(store, name) for name in names))
    check_session(store, session_id, "read the registered bookies")
    found = {name: info for name, (is_there, info) in zip(names, nodes, strict=True) if is_there}
    return KnownBookies(found, cookies, session_id)


async def _registration(store: MetadataStore, name: str) -> tuple[bool, BookieInfo | None]:
    try:
        node = await store.get(f"{BOOKIES_PATH}/{name}")
    except FencelogError as error:
        if error.code is not ErrorCode.METADATA_NOT_FOUND:
            raise
        return False, None
    try:
        return True, parse_registration(name, node.value)[1]
    except (ValueError, KeyError, TypeError):
        return True, None
