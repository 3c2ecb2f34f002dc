"""``kill -9`` under load: every promise that was made is kept, with identical bytes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from runpy import run_path

import pytest

from fencelog.ledgers.errors import ErrorCode
from tests.support.bookie_stage import OpenBookie, Requests

CHILD = Path(__file__).with_name("crash_child.py")


async def load_and_kill(data_dir: Path, first_ledger: int, promises: int) -> list[list[str]]:
    """The promises of a child that was killed after having made some."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CHILD),
        str(data_dir),
        str(first_ledger),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(30):
            while len(lines) < promises:
                line = await child.stdout.readline()
                assert line, "the child ended by itself"
                lines.append(line)
    finally:
        child.kill()
    lines += (await child.stdout.read()).splitlines(keepends=True)
    await child.wait()
    return [line.decode().split() for line in lines if line.endswith(b"\n")]


@pytest.mark.processes
async def test_every_promise_survives_kill_9(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    run_of = run_path(str(CHILD))["run_of"]
    made: list[list[str]] = []
    for round_number, promises in enumerate((30, 333, 1500)):
        made += await load_and_kill(tmp_path / "data", 1 + 1000 * round_number, promises)
    assert len({words[1] for words in made if words[0] == "ready"}) == 1
    bookie = await open_bookie()
    for what, ledger, first in made:
        if what == "added":
            run = await requests.read(bookie, int(ledger), int(first), 20)
            assert run == run_of(int(ledger), int(first))
    fenced = [int(ledger) for what, ledger, _ in made if what == "fenced"]
    assert fenced
    for ledger_id in fenced:
        error = await requests.add(bookie, requests.run(ledger_id, 10_000))
        assert error is not None
        assert error.code is ErrorCode.LEDGER_FENCED


@pytest.mark.processes
async def test_a_directory_used_by_another_process_is_refused(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    await open_bookie()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CHILD),
        str(tmp_path / "data"),
        "1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        out, err = await child.communicate()
    assert (child.returncode, out) == (1, b"")
    assert b"data_directory_in_use" in err
