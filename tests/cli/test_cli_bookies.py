"""``fencelog bookies``: an operator's commands against a real bookie on a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.cli import main as cli
from fencelog.api.console import EXIT_ERROR, EXIT_UNKNOWN, EXIT_USAGE
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.admin import arguments
from fencelog.bookie.engine.bookie import Bookie, BookieConfig
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import INSTANCE_PATH
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.rpc.authentication import SharedSecret
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from fencelog.ledgers.rpc.bookie_port import BookieInfo

SECRET = b"correct horse battery staple"
Run = Callable[..., Awaitable[int]]


@pytest.fixture
async def bookie(tmp_path: Path) -> AsyncIterator[Bookie]:
    config = BookieConfig(data_dir=tmp_path / "data", bookie_id="b1")
    opened = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
    yield opened
    await opened.close()


@pytest.fixture(params=[None, SECRET], ids=["open", "with a secret"])
async def run(
    request: pytest.FixtureRequest, bookie: Bookie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Run]:
    """Runs ``fencelog bookies …`` beside the bookie, in a thread as if in a process of its own,
    over metadata that names the bookie; gives the exit code."""
    authenticator = request.param and SharedSecret(request.param, host=SystemHost())
    server = await BookieServer.start(bookie, "127.0.0.1", 0, authenticator=authenticator)
    address = server.address
    (tmp_path / "secret").write_bytes(SECRET)

    def store(url: str, *, host: object) -> MemoryMetadataStore:
        assert url == "zk://somewhere:1"
        cluster = MemoryCluster()
        cluster.create(INSTANCE_PATH, b'{"instance": "%s"}' % (b"0" * 32))
        infos = (BookieInfo("b1", "1", "rack-7", 3 << 30), BookieInfo("b0", is_read_only=True))
        for info in infos:
            value = bookie_registration(address, info)
            cluster.create(f"/bookies/{info.bookie_id}", value)
        return MemoryMetadataStore(cluster)

    monkeypatch.setattr("fencelog.api.local_cluster.cluster_access.open_metadata_store", store)

    async def run_one(*arguments: str, other_secret: bool = False) -> int:
        line = ["bookies", *arguments, "--metadata", "zk://somewhere:1"]
        if bool(request.param) != other_secret and arguments[0] != "list":
            line += ["--secret-file", str(tmp_path / "secret")]
        return await asyncio.get_running_loop().run_in_executor(None, cli.run, line)

    yield run_one
    await server.close()


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fencelog: ")
    return line.removeprefix("fencelog: ")


async def add(bookie: Bookie, ledger_id: int, first: int, count: int) -> None:
    run = build_run(ledger_id, first, [b"x"] * count, lac=-1, length_before=first)
    stored = asyncio.get_running_loop().create_future()
    bookie.add(run, recovery=False, on_reply=stored.set_result)
    assert await stored is None


async def test_bookies_are_listed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("list") == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "address", "rack", "read-only", "free"]
    address = first.split()[1]
    assert first.split() == ["b0", address, "default", "yes", "not", "known"]
    assert second.split() == ["b1", address, "rack-7", "no", "3.0", "GiB"]
    assert await run("list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[1] == {
        "id": "b1",
        "address": address,
        "rack": "rack-7",
        "read_only": False,
        "free_bytes": 3 << 30,
    }


async def test_a_bookie_says_how_it_is(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("read-only", "b1", "on") == 0
    assert capsys.readouterr().out == "bookie b1 is read-only (reason: operator)\n"
    assert await run("status", "b1") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["bookie_id"], status["read_only"]) == ("b1", True)
    assert await run("read-only", "b1", "off") == 0
    assert capsys.readouterr().out == "bookie b1 takes new entries\n"


async def test_work_is_passed_on_to_the_parts_of_a_bookie(
    run: Run, bookie: Bookie, capsys: pytest.CaptureFixture[str]
) -> None:
    def verb(name: str) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
        async def done(given: dict[str, Any]) -> dict[str, Any]:
            arguments(given, {}, {"below": float, "no_grace": bool, "ledger": int})
            return {"done": name, **given}

        return done

    for name in ("gc", "scrub", "integrity", "suspend_compaction", "resume_compaction"):
        bookie.admin[name] = verb(name)
    commands = {
        ("gc", "b1"): {"done": "gc"},
        ("gc", "b1", "--threshold", "0.5"): {"done": "gc", "below": 0.5},
        ("gc", "b1", "--no-grace"): {"done": "gc", "no_grace": True},
        ("scrub", "b1"): {"done": "scrub"},
        ("scrub", "b1", "--ledger", "7"): {"done": "scrub", "ledger": 7},
        ("integrity", "b1"): {"done": "integrity"},
        ("compaction", "b1", "suspend"): {"done": "suspend_compaction"},
        ("compaction", "b1", "resume"): {"done": "resume_compaction"},
    }
    for command, reply in commands.items():
        assert await run(*command) == 0
        assert json.loads(capsys.readouterr().out) == reply


async def test_entries_are_listed_as_ranges_or_in_bp_34s_encoding(
    run: Run, bookie: Bookie, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(bookie, 7, 0, 5)
    await add(bookie, 7, 9, 1)
    assert await run("entries", "b1", "7") == 0
    assert capsys.readouterr().out == "0..4\n9..9\n"
    assert await run("entries", "b1", "7", "--hex") == 0
    whole = Availability.of([(0, 4), (9, 9)])
    assert capsys.readouterr().out == f"{whole.encode().hex()}\n"
    monkeypatch.setattr("fencelog.bookie.engine.entry_list.MAX_LISTED_RUNS", 1)
    bookie.fence_forgotten(7)
    assert await run("entries", "b1", "7") == 0
    printed = capsys.readouterr()
    assert printed.out == "0..4\n9..9\n"
    assert printed.err == (
        "fencelog: ledger 7 is in limbo: bookie b1 may have forgotten what is missing\n"
    )


async def test_what_went_wrong_is_one_line(
    run: Run, bookie: Bookie, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("status", "b9") == EXIT_ERROR
    assert "b9 is not registered" in complaint(capsys)
    assert await run("status", "b0") == EXIT_ERROR  # another bookie is at its address
    assert "expected bookie b0, found 'b1'" in complaint(capsys)
    assert await run("entries", "b1", "8") == EXIT_ERROR
    assert complaint(capsys) == "bookie b1 has no ledger 8"
    assert await run("scrub", "b1") == EXIT_ERROR
    assert "'scrub' is nothing that this bookie does" in complaint(capsys)

    async def lost(given: dict[str, Any]) -> dict[str, Any]:
        raise FencelogError(ErrorCode.STORAGE_FAILED, "half way through")

    bookie.admin["gc"] = lost
    assert await run("gc", "b1") == EXIT_UNKNOWN
    assert "half way through" in complaint(capsys)


@pytest.mark.parametrize(
    "arguments_",
    [
        ("compaction", "b1", "pause"),
        ("read-only", "b1"),
        ("entries", "b1", "-1"),
        ("entries", "b1", "seven"),
        ("gc", "b1", "--threshold", "2"),
        ("gc", "b1", "--threshold", "nan"),
        ("status",),
    ],
)
def test_a_wrong_command_line_reaches_nobody(
    arguments_: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["bookies", *arguments_, "--metadata", "memory:"]) == EXIT_USAGE
    assert complaint(capsys)


async def test_who_has_not_the_bookies_secret_is_told_so(
    run: Run, bookie: Bookie, capsys: pytest.CaptureFixture[str]
) -> None:
    """A secret where none is asked for is a mix-up too."""
    assert await run("read-only", "b1", "on", other_secret=True) == EXIT_ERROR
    assert "bookie b1" in complaint(capsys)
    assert not bookie.is_read_only


def test_a_secret_that_cannot_be_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"short")
    line = ["bookies", "status", "b1", "--metadata", "memory:", "--secret-file", str(secret)]
    assert cli.run(line) == EXIT_ERROR
    assert "secret" in complaint(capsys)
