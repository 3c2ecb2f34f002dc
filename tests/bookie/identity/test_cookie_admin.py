"""Cookies taken away while others go on."""

from __future__ import annotations

import pytest

from fencelog.bookie.identity.cookie_admin import delete_cookie
from fencelog.bookie.identity.cookie_registry import CookieRegistry, StoredCookie
from fencelog.bookie.identity.cookies import Cookie
from fencelog.bookie.identity.cookies_core import RegisteredCookie
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryMetadataStore


class Slow(MemoryMetadataStore):
    """While its ledgers are listed, the bookie starts."""

    async def children(self, path: str) -> list[str]:
        if path == "/ledgers":
            await self.create("/bookies/b1", b"{}", ephemeral=True)
        return await super().children(path)


async def test_a_bookie_that_starts_while_its_ledgers_are_looked_for_keeps_its_cookie() -> None:
    store = Slow()
    await store.start()
    instance, _ = await create_instance(store, SystemHost())
    cookie = Cookie("b1", instance, "01" * 16, "01" * 16)
    cookies = CookieRegistry(store)
    await cookies.register(cookie, StoredCookie(RegisteredCookie(instance)))
    with pytest.raises(FencelogError, match="is running: stop it first") as caught:
        await delete_cookie(store, "b1")
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert (await cookies.read("b1")).registered.cookie == cookie
    await store.close()
