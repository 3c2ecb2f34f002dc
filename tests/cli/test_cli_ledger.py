"""``fencelog ledger``: an operator's commands over real bookies, and the loss that one accepts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fencelog.api.cli import main as cli
from fencelog.api.cli.ledger import _given_up
from fencelog.api.console import EXIT_ERROR, EXIT_USAGE
from fencelog.api.local_cluster.cluster_access import cluster_access
from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.instance import INSTANCE_PATH
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.rpc.bookie_directory import bookie_registration
from fencelog.ledgers.rpc.bookie_port import BookieInfo
from tests.support.local_cluster import LocalCluster

Run = Callable[..., Awaitable[int]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``fencelog ledger …`` over the cluster of this process; gives the exit code."""
    loop: asyncio.AbstractEventLoop

    class Access:
        ledgers = cluster.ledgers
        bookies = cluster

    @contextlib.asynccontextmanager
    async def access(url: str, _secret_file: Path | None) -> AsyncIterator[Any]:
        assert url == "zk://somewhere:1"
        yield Access

    def run_here(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    monkeypatch.setattr("fencelog.api.local_cluster.cluster_access.cluster_access", access)
    monkeypatch.setattr("fencelog.api.local_cluster.cluster_access.run_on_uvloop", run_here)

    async def run(*arguments: str) -> int:
        nonlocal loop
        loop = asyncio.get_running_loop()
        line = ["ledger", *arguments, "--metadata", "zk://somewhere:1"]
        return await loop.run_in_executor(None, cli.run, line)

    return run


async def test_ledgers_are_listed_and_shown(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await (await cluster.write(b"0", b"1")).close()
    await cluster.write(b"0")
    assert await run("list") == 0
    assert capsys.readouterr().out.splitlines() == ["1 closed 1", "2 open -1"]
    assert await run("show", "1") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["last_entry_id"], shown["length"]) == ("closed", 1, 2)
    assert await run("show", "77") == EXIT_ERROR
    assert "ledger 77 is not there" in capsys.readouterr().err


async def test_a_check_says_what_is_missing_in_limbo_or_not_known(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await (await cluster.write(b"0", b"1", b"2")).close()
    open_ledger = str((await cluster.write(b"0", b"1")).ledger_id)
    assert await run("check", "1") == 0
    assert capsys.readouterr().out.splitlines() == ["b1: whole", "b2: whole", "b3: whole"]
    assert await run("check", open_ledger) == 0
    b1 = await cluster.lose_disk("b1")
    await cluster.lose_disk("b2")
    await cluster.bookies["b2"].clear_limbo(1)
    copy = await cluster.bookies["b3"].read(1, 1, max_entries=1, max_bytes=100)
    stored: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
    b1.add(bytes(copy.run), recovery=True, on_reply=stored.set_result)
    assert await stored is None
    await cluster.stop("b3")
    capsys.readouterr()
    assert await run("check", "1") == EXIT_ERROR
    b1_line, b2_line, b3_line = capsys.readouterr().out.splitlines()
    assert b1_line == "b1: missing 0..0, 2..2; in limbo: it may have forgotten what is missing"
    assert b2_line == "b2: missing 0..2"
    assert b3_line.startswith("b3: not known: ")


async def test_a_striped_check_shows_the_first_of_what_is_missing(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await (await cluster.write(*[b"x"] * 60, copies=2)).close()
    await cluster.bookies["b2"].shard(1).remove(1, deleted=True)
    assert await run("check", "1") == EXIT_ERROR
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith("b2: missing ")
    assert line.endswith(", …")
    assert line.count("..") == 10


async def test_a_ledger_is_recovered_by_hand(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.write(b"0", b"11")
    for _ in range(2):  # it may be repeated
        assert await run("recover", "1") == 0
        assert capsys.readouterr().out == "ledger 1 is closed: last entry 1, 3 bytes\n"


async def test_only_consent_ends_what_is_wholly_in_limbo_and_it_is_told_what_is_lost(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.write(b"0", b"1")
    for bookie_id in ("b1", "b2", "b3"):
        await cluster.lose_disk(bookie_id)
    cluster.cut("b3")
    assert await run("recover", "1", "--accept-loss") == EXIT_ERROR
    assert "the others have to answer first" in capsys.readouterr().err
    cluster.cut()
    assert await run("recover", "1") == EXIT_ERROR
    assert "--accept-loss ends the ledger without it" in capsys.readouterr().err
    assert not (await cluster.ledgers.get(1))[0].is_closed
    assert await run("recover", "1", "--accept-loss") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "given up: entry 0 (in limbo: b1, b2, b3)",
        "ledger 1 is closed: last entry -1, 0 bytes",
    ]
    fenced = [line for line in lines if line.endswith("is in limbo with it, hence fenced")]
    assert len(fenced) >= 2  # enough of them: the third is not waited for


def test_what_is_given_up_is_told_as_ranges() -> None:
    lost = dict.fromkeys((3, 4, 5), ("b1", "b2")) | {6: ("b2",), 8: ("b2",)}
    assert list(_given_up(lost, set())) == [
        "given up: entries 3..5 (in limbo: b1, b2)",
        "given up: entry 6 (in limbo: b2)",
        "given up: entry 8 (in limbo: b2)",
    ]
    assert list(_given_up(lost, {"b2"})) == [
        "given up: entries 3..5 (in limbo: b1; deleted: b2)",
        "given up: entry 6 (deleted: b2)",
        "given up: entry 8 (deleted: b2)",
    ]
    assert list(_given_up({}, set())) == []


async def test_a_ledger_that_bookies_have_deleted_is_ended_with_consent(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its metadata is back, from a backup that is older than the deletion. Restarts forget no
    deletion, and a writer of that time can add nothing."""
    writer = await cluster.write(b"0", b"1")
    for bookie_id in ("b1", "b2", "b3"):
        await cluster.bookies[bookie_id].shard(1).remove(1, deleted=True)
        await cluster.restart(bookie_id)
    assert await run("recover", "1") == EXIT_ERROR
    told = capsys.readouterr().err
    assert "deleted: b1" in told
    assert "--accept-loss ends the ledger without it" in told
    assert await run("recover", "1", "--accept-loss") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "given up: entry 0 (deleted: b1, b2, b3)",
        "ledger 1 is closed: last entry -1, 0 bytes",
    ]
    assert len([line for line in lines if line.endswith("has deleted it, hence fenced")]) >= 2
    assert not any("limbo" in line for line in lines)
    with pytest.raises(FencelogError) as caught:
        await writer.close()
    assert caught.value.code is ErrorCode.LEDGER_FENCED


async def test_a_recovery_that_merely_lacks_bookies_does_not_speak_of_limbo(
    cluster: LocalCluster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.write(b"0")
    cluster.cut("b1", "b2", "b3")
    assert await run("recover", "1") == EXIT_ERROR
    assert "limbo" not in capsys.readouterr().err


async def test_access_is_to_the_metadata_and_the_bookies_registered_there(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await BookieServer.start(cluster.bookies["b1"], "127.0.0.1", 0)
    registered = MemoryCluster()
    registered.create(INSTANCE_PATH, b'{"instance": "%s"}' % (b"0" * 32))
    registered.create("/bookies/b1", bookie_registration(server.address, BookieInfo("b1")))
    monkeypatch.setattr(
        "fencelog.api.local_cluster.cluster_access.open_metadata_store",
        lambda _url, host: MemoryMetadataStore(registered),
    )
    async with cluster_access("zk://somewhere:1", None) as access:
        client = access.bookies.client("b1")
        with pytest.raises(FencelogError, match="has no ledger 5"):
            await client.list_entries(5)
        with pytest.raises(FencelogError, match="ledger 5 is not there"):
            await access.ledgers.get(5)
    await server.close()


@pytest.mark.parametrize(
    "command",
    [
        ("ledger", "list"),
        ("bookies", "list"),
        ("cookie", "list"),
        ("check",),
        ("doctor",),
        ("metadata", "skip-ledger-ids"),
    ],
    ids=" ".join,
)
def test_a_mistyped_metadata_file_is_not_made(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nowhere" / "x.sqlite"
    assert cli.run([*command, "--metadata", f"sqlite:{file}"]) in (EXIT_ERROR, EXIT_USAGE)
    assert f"there is no metadata file {file}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
