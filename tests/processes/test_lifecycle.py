"""The end of services: on a signal, with their parent, by their own failure."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from fencelog.api.processes.lifecycle import Running, run_service
from fencelog.ledgers.errors import ErrorCode, FencelogError

SERVICE = """
import asyncio, contextlib, sys
from fencelog.api.processes.lifecycle import Running, run_on_uvloop, run_service

@contextlib.asynccontextmanager
async def service():
    if "slow" in sys.argv:
        print("starting", flush=True)
        await asyncio.sleep(60)
    try:
        yield Running({"role": "test"})
    finally:
        print("ended", flush=True)

announce = lambda running: print("hello", flush=True)
run_on_uvloop(run_service(service(), print_addresses=announce, child="child" in sys.argv))
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVICE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    with start() as process:
        assert first_line(process) == b"hello\n"
        process.send_signal(number)
        assert process.communicate(timeout=20) == (b"ended\n", b"")
    assert process.returncode == 0


@pytest.mark.processes
def test_a_signal_ends_it_while_it_starts() -> None:
    with start("slow") as process:
        assert first_line(process) == b"starting\n"
        process.terminate()
        assert process.communicate(timeout=20) == (b"", b"")
    assert process.returncode == 0


@pytest.mark.processes
def test_a_child_announces_itself_and_ends_with_its_parent() -> None:
    with start("child") as process:
        assert json.loads(first_line(process)) == {"ready": True, "role": "test"}
        assert process.stdin is not None
        process.stdin.close()  # as the kernel does when a parent dies
        process.stdin = None
        assert process.communicate(timeout=20) == (b"ended\n", b"")
    assert process.returncode == 0


@contextlib.asynccontextmanager
async def failing(
    failure: asyncio.Future[FencelogError], ended: list[str]
) -> AsyncIterator[Running]:
    try:
        yield Running({}, (asyncio.get_running_loop().create_future(), failure))
    finally:
        ended.append("ended")


@pytest.mark.parametrize("as_exception", [False, True])
async def test_a_failure_of_a_part_ends_the_service_with_its_error(as_exception: bool) -> None:
    failure: asyncio.Future[FencelogError] = asyncio.get_running_loop().create_future()
    error = FencelogError(ErrorCode.STORAGE_FAILED, "fdatasync failed")
    ended: list[str] = []

    def fail(_running: Running) -> None:
        if as_exception:
            failure.set_exception(error)
        else:
            failure.set_result(error)

    with pytest.raises(FencelogError, match="fdatasync failed"):
        await run_service(failing(failure, ended), print_addresses=fail)
    assert ended == ["ended"]
