"""Operations on cookies for operators: repair a cookie, delete one."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import Disk
from fencelog.bookie.identity.claim import claim_directories
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.identity.cookies import DATA, Cookie, Identity
from fencelog.bookie.identity.cookies_core import Make, Refuse, Start, StartRequest, decide
from fencelog.bookie.identity.data_directory import DataDirectory
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.ledger_metadata.store import LedgerStore
from fencelog.ledgers.metastore.port import MetadataStore


async def lost_directories(
    config: BookieConfig, store: MetadataStore, *, disk: Disk
) -> tuple[Path, ...]:
    """Return the directories of a stopped bookie that ``repair_cookie`` would make anew. Nothing is
    changed, nor locked.

    Raises FencelogError as ``repair_cookie``, but for DATA_DIRECTORY_IN_USE.
    """
    cookies = CookieRegistry(store)
    await registered_cookie(cookies, config.bookie_id or "")
    directory = DataDirectory(disk, config)
    async with contextlib.AsyncExitStack() as stack:
        io_thread = disk.io_thread("cookie-look")
        stack.push_async_callback(io_thread.close)
        try:
            found = await io_thread.run(directory.inspect)
        except OSError as error:
            raise _cannot_repair(config, error) from error
    held = await cookies.read(config.bookie_id or "")
    request = StartRequest(config.bookie_id or "", fresh="", may_repair=True)
    match decide(found, held.registered, request):
        case Refuse(code, reason):
            raise FencelogError(code, reason)
        case Make(places=places):
            of_places = {DATA: directory.path, **directory.given}
            return tuple(path for place, path in of_places.items() if place in places)
        case Start():
            return ()


async def repair_cookie(
    config: BookieConfig, store: MetadataStore, *, disk: Disk, host: Host
) -> tuple[Cookie, Identity]:
    """Make the lost directories of a bookie, ``config.bookie_id``, again. Return the previous
    cookie and the current identity, the same if nothing was lost. The bookie fences all its ledgers
    at its next start (BP-46). ``config.repair_cookie`` is True.

    Raises FencelogError as ``claim_directories``, DATA_DIRECTORY_IN_USE, STORAGE_FAILED, and
    BAD_REQUEST for a bookie that is not registered.
    """
    cookies = CookieRegistry(store)
    before = await registered_cookie(cookies, config.bookie_id or "")
    async with contextlib.AsyncExitStack() as stack:
        io_thread = disk.io_thread("cookie-repair")
        stack.push_async_callback(io_thread.close)
        directory = DataDirectory(disk, config)
        try:
            await io_thread.run(directory.lock)
            stack.callback(directory.unlock)
            return before, await claim_directories(directory, config, io_thread, cookies, host)
        except OSError as error:
            raise _cannot_repair(config, error) from error


def _cannot_repair(config: BookieConfig, error: OSError) -> FencelogError:
    return FencelogError(ErrorCode.STORAGE_FAILED, f"cannot repair {config.data_dir}: {error}")


async def delete_cookie(store: MetadataStore, bookie_id: str, *, force: bool = False) -> None:
    """Take a bookie out of the cluster: its directories are refused from now on, and a new one may
    take its name.

    Raises FencelogError: BAD_REQUEST if it is registered as running, has no cookie, or, without
    ``force``, if a ledger names it; METADATA_CONFLICT, METADATA_UNAVAILABLE, METADATA_UNKNOWN,
    CORRUPT.
    """
    cookies = CookieRegistry(store)
    await registered_cookie(cookies, bookie_id)
    count = 0
    async for metadata in LedgerStore(store).read_all():
        count += any(bookie_id in fragment.bookies for fragment in metadata.fragments)
    if count and not force:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"{count} ledgers name bookie {bookie_id}: their copies there would be given up. "
            "Re-replicate them first; --force gives them up: the entries that have no other copy "
            "are lost, and ledgers that are open may not be recoverable",
        )
    held = await cookies.read(bookie_id)  # only now: the listing takes its time
    if held.registered.is_serving:
        raise FencelogError(ErrorCode.BAD_REQUEST, f"bookie {bookie_id} is running: stop it first")
    if held.version is not None:
        await cookies.delete(bookie_id, held.version)


async def registered_cookie(cookies: CookieRegistry, bookie_id: str) -> Cookie:
    """Return the registered cookie of a bookie. Raises FencelogError(BAD_REQUEST) if there is
    none."""
    cookie = (await cookies.read(bookie_id)).registered.cookie
    if cookie is None:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"bookie {bookie_id} has no cookie in the metadata store (`fencelog cookie list` "
            "names all that have one)",
        )
    return cookie
