"""The surroundings of tests of one bookie: how they open it, and ways to send it requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

from fencelog.bookie.disk.port import Disk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import build_run, read_run
from tests.support.until import PATIENCE_S, until


class BookieSettings(TypedDict, total=False):
    """The other settings of ``BookieConfig``."""

    journal_dirs: tuple[Path, ...]
    ledger_dirs: tuple[Path, ...]
    bookie_id: str | None
    write_cache_bytes: int
    read_cache_bytes: int
    journal_file_bytes: int
    entry_log_bytes: int
    read_only_at: float
    writable_at: float
    flush_interval_ms: int
    journal_sync: bool
    journal_write: bool
    repair_cookie: bool
    local_reads: bool


class OpenBookie(Protocol):
    """A function that opens a bookie, which is closed in the end."""

    async def __call__(
        self,
        *,
        data_dir: Path | None = None,
        disk: Disk | None = None,
        cookies: CookieRegistry | None = None,
        **settings: Unpack[BookieSettings],
    ) -> Bookie: ...


class Answers:
    """The answers to several requests of one call, whose tokens are their places."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._outcomes: dict[int, FencelogError | None] = {}
        self._done = asyncio.Event()

    def take(self, tokens: Sequence[int], error: FencelogError | None) -> None:
        assert not self._outcomes.keys() & set(tokens)
        self._outcomes.update(dict.fromkeys(tokens, error))
        if len(self._outcomes) == self._count:
            self._done.set()

    async def all(self) -> list[FencelogError | None]:
        """Return them in the order of the requests, once all are there."""
        assert not self._outcomes  # it never calls back from within the call
        async with asyncio.timeout(PATIENCE_S):
            await self._done.wait()
        return [self._outcomes[token] for token in range(self._count)]


class Requests:
    """The plain calls of tests: build runs, add them and wait for the answer."""

    @staticmethod
    def run(ledger_id: int, first: int, count: int = 1, *, lac: int = -1, size: int = 100) -> bytes:
        """Return a run of entries whose payload names their ledger and entry."""
        payloads = [f"{ledger_id}/{first + i}|".encode().ljust(size, b".") for i in range(count)]
        return build_run(ledger_id, first, payloads, lac=lac, length_before=first * size)

    @staticmethod
    async def add(bookie: Bookie, run: bytes, *, recovery: bool = False) -> FencelogError | None:
        answer: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
        bookie.add(run, recovery=recovery, on_reply=answer.set_result)
        async with asyncio.timeout(PATIENCE_S):
            return await answer

    @staticmethod
    async def add_many(bookie: Bookie, runs: Sequence[bytes]) -> list[FencelogError | None]:
        """Return the answers of adds in one call, in the order of the runs."""
        answers = Answers(len(runs))
        bookie.add_many(list(map(read_run, runs)), range(len(runs)), on_replies=answers.take)
        return await answers.all()

    @staticmethod
    async def write_lac(bookie: Bookie, ledger_id: int, lac: int) -> FencelogError | None:
        (answer,) = await Requests.write_lacs(bookie, [(ledger_id, lac)])
        return answer

    @staticmethod
    async def write_lacs(
        bookie: Bookie, lacs: Sequence[tuple[int, int]]
    ) -> list[FencelogError | None]:
        """Return the answers of LACs in one call, in their order."""
        answers = Answers(len(lacs))
        bookie.write_lacs(lacs, range(len(lacs)), on_replies=answers.take)
        return await answers.all()

    @staticmethod
    async def until(condition: Callable[[], bool]) -> None:
        """Let the loop and the I/O threads run until a condition holds. Raises TimeoutError after
        ``PATIENCE_S``."""
        await until(condition)

    @staticmethod
    async def read(bookie: Bookie, ledger_id: int, first: int, max_entries: int = 4096) -> bytes:
        reply = await bookie.read(ledger_id, first, max_entries=max_entries, max_bytes=1 << 22)
        return bytes(reply.run)


def refusal_of(answer: FencelogError | None) -> ErrorCode | None:
    """Return the error code of the answer to an add or the like; None if it succeeded."""
    return None if answer is None else answer.code


def is_removing(bookie: Bookie, ledger_id: int) -> bool:
    """Tell whether the ledger's previous entries are still being removed."""
    state = bookie.shard(ledger_id).states.get(ledger_id)
    assert state is not None
    return state.removing
