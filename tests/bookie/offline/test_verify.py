"""``verify`` names whatever is wrong, and leaves everything as it was, to the byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fencelog.bookie.disk.rocks_store import RocksStore
from fencelog.bookie.format.ledger_state import BookieLedgerState
from fencelog.bookie.offline.inspect_entry_log import inspect_entry_logs
from fencelog.bookie.offline.inspect_index import inspect_index
from fencelog.bookie.offline.inspect_journal import inspect_journal
from fencelog.bookie.offline.inspect_ledger import inspect_ledger
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import BookieSettings, OpenBookie, Requests
from tests.support.offline_data import make_data, opened, problems


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where ``data`` is made once."""
    return tmp_path_factory.mktemp("master") / "data"


@pytest.fixture
async def data(open_bookie: OpenBookie, requests: Requests, tmp_path: Path, master: Path) -> Path:
    if not master.exists():
        await make_data(open_bookie, requests, tmp_path / "data", master)
    return Path(shutil.copytree(master, tmp_path / "killed"))


def snapshot(data: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of the last change of every file, and what directories there are."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in sorted(data.rglob("*"))
    }


def test_nothing_is_found_in_whole_data_and_not_a_byte_is_changed(data: Path) -> None:
    before = snapshot(data)
    assert problems(data) == []
    with opened(data) as found:
        (shard,) = found.shards
        incarnation = found.identity().directory_bytes
        list(inspect_journal(found.disk, shard, incarnation))
        list(inspect_entry_logs(found.disk, shard))
        list(inspect_ledger(found.disk, shard, incarnation, 1))
        store = found.disk.open_store(shard.paths.index, create=False)
        list(inspect_index(store))
        store.close()
    assert snapshot(data) == before


def flip(pattern: str, offset: int) -> Callable[[Path], None]:
    def damage(data: Path) -> None:
        path = sorted(data.glob(pattern))[0]
        content = bytearray(path.read_bytes())
        content[offset] ^= 0x40
        path.write_bytes(content)

    return damage


def cut(pattern: str, size: int) -> Callable[[Path], None]:
    def damage(data: Path) -> None:
        path = sorted(data.glob(pattern))[0]
        path.write_bytes(path.read_bytes()[:size])

    return damage


def remove(pattern: str) -> Callable[[Path], None]:
    def damage(data: Path) -> None:
        for path in data.glob(pattern):
            path.unlink()

    return damage


FIRST_LOG = "entrylog/0000000000000001.entrylog"
LAST_LOG = "entrylog/0000000000000002.entrylog"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flip(FIRST_LOG, 10), [f"{FIRST_LOG} at offset 0: entry log header is damaged"]),
        (flip(FIRST_LOG, 80), [f"{FIRST_LOG} at offset 64: damaged up to offset 912"]),
        (flip(FIRST_LOG, 500), [f"{FIRST_LOG} at offset 96: ", "offset 64: damaged up to"]),
        (flip(FIRST_LOG, -40), [f"{FIRST_LOG} at offset 1448: footer is damaged"]),
        (flip(FIRST_LOG, -4), [f"{FIRST_LOG} at offset 1448: footer is damaged"]),
        (cut(FIRST_LOG, 1000), [f"{FIRST_LOG} at offset 944: (ledger 2, entries 0..2)"]),
        (remove(FIRST_LOG), [f"{FIRST_LOG} at offset 96: ", "No such file"]),
        (flip(LAST_LOG, 300), [f"{LAST_LOG} at offset 96: (ledger 1, entries 5..9)"]),
        (flip("journal/*.journal", 100), ["journal at offset 64: journal record"]),
        (flip("journal/*.journal", 8), ["journal at offset 0: journal file header is damaged"]),
        (cut("journal/*.journal", 4096), ["journal at offset 4096: journal file is cut off"]),
        (remove("journal/*.journal"), ["journal at offset 0: journal file is missing"]),
        (flip("checkpoint", 20), ["checkpoint: is damaged"]),
        (remove("checkpoint"), ["checkpoint: is missing"]),
        (flip("identity", 30), ["identity: is damaged"]),
        (remove("identity"), ["identity is missing"]),
        (flip("index/*.sst", 20), ["index: "]),
        (remove("index/CURRENT"), ["index: "]),
    ],
    ids=lambda value: "" if callable(value) else value[0][:60],
)
def test_what_is_damaged_is_named(
    damage: Callable[[Path], None], words: list[str], data: Path
) -> None:
    damage(data)
    before = snapshot(data)
    found = "\n".join(problems(data))
    for word in words:
        assert word in found
    assert snapshot(data) == before


def write(data: Path, items: dict[bytes, bytes]) -> None:
    store = RocksStore(data / "index", create=False)
    store.write(items.items())
    store.close()


def key(letter: bytes, *numbers: int) -> bytes:
    return letter + b"".join(number.to_bytes(8, "big") for number in numbers)


def value(file_id: int, offset: int, size: int, count: int) -> bytes:
    numbers = ((file_id, 8), (offset, 8), (size, 4), (count, 4))
    return b"".join(number.to_bytes(width, "little") for number, width in numbers)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ({key(b"R", 1, 6): value(2, 96, 100, 3)}, "run 4..6 of ledger 1 overlaps the one before"),
        ({key(b"R", 1, 12): value(2, 96, 100, 14)}, "run -1..12 of ledger 1 is none"),
        ({key(b"R", 8, 1): value(2, 96, 100, 1)}, "ledger 8 has runs and no state"),
        ({key(b"R", 2, 7): value(2, 96, 816, 5)}, "ledger 2 ends with 2, its runs with 7"),
        ({key(b"R", 2, 7): value(2, 96, 816, 5)}, "offset 96: (ledger 2, entries 3..7): holds"),
        (
            {key(b"L", 1): BookieLedgerState(True, deleted=True).encode()},
            "ledger 1 is deleted and has",
        ),
        ({key(b"L", 1): b"?"}, "state of ledger 1 is not valid"),
        ({b"R1": b"?"}, "is no run"),
        ({b"Z": b"?"}, "5a -> 3f means nothing"),
        ({b"A": b"?"}, "41 -> 3f means nothing"),
        ({b"M": bytes([1]) + bytes(7) + (2).to_bytes(8, "little")}, "has the records before 2"),
        ({b"M": bytes([1]) + bytes(7) + (99).to_bytes(8, "little")}, "up to 99 had been synced"),
        ({b"M": b""}, "index has no valid mark"),
    ],
)
def test_an_index_that_makes_no_sense_is_named(
    items: dict[bytes, bytes], words: str, data: Path
) -> None:
    write(data, items)
    assert words in "\n".join(problems(data))


async def test_a_ledger_in_the_shard_of_others_is_named(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    settings: BookieSettings = {"ledger_dirs": (tmp_path / "a", tmp_path / "b")}
    bookie = await open_bookie(**settings)
    await requests.add(bookie, requests.run(2, 0))
    await bookie.close()
    assert problems(tmp_path / "data", **settings) == []
    store = RocksStore(tmp_path / "b/shard-01/index", create=False)
    store.write({key(b"L", 2): BookieLedgerState().encode()}.items())
    store.close()
    (found,) = problems(tmp_path / "data", **settings)
    assert found.endswith("b/shard-01/index: ledger 2 does not belong to shard 1")


def test_the_cookies_of_directories_are_looked_at(data: Path, tmp_path: Path) -> None:
    with pytest.raises(FencelogError, match="was made with no --ledger-dir") as caught:
        problems(data, ledger_dirs=(tmp_path / "other",))
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_a_directory_with_another_cookie_is_named(
    open_bookie: OpenBookie, tmp_path: Path
) -> None:
    settings: BookieSettings = {"ledger_dirs": (tmp_path / "a", tmp_path / "b")}
    bookie = await open_bookie(**settings)
    with pytest.raises(FencelogError) as caught:
        problems(tmp_path / "data", **settings)
    assert caught.value.code is ErrorCode.DATA_DIRECTORY_IN_USE
    await bookie.close()
    assert problems(tmp_path / "data", **settings) == []
    shutil.copy(tmp_path / "a/cookie", tmp_path / "b/cookie")
    (found,) = problems(tmp_path / "data", **settings)
    assert found.startswith(f"{tmp_path}/b/cookie: is Mark(")
    (tmp_path / "b/cookie").unlink()
    assert problems(tmp_path / "data", **settings) == [f"{tmp_path}/b/cookie: is missing"]


def test_no_directory_is_made_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(FencelogError, match="no data directory"):
        problems(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
