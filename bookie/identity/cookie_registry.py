"""The cookies of all bookies in the metadata store: ``/cookies/{bookie id}``."""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.bookie.identity.cookies import Cookie, decode_cookie, encode_cookie
from fencelog.bookie.identity.cookies_core import RegisteredCookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.instance import (
    check_session,
    create_instance,
    read_instance,
    require_instance,
)
from fencelog.ledgers.metastore.port import MetadataStore, Version, Versioned
from fencelog.ledgers.metastore.registration import BOOKIES_PATH

COOKIES_PATH = "/cookies"

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class StoredCookie:
    """The registration as read from the store, and the version of the cookie (None: there is
    none)."""

    registered: RegisteredCookie
    version: Version | None = None


class CookieRegistry:
    """The cookies in one metadata store. Raises FencelogError: METADATA_UNAVAILABLE,
    METADATA_UNKNOWN, CORRUPT, BAD_REQUEST (an id that no path can hold), and the errors that its
    methods name."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def read(self, bookie_id: str) -> StoredCookie:
        """Read the instance and the cookie, none older than this call. Raises METADATA_NOT_FOUND
        for a store without an instance."""
        session_id = self._store.session_id
        instance = await require_instance(self._store)
        node = await self._get(f"{COOKIES_PATH}/{bookie_id}")
        serving = await self._get(f"{BOOKIES_PATH}/{bookie_id}")
        check_session(self._store, session_id, f"read the cookie of bookie {bookie_id}")
        is_serving = serving is not None
        if node is None:
            return StoredCookie(RegisteredCookie(instance, None, is_serving))
        cookie = decode_cookie(f"{COOKIES_PATH}/{bookie_id}", node.value)
        return StoredCookie(RegisteredCookie(instance, cookie, is_serving), node.version)

    async def register(self, cookie: Cookie, held: StoredCookie) -> None:
        """Replace the cookie that was read, by compare-and-set. After a lost reply, the incarnation
        shows whether the write took effect. Raises METADATA_CONFLICT when another process was
        faster, METADATA_UNKNOWN if the write may have taken effect."""
        path, value = f"{COOKIES_PATH}/{cookie.bookie_id}", encode_cookie(cookie)
        unknown: FencelogError | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if held.version is None:
                    await self._store.create(path, value)
                else:
                    await self._store.set(path, value, held.version)
            except FencelogError as error:
                if error.code is ErrorCode.METADATA_UNKNOWN:
                    unknown = error
                try:
                    now = await self._read_back(cookie.bookie_id, error)
                except FencelogError as refusal:
                    if unknown is None:
                        raise
                    raise unknown from refusal
                if now.registered.cookie == cookie:
                    return
                if now.version != held.version:
                    raise FencelogError(
                        ErrorCode.METADATA_CONFLICT,
                        f"another process starts as bookie {cookie.bookie_id}: it has registered "
                        "its cookie first. Give each bookie an --id of its own",
                    ) from error
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    async def names(self) -> list[str]:
        """Return the ids of all bookies with a cookie, none older than this call."""
        session_id = self._store.session_id
        await read_instance(self._store)
        try:
            names = await self._store.children(COOKIES_PATH)
        except FencelogError as error:
            if error.code is not ErrorCode.METADATA_NOT_FOUND:
                raise
            names = []
        check_session(self._store, session_id, "list the cookies")
        return names

    async def delete(self, bookie_id: str, version: Version) -> None:
        """Delete a cookie of that version. Raises METADATA_CONFLICT, METADATA_NOT_FOUND."""
        await self._store.delete(f"{COOKIES_PATH}/{bookie_id}", version)

    async def _read_back(self, bookie_id: str, error: FencelogError) -> StoredCookie:
        """Read the registration after a write that did not succeed; raise ``error`` if the write
        was refused for another reason than the stored cookie."""
        if error.code in (
            ErrorCode.METADATA_EXISTS,
            ErrorCode.METADATA_CONFLICT,
            ErrorCode.METADATA_NOT_FOUND,
            ErrorCode.METADATA_UNKNOWN,
        ):
            return await self.read(bookie_id)
        raise error

    async def _get(self, path: str) -> Versioned | None:
        try:
            return await self._store.get(path)
        except FencelogError as error:
            if error.code is ErrorCode.METADATA_NOT_FOUND:
                return None
            raise


async def initialise_cluster(
    store: MetadataStore, host: Host, *, is_surely_new: bool = False
) -> tuple[str, bool]:
    """Give the store an instance id if it has none; return the id, and whether it was given now.

    Raises FencelogError as ``create_instance``, and BAD_REQUEST where bookies are registered in a
    store without one, unless it ``is_surely_new``.
    """
    cookies = CookieRegistry(store)
    is_there = is_surely_new or await read_instance(store) is not None
    if not is_there and (names := await cookies.names()):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"the metadata store has no instance id, but the cookies of {len(names)} bookies, "
            f"{names[0]} first: part of it was lost. Restore it; if all those bookies are to "
            "begin anew, empty, say so with --surely-a-new-cluster",
        )
    return await create_instance(store, host)
