"""The claim of a bookie to its directories at a start, which is granted or refused.

The order of the steps, each durable before the next begins:

    1  the identity announces the change: a new incarnation, and the one that it replaces
    2  new or lost directories are made; each directory is marked before and after
    3  the cookie is registered, by compare-and-set against what was read at first
    4  the identity goes from NEW to FORGOT
    5  ledgers are fenced (``engine/boot.py``), the identity says READY, the bookie serves

A crash at any point is harmless, for these reasons. Before 3 no other process knows the new
incarnation. A data directory in state NEW was never served from, so all that was made in its
incarnation may be made again (crash in 1 or 2); and because it names the incarnation that it
replaces, it recognizes both the previous and the new registration as its own (crash in 3). A
directory in state FORGOT or READY was registered, so a missing cookie means that it was deleted,
never that it was not written yet. If only journal or ledger directories are remade, the identity
says FORGOT from 1 on, and a directory that is not marked as made is refused like a lost one: the
repair is done again. Of two processes that start at once under one id, one finds its
compare-and-set refused.
"""

from __future__ import annotations

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.port import IoThread
from fencelog.bookie.identity.cookie_registry import CookieRegistry, StoredCookie
from fencelog.bookie.identity.cookies import Identity, State
from fencelog.bookie.identity.cookies_core import (
    Found,
    Make,
    Refuse,
    RegisteredCookie,
    StartRequest,
    decide,
)
from fencelog.bookie.identity.data_directory import DataDirectory
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host


async def claim_directories(
    directory: DataDirectory,
    config: BookieConfig,
    io_thread: IoThread,
    registry: CookieRegistry | None,
    host: Host,
) -> Identity:
    """Return the identity of the bookie, registered, in complete directories. ``directory`` is
    locked. Without a ``registry`` the bookie is not registered, and its own identity is trusted.

    Raises OSError, and FencelogError: BAD_REQUEST and CORRUPT with the problem and its remedy,
    METADATA_NOT_FOUND (a store without an instance), METADATA_CONFLICT (another process was
    faster), METADATA_UNAVAILABLE, METADATA_UNKNOWN.
    """
    found = await io_thread.run(directory.inspect)
    bookie_id = config.bookie_id or (found.identity and found.identity.bookie_id)
    bookie_id = bookie_id or f"bookie-{host.random_bytes(4).hex()}"
    held = await registry.read(bookie_id) if registry else _believed(found)
    request = StartRequest(bookie_id, host.random_bytes(16).hex(), config.repair_cookie)
    decision = decide(found, held.registered, request)
    if isinstance(decision, Refuse):
        raise FencelogError(decision.code, decision.reason)
    identity = decision.identity
    if isinstance(decision, Make):
        made = decision
        await io_thread.run(lambda: directory.make(made, host))
    elif identity != found.identity:
        await io_thread.run(lambda: directory.write_identity(identity))
    if found.is_unsynced:
        await io_thread.run(directory.unmark_unsynced)
    if registry and held.registered.cookie != identity.cookie:
        await registry.register(identity.cookie, held)
    if identity.state is State.NEW:
        return await io_thread.run(lambda: directory.set_state(identity, State.FORGOT))
    return identity


def _believed(found: Found) -> StoredCookie:
    if found.identity is None:
        return StoredCookie(RegisteredCookie(""))
    cookie = found.identity.cookie
    return StoredCookie(
        RegisteredCookie(cookie.instance, None if found.identity.state is State.NEW else cookie)
    )
