"""Files of every format that a bookie writes, kept: they mean what they meant, byte by byte."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.disk.rocks_store import RocksStore
from fencelog.bookie.format.ledger_state import BookieLedgerState
from fencelog.bookie.format.records import FILE_HEADER_BYTES, FileHeader, decode_file_header
from fencelog.bookie.identity.cookies import (
    Cookie,
    Identity,
    Kind,
    Mark,
    State,
    decode_cookie,
    decode_identity,
    decode_mark,
)
from fencelog.bookie.journal.file import JournalPosition
from fencelog.bookie.journal.replay import JournalReplay
from fencelog.bookie.offline.inspect_index import index_runs
from fencelog.bookie.offline.inspect_records import describe
from fencelog.bookie.storage.entry_log import EntryLogReader, StoredRun, decode_footer, records_end
from fencelog.bookie.storage.index import Index
from fencelog.bookie.storage.shard_directory import ShardDirectory, ShardPaths
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.format.run import verify_entries

GOLDEN = Path(__file__).parent / "golden"
INCARNATION = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
SALT = bytes.fromhex("101112131415161718191a1b1c1d1e1f")


def make() -> ModuleType:
    spec = spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_written_today_is_what_was_written() -> None:
    made = make().contents()
    kept = {path.name: path.read_bytes() for path in GOLDEN.iterdir() if path.is_file()}
    kept.pop("make.py")
    assert made == kept


def copied(directory: Path, pattern: str) -> Path:
    for path in GOLDEN.glob(pattern):
        (directory / path.name).write_bytes(path.read_bytes())
    return directory


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0000000000000001.journal", FileHeader(b"FLJN", 1, 1, INCARNATION, SALT, 4096)),
        ("0000000000000002.journal", FileHeader(b"FLJN", 2, 9, INCARNATION, SALT[::-1], 0)),
        ("0000000000000001.entrylog", FileHeader(b"FLEL", 1, 1, INCARNATION, SALT, 0)),
        ("0000000000000002.entrylog", FileHeader(b"FLEL", 2, 1, INCARNATION, SALT[::-1], 0)),
    ],
)
def test_file_headers(name: str, expected: FileHeader) -> None:
    assert decode_file_header((GOLDEN / name).read_bytes()) == expected


def test_a_journal_of_two_files_with_a_torn_tail(tmp_path: Path) -> None:
    start = JournalPosition(1, 1, FILE_HEADER_BYTES)
    replay = JournalReplay(
        PosixDisk(), copied(tmp_path, "*.journal"), start=start, incarnation=INCARNATION
    )
    found = replay.next_records(1 << 20)
    replay.close()
    assert [describe(record) for record, _end in found] == [
        {"record": 1, "type": "RUN", "ledger": 7, "first": 3, "last": 4, "bytes": 152},
        {"record": 2, "type": "FENCE", "ledger": 7, "bytes": 8},
        {"record": 3, "type": "LAC", "ledger": 7, "lac": 4, "bytes": 16},
        {"record": 4, "type": "LIMBO", "ledger": 9, "bytes": 8},
        {"record": 5, "type": "LIMBO_CLEARED", "ledger": 9, "bytes": 8},
        {"record": 6, "type": "DELETED", "ledger": 10, "bytes": 8},
        {"record": 7, "type": "DROPPED", "ledger": 11, "bytes": 8},
        {"record": 8, "type": "REPLACEMENT", "ledger": 8, "first": 0, "last": 0, "bytes": 96},
        {"record": 9, "type": "FENCE", "ledger": 8, "bytes": 8},
    ]
    assert [record.durable for record, _end in found] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert replay.position == JournalPosition(10, 2, 104)
    entries = verify_entries(found[0][0].body)
    assert [(e.entry_id, e.lac, e.length, bytes(e.payload)) for e in entries] == [
        (3, 2, 15, b"three"),
        (4, 2, 19, b"four"),
    ]


def test_entry_logs_sealed_and_not() -> None:
    reader = EntryLogReader(PosixDisk(), GOLDEN, incarnation=INCARNATION)
    for run in (StoredRun(7, 3, 4, 1, 96, 152), StoredRun(8, 0, 0, 2, 96, 96)):
        assert len(reader.read(run)) == run.size
    reader.close()
    disk = PosixDisk()
    for name, footer, end in (
        ("0000000000000001.entrylog", {7: 184, 8: 128}, 376),
        ("0000000000000002.entrylog", None, 326),
    ):
        file = disk.open(GOLDEN / name)
        header = decode_file_header(file.read(0, FILE_HEADER_BYTES))
        assert header is not None
        assert decode_footer(file, seed=header.seed) == footer
        assert records_end(file) == end
        file.close()


def test_the_items_of_an_index(tmp_path: Path) -> None:
    lines = (GOLDEN / "index.txt").read_text().splitlines()
    items = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in map(str.split, lines)]
    store = RocksStore(tmp_path / "index", create=True)
    store.write(items)
    index = Index(store)
    assert index.mark() == 17
    assert list(index_runs(store)) == [
        StoredRun(7, 3, 4, 1, 96, 152),
        StoredRun(8, 0, 0, 2, 96, 96),
    ]
    states = {ledger_id: state.encode() for ledger_id, state in index.states()}
    assert states == {
        7: BookieLedgerState(last_entry=4, lac=2).encode(),
        8: BookieLedgerState(fenced=True, last_entry=0).encode(),
        9: BookieLedgerState(fenced=True, limbo=True).encode(),
        10: BookieLedgerState(fenced=True, deleted=True).encode(),
    }
    assert states[9].hex() == "0103000000000000" + "ff" * 16
    index.close()


def test_a_checkpoint() -> None:
    shard = ShardDirectory(PosixDisk(), ShardPaths(GOLDEN, GOLDEN))
    assert shard.read_checkpoint() == JournalPosition(sequence=17, file_id=2, offset=64)


def test_identity_and_cookies() -> None:
    cookie = Cookie(
        bookie_id="bookie-1",
        instance="11111111111111111111111111111111",
        incarnation="22222222222222222222222222222222",
        directory="000102030405060708090a0b0c0d0e0f",
        journals=("33333333333333333333333333333333",),
        ledgers=("44444444444444444444444444444444", "55555555555555555555555555555555"),
    )
    identity = Identity(cookie, State.FORGOT, "66666666666666666666666666666666")
    mark = Mark("bookie-1", (Kind.LEDGER, 1), "55555555555555555555555555555555", is_made=True)
    assert decode_identity(GOLDEN, (GOLDEN / "identity").read_bytes()) == identity
    assert decode_mark(GOLDEN, (GOLDEN / "cookie").read_bytes()) == mark
    assert decode_cookie("", (GOLDEN / "cookie.json").read_bytes()) == cookie


def test_a_list_of_entries() -> None:
    data = (GOLDEN / "entries.bp34").read_bytes()
    assert data.hex() == (
        "0000000000000002" + "00" * 56
        + "00000000000000000000000000000006" + "0000000100000003"
        + "000000000000000a000000000000000a" + "0000000a00000000"
    )  # fmt: skip
    found = Availability.decode(data)
    assert found == Availability.of([(0, 0), (3, 3), (6, 6), (10, 19)])
