"""The development ZooKeeper: starts, keeps its data, guards its directory, says what is missing."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from fencelog.api.local_cluster.zookeeper import (
    JAVA_PACKAGE,
    DevelopmentZooKeeper,
    find_class_path,
    find_java,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError

pytestmark = pytest.mark.zookeeper


async def ask(address: str, command: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(command)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_it_starts_answers_on_loopback_and_stops(tmp_path: Path) -> None:
    server = await DevelopmentZooKeeper.start(tmp_path)
    assert server.address.startswith("127.0.0.1:")
    assert await ask(server.address, b"ruok") == b"imok"
    await server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)
    with pytest.raises(ConnectionRefusedError):
        await ask(server.address, b"ruok")


async def test_a_directory_in_use_is_refused_and_free_again_after_a_crash(tmp_path: Path) -> None:
    first = await DevelopmentZooKeeper.start(tmp_path)
    with pytest.raises(FencelogError) as caught:
        await DevelopmentZooKeeper.start(tmp_path)
    await first.kill()
    assert caught.value.code is ErrorCode.DATA_DIRECTORY_IN_USE
    second = await DevelopmentZooKeeper.start(tmp_path, port=first.port)
    assert second.address == first.address
    await second.stop()


_STARTER = """
import asyncio, sys
from pathlib import Path
from fencelog.api.local_cluster.zookeeper import DevelopmentZooKeeper

async def main():
    server = await DevelopmentZooKeeper.start(Path(sys.argv[1]))
    print(server.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_it_ends_with_the_process_that_started_it_however_that_ends(tmp_path: Path) -> None:
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _STARTER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout is not None
    server = psutil.Process(int(await starter.stdout.readline()))
    assert server.is_running()
    starter.kill()
    await starter.wait()
    await asyncio.to_thread(psutil.wait_procs, [server], timeout=10)  # noqa: TID251 - waits for a process
    assert not server.is_running()
    again = await DevelopmentZooKeeper.start(tmp_path)
    await again.stop()


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FencelogError, match=f"127.0.0.1:{port} ") as caught:
            await DevelopmentZooKeeper.start(tmp_path, port=port)
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE


async def test_a_server_that_ends_at_once_is_reported_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencelog.api.local_cluster.zookeeper._MAIN_CLASS", "no.such.Main")
    with pytest.raises(FencelogError, match=r"did not start .*no\.such\.Main"):
        await DevelopmentZooKeeper.start(tmp_path)


async def test_missing_java_is_one_line_that_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(FencelogError, match=JAVA_PACKAGE) as caught:
        await find_java()
    assert "\n" not in caught.value.detail


async def test_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(FencelogError, match=r"11\.0\.2"):
        await find_java()


def test_zookeeper_home_is_the_last_fall_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("pathlib.Path.exists", lambda path: False)
    with pytest.raises(FencelogError, match="ZOOKEEPER_HOME"):
        find_class_path()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "zookeeper-3.9.3.jar").touch()
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    assert find_class_path() == f"{tmp_path}/lib/*:{tmp_path}/*"
