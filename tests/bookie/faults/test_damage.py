"""Data that was lost or damaged on disk is refused or answered as an error, never as "not
there"."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import OpenBookie, Requests


def only(directory: Path, pattern: str) -> Path:
    (path,) = directory.glob(pattern)
    return path


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.fixture
async def data(open_bookie: OpenBookie, requests: Requests, tmp_path: Path) -> Path:
    """A directory with ten entries of ledger 1, flushed in two runs, closed cleanly."""
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 0, 5, size=70_000))
    await requests.add(bookie, requests.run(1, 5, 5, size=70_000))
    await bookie.close()
    return tmp_path / "data"


@pytest.mark.parametrize("offset", [96, 104, 112, 116, 120, 130, 200, 5000])
async def test_every_damaged_part_of_a_stored_run_is_corrupt(
    offset: int, data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    flip(only(data, "entrylog/*"), offset)
    bookie = await open_bookie()
    with pytest.raises(FencelogError, match="entrylog at offset 96") as caught:
        await requests.read(bookie, 1, 0)
    assert caught.value.code is ErrorCode.CORRUPT
    assert len(await requests.read(bookie, 1, 5)) > 350_000


async def test_a_cut_off_damaged_or_missing_entry_log_is_no_negative(
    data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    path = only(data, "entrylog/*")
    whole = path.read_bytes()
    for damage, code in (
        (whole[:100_000], ErrorCode.CORRUPT),
        (b"", ErrorCode.CORRUPT),
        (b"?" + whole[1:], ErrorCode.CORRUPT),
        (None, ErrorCode.STORAGE_FAILED),
    ):
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        bookie = await open_bookie()
        with pytest.raises(FencelogError) as caught:
            await requests.read(bookie, 1, 0)
        assert caught.value.code is code
        await bookie.close()
        path.write_bytes(whole)


@pytest.mark.parametrize("lost", ["identity", "checkpoint", "index", "journal/*.journal"])
async def test_a_directory_that_lost_a_part_is_refused(
    lost: str, data: Path, open_bookie: OpenBookie
) -> None:
    path = only(data, lost)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    with pytest.raises(FencelogError) as caught:
        await open_bookie()
    assert caught.value.code is ErrorCode.CORRUPT


@pytest.mark.parametrize("name", ["identity", "checkpoint"])
async def test_any_damaged_byte_of_a_small_file_is_refused(
    name: str, data: Path, open_bookie: OpenBookie
) -> None:
    whole = (data / name).read_bytes()
    for offset in range(0, len(whole), 7):
        flip(data / name, offset)
        with pytest.raises(FencelogError) as caught:
            await open_bookie()
        assert caught.value.code is ErrorCode.CORRUPT
        (data / name).write_bytes(whole)


async def test_a_damaged_index_is_an_error(
    data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    for path in (data / "index").glob("*.sst"):
        flip(path, 40)

    async def start_and_read() -> None:
        await requests.read(await open_bookie(), 1, 0)

    with pytest.raises(FencelogError) as caught:
        await start_and_read()
    assert caught.value.code in (ErrorCode.CORRUPT, ErrorCode.STORAGE_FAILED)


async def test_an_index_older_than_the_checkpoint_is_refused(
    data: Path, open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    shutil.copytree(data / "index", tmp_path / "older")
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 10))
    await bookie.close()
    shutil.rmtree(data / "index")
    shutil.copytree(tmp_path / "older", data / "index")
    with pytest.raises(FencelogError, match="older"):
        await open_bookie()


async def test_a_journal_that_lost_what_the_index_says_was_synced_is_refused(
    data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    checkpoint = (data / "checkpoint").read_bytes()
    journals = {path: path.read_bytes() for path in (data / "journal").iterdir()}
    bookie = await open_bookie()
    await requests.add(bookie, requests.run(1, 10))
    await bookie.close()
    for path in (data / "journal").iterdir():
        path.unlink()
    for path, content in journals.items():
        path.write_bytes(content)
    (data / "checkpoint").write_bytes(checkpoint)
    with pytest.raises(FencelogError, match="had been synced"):
        await open_bookie()


async def test_a_directory_whose_making_was_cut_short_is_made_again(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencelog.bookie.storage.shard_directory import ShardDirectory

    def fail(*_args: object) -> None:
        raise OSError("power failure")

    with monkeypatch.context() as patch:
        patch.setattr(ShardDirectory, "write_checkpoint", fail)
        with pytest.raises(FencelogError, match="power failure"):
            await open_bookie()
    bookie = await open_bookie()
    assert await requests.add(bookie, requests.run(1, 0)) is None


@pytest.mark.parametrize("size", [0, 200_000])
async def test_a_journal_file_that_lost_all_it_held_is_refused(
    size: int, open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    """The checkpoint names it, so it was born, much as it looks like one that never was."""
    bookie = await open_bookie()
    await requests.until(lambda: b'"file_id": 2' in (tmp_path / "data/checkpoint").read_bytes())
    await requests.until(lambda: bookie.shards[0].flusher._begun is None)  # the old file is away
    assert await requests.add(bookie, requests.run(1, 0, 5)) is None
    killed = shutil.copytree(tmp_path / "data", tmp_path / "killed")
    only(killed, "journal/*.journal").write_bytes(bytes(size))
    with pytest.raises(FencelogError, match="header is damaged") as caught:
        await open_bookie(data_dir=killed)
    assert caught.value.code is ErrorCode.CORRUPT


async def test_a_journal_file_cut_off_before_the_checkpoint_is_refused(
    data: Path, open_bookie: OpenBookie, requests: Requests
) -> None:
    path = only(data, "journal/*.journal")
    path.write_bytes(path.read_bytes()[:700_000])
    with pytest.raises(FencelogError, match="cut off") as caught:
        await open_bookie()
    assert caught.value.code is ErrorCode.CORRUPT
