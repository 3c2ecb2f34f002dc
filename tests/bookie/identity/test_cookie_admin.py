"""Cookies taken away while others go on, and what a repair would make anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.identity.cookie_admin import delete_cookie, lost_directories
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


@pytest.fixture
async def store() -> AsyncIterator[MemoryMetadataStore]:
    """A store with the cookie of b1, which has a data and a ledger directory."""
    store = MemoryMetadataStore()
    await store.start()
    instance, _ = await create_instance(store, SystemHost())
    cookie = Cookie("b1", instance, "01" * 16, "01" * 16, ledgers=("01" * 16,))
    await CookieRegistry(store).register(cookie, StoredCookie(RegisteredCookie(instance)))
    yield store
    await store.close()


async def test_what_a_repair_would_make_is_named_and_nothing_is_changed(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    config = BookieConfig(tmp_path / "data", (), (tmp_path / "l0",), bookie_id="b1")
    lost = await lost_directories(config, store, disk=PosixDisk())
    assert lost == (tmp_path / "data", tmp_path / "l0")
    assert list(tmp_path.iterdir()) == []


async def test_what_a_repair_would_refuse_is_refused(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    config = BookieConfig(tmp_path / "data", (), (tmp_path / "l0",), bookie_id="b1")
    (tmp_path / "l0").mkdir()
    (tmp_path / "l0/picture").touch()
    with pytest.raises(FencelogError, match="has no cookie, but holds picture") as caught:
        await lost_directories(config, store, disk=PosixDisk())
    assert caught.value.code is ErrorCode.CORRUPT
    (tmp_path / "data").touch()
    with pytest.raises(FencelogError, match="cannot repair") as caught:
        await lost_directories(config, store, disk=PosixDisk())
    assert caught.value.code is ErrorCode.STORAGE_FAILED
