"""``fencelog bookie inspect``, ``verify``, ``rebuild-index``, ``format``: what they say."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from fencelog.api.cli import main as cli
from fencelog.api.console import EXIT_ERROR, EXIT_USAGE
from fencelog.bookie.config import BookieConfig
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.format.run import build_run
from fencelog.ledgers.host import SystemHost


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A bookie with two entries of ledger 5, closed."""

    async def fill() -> None:
        config = BookieConfig(tmp_path / "data", bookie_id="b1")
        bookie = await Bookie.open(config, disk=PosixDisk(), host=SystemHost())
        await bookie.forgotten_are_fenced()
        added: asyncio.Future[FencelogError | None] = asyncio.get_running_loop().create_future()
        run = build_run(5, 0, [b"a", b"b"], lac=-1, length_before=0)
        bookie.add(run, recovery=False, on_reply=added.set_result)
        assert await added is None
        await bookie.close()

    asyncio.run(fill())
    return tmp_path / "data"


def said(
    capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0
) -> tuple[list[str], list[str]]:
    """Lines on stdout and stderr."""
    assert cli.run(["bookie", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err.splitlines()


@pytest.mark.parametrize("kind", ["journal", "entrylog"])
def test_a_file_that_is_not_there_is_said_so(
    data: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, (line,) = said(capsys, "inspect", kind, "0a", "--data", data, code=EXIT_ERROR)
    assert (out, line) == ([], "fencelog: there is no file 0a of this kind")


def test_a_bookie_needs_metadata_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    _out, (line,) = said(capsys, code=EXIT_USAGE)
    assert "needs --metadata and --data" in line


def test_inspect(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _err = said(capsys, "inspect", "entrylog", "--data", data, "--json")
    header, record = map(json.loads, out)
    assert header["sealed"] == "no"
    assert record == {
        "offset": 64,
        "record": 1,
        "type": "RUN",
        "ledger": 5,
        "first": 0,
        "last": 1,
        "bytes": 152,
        "valid": "yes",
    }
    out, _err = said(capsys, "inspect", "index", "--data", data)
    assert out[1:] == [
        "run of 5  first 0  last 1  file 1  offset 96  bytes 152",
        "ledger 5  state open  last entry 1  lac -1  runs 1  entries 2  bytes 152",
    ]
    out, _err = said(capsys, "inspect", "ledger", 5, "--data", data)
    assert len(out) == 2
    out, _err = said(capsys, "inspect", "journal", "--data", data, "--json")
    assert list(json.loads(out[-1])) == ["replay_ends", "file", "offset", "why"]
    (journal,) = (data / "journal").glob("*.journal")
    out, _err = said(capsys, "inspect", "journal", journal, "--data", data)
    assert out[0].startswith(f"file {journal}")


def test_verify(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "verify", "--data", data) == ([f"{data}: no problems"], [])
    log = data / "entrylog/0000000000000001.entrylog"
    log.write_bytes(log.read_bytes()[:200])
    (problem, count), _err = said(capsys, "verify", "--data", data, code=EXIT_ERROR)
    assert problem.startswith(f"{log} at offset 96: (ledger 5, entries 0..1)")
    assert count == f"{data}: 1 problem"


def test_rebuild_index(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,), _err = said(capsys, "rebuild-index", "--data", data)
    assert line.endswith("every index is whole, nothing to rebuild")
    shutil.rmtree(data / "index")
    out, err = said(capsys, "rebuild-index", "--data", data, code=EXIT_ERROR)
    assert out == [f"{data}/index: is missing"]
    assert "give --yes" in err[0]
    assert not (data / "index").exists()
    out, _err = said(capsys, "rebuild-index", "--data", data, "--yes")
    assert out[1].startswith(f"index {data}/index  ledgers 1  runs 1  copied 0  mark ")
    assert "fences all ledgers" in out[2]
    said(capsys, "verify", "--data", data)


def test_format(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,), (refusal,) = said(capsys, "format", "--data", data, code=EXIT_ERROR)
    assert line.startswith("bookie b1  incarnation ")
    assert "ledgers 1" in line
    assert "give --yes" in refusal
    (data / "entrylog/letter.txt").touch()
    _out, (refusal,) = said(capsys, "format", "--data", data, "--yes", code=EXIT_ERROR)
    assert "letter.txt is no part of a bookie's data: nothing was removed" in refusal
    (data / "entrylog/letter.txt").unlink()
    said(capsys, "verify", "--data", data)
    out, _err = said(capsys, "format", "--data", data, "--yes")
    assert "cookie" in out[-1]
    assert [path.name for path in data.iterdir()] == ["lock"]
    _out, (refusal,) = said(capsys, "format", "--data", data, "--yes", code=EXIT_ERROR)
    assert "it is no bookie's" in refusal


def test_format_takes_all_directories_and_lets_them_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journals, ledgers = (tmp_path / "j",), (tmp_path / "a", tmp_path / "b")

    async def make() -> None:
        config = BookieConfig(tmp_path / "data", journals, ledgers, bookie_id="b1")
        await (await Bookie.open(config, disk=PosixDisk(), host=SystemHost())).close()

    asyncio.run(make())
    given = [f"--journal-dir={path}" for path in journals]
    given += [f"--ledger-dir={path}" for path in ledgers]
    _out, (refusal,) = said(capsys, "format", "--data", tmp_path / "data", "--yes", code=EXIT_ERROR)
    assert "was made with 1 --journal-dir" in refusal
    said(capsys, "format", "--data", tmp_path / "data", *given, "--yes")
    for path in (*journals, *ledgers):
        assert list(path.iterdir()) == []


def test_nothing_is_done_to_a_running_bookie(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = PosixDisk().lock(data / "lock")
    assert lock is not None
    for command in (["verify"], ["rebuild-index", "--yes"], ["format", "--yes"]):
        _out, (refusal,) = said(capsys, *command, "--data", data, code=EXIT_ERROR)
        assert "is in use by another process" in refusal
    lock.release()


@pytest.mark.parametrize("command", ["verify", "rebuild-index", "format"])
def test_a_directory_that_is_no_bookies_stays_as_it_is(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letter").write_text("dear")
    _, err = said(capsys, command, "--data", tmp_path, code=EXIT_ERROR)
    assert err == [f"fencelog: {tmp_path} has no identity: it is no bookie's"]
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]
