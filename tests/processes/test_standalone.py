"""The whole service in one process: killed under load, started twice, ended by a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from fencelog.api.client import FencelogClient
from fencelog.api.drills.harness.account import account
from fencelog.api.drills.harness.load import LoadClient, read_log
from fencelog.api.drills.harness.senders import AnyBroker
from fencelog.api.local_cluster.child_process import ChildProcess, fencelog_command
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.fencelog_cli import complaint, fencelog

pytestmark = pytest.mark.processes

TOPIC = "default/load"
CLIENTS = 4


async def start(place: Path) -> ChildProcess:
    command = ["standalone", "--http", "127.0.0.1:0", "--data", str(place / "data")]
    return await ChildProcess.start("standalone", command, log=place / "log")


async def load(process: ChildProcess, first_client: int, *, kill_after: int) -> list[LoadClient]:
    """Append from several clients; SIGKILL once so many messages are acknowledged."""
    url = process.announcement["http"]
    service = FencelogClient(url)
    clients = [LoadClient(first_client + n, AnyBroker([service], TOPIC, 0)) for n in range(CLIENTS)]
    due = asyncio.Event()

    def on_acknowledged(_sent_at: float) -> None:
        if sum(client.acknowledged for client in clients) >= kill_after:
            due.set()

    async def kill() -> None:
        await due.wait()
        await process.kill()

    killing = asyncio.create_task(kill())
    await asyncio.gather(
        *(client.run(is_over=killing.done, on_acknowledged=on_acknowledged) for client in clients)
    )
    await killing
    await service.close()
    return clients


async def test_what_was_acknowledged_survives_kill_9_under_load(tmp_path: Path) -> None:
    clients: list[LoadClient] = []
    for life in range(3):
        process = await start(tmp_path)
        async with FencelogClient(process.announcement["http"]) as client:
            await client.create_topic(TOPIC)
        clients += await load(process, life * CLIENTS, kill_after=400 * (life + 1))
    process = await start(tmp_path)
    log = await read_log([process.announcement["http"]], TOPIC, 0)
    await process.stop()
    attempts = [attempt for client in clients for attempt in client.attempts]
    result = account(attempts, log)
    assert result.is_clean, result
    assert result.acknowledged >= 400 + 800 + 1200


async def test_a_data_directory_serves_one_process(tmp_path: Path) -> None:
    process = await start(tmp_path)
    with pytest.raises(FencelogError, match="another process uses the data directory"):
        await start(tmp_path)
    done = fencelog("standalone", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert str(tmp_path / "data") in complaint(done)
    await process.stop()


async def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    process = await start(tmp_path)
    address = process.announcement["http"].removeprefix("http://")
    done = fencelog("standalone", "--http", address, "--data", str(tmp_path / "other"))
    assert done.returncode == 1
    assert complaint(done) == f"cannot listen on {address}: Address already in use"
    await process.stop()


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    data = str(tmp_path / "file" / "data")
    done = fencelog("standalone", "--http", "127.0.0.1:0", "--data", data)
    assert done.returncode == 1
    assert f"cannot use the data directory {data}" in complaint(done)


async def test_a_signal_ends_it_cleanly_with_requests_under_way(tmp_path: Path) -> None:
    process = await start(tmp_path)
    url = process.announcement["http"]
    async with FencelogClient(url) as client:
        await client.create_topic(TOPIC)
        await client.append(TOPIC, b"before the end")
        waiting = asyncio.create_task(client.read(TOPIC, 0, 1, wait_s=30))
        await asyncio.sleep(0.2)
        os.kill(process.pid, signal.SIGINT)
        async with asyncio.timeout(15):
            assert await process.wait() == 0
        answer = (await asyncio.gather(waiting, return_exceptions=True))[0]
        if isinstance(answer, FencelogError):
            assert answer.code in (ErrorCode.REQUEST_TIMEOUT, ErrorCode.DRAINING)
    assert levels(tmp_path) == {"INFO"}
    process = await start(tmp_path)
    assert await read_log([process.announcement["http"]], TOPIC, 0) == [b"before the end"]
    await process.stop()
    assert levels(tmp_path) == {"INFO"}


def levels(place: Path) -> set[str]:
    """Return the levels of the lines of the log; a traceback would be none of them."""
    return {line.split()[1] for line in (place / "log").read_text().splitlines()}


def test_one_bookie_is_enough_for_a_topic_of_one_copy(tmp_path: Path) -> None:
    command = ("standalone", "--bookies", "1", "--http", "127.0.0.1:0", "--data", str(tmp_path))
    with subprocess.Popen(fencelog_command(*command), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().rsplit(maxsplit=1)[1]
        one = ("--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1")
        assert fencelog("topic", "create", "t", *one, "--server", url).returncode == 0
        assert fencelog("append", "t", "--server", url, stdin=b"x\n").returncode == 0
        assert fencelog("read", "t", "--server", url).stdout == b"x\n"
        process.terminate()
        screen = process.stdout.read()
    assert process.returncode == 0
    assert "/docs" in screen
    assert "curl" in screen
    assert str(tmp_path) in screen


def test_bookies_do_not_outlive_their_metadata(tmp_path: Path) -> None:
    """Over a new store all that they have would look deleted."""
    (tmp_path / "data" / "bookie-1").mkdir(parents=True)
    done = fencelog("standalone", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    said = complaint(done)
    assert "bookie-1 holds the data of a bookie, but the metadata beside it" in said
    assert f"remove the directory {tmp_path / 'data'}" in said


def test_a_bookie_that_lost_its_disk_says_what_to_do(tmp_path: Path) -> None:
    metadata = ("--metadata", f"sqlite:{tmp_path / 'metadata'}")
    assert fencelog("metadata", "init", *metadata).returncode == 0
    directories = [tmp_path / name for name in ("data", "journal", "ledgers")]
    command = ["bookie", *metadata, "--listen", "127.0.0.1:0", "--id", "b1", "--journal-sync=off"]
    for option, path in zip(("--data", "--journal-dir", "--ledger-dir"), directories, strict=True):
        command += [option, str(path)]

    async def start_and_stop() -> str:
        bookie = await ChildProcess.start("bookie", command, log=tmp_path / "log")
        await bookie.stop()
        return str(bookie.announcement["incarnation"])

    first = asyncio.run(start_and_stop())
    assert asyncio.run(start_and_stop()) == first
    (tmp_path / "journal").rename(tmp_path / "elsewhere")
    said = complaint(fencelog(*command))
    assert said.startswith(f"bookie b1 has lost what was in {tmp_path / 'journal'}. Bring the")
    command.append("--repair-cookie")
    assert asyncio.run(start_and_stop()) != first
