"""Damage anywhere: the right bytes or an error, never "not there" for what was acknowledged.

Every bit of headers and small files, a bit of every byte of bodies, every length that a file can be
cut off to. Each file is read with the code that a start and a read use for it, without the rest;
with the rest, a whole bookie is started on samples. Of RocksDB's files only every few bytes are
tried, for opening them takes some ms.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from random import Random  # noqa: TID251 - seeded, so that a failure can be repeated

import pytest

from fencelog.bookie import config
from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.engine.bookie import Bookie
from fencelog.bookie.identity.cookies import Kind, Mark, decode_mark, encode_mark
from fencelog.bookie.offline.inspect_disk import ReadOnlyStore
from fencelog.bookie.offline.inspect_entry_log import inspect_entry_logs
from fencelog.bookie.offline.inspect_index import index_runs
from fencelog.bookie.offline.inspect_journal import journal_records
from fencelog.bookie.storage.entry_log import EntryLogReader
from fencelog.bookie.storage.index import Index
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import verify_entries
from tests.support.bookie_stage import OpenBookie, Requests
from tests.support.offline_data import ENTRIES, make_data, opened, problems

HEADER_BYTES = 64
DENIALS = {ErrorCode.NO_SUCH_ENTRY, ErrorCode.NO_SUCH_LEDGER}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where ``data`` is made once."""
    return tmp_path_factory.mktemp("master") / "data"


@pytest.fixture
async def data(open_bookie: OpenBookie, requests: Requests, tmp_path: Path, master: Path) -> Path:
    if not master.exists():
        await make_data(open_bookie, requests, tmp_path / "data", master)
    return Path(shutil.copytree(master, tmp_path / "killed"))


def flipped(whole: bytes, *, stride: int = 1, bits_of: int = HEADER_BYTES) -> Iterator[bytes]:
    """The file with one bit changed: every bit of the first bytes, one of every further byte."""
    content = bytearray(whole)
    for at in range(0, len(whole), stride):
        for bit in range(8) if at < bits_of else (at % 8,):
            content[at] ^= 1 << bit
            yield bytes(content)
            content[at] ^= 1 << bit


def cut(whole: bytes, *, stride: int = 1) -> Iterator[bytes]:
    return (whole[:size] for size in range(0, len(whole), stride))


def damages(path: Path, **how: int) -> Iterator[bytes]:
    """Each damage, which is in the file while it is handled; at the end the file is whole."""
    whole = path.read_bytes()
    for damaged in (*flipped(whole, **how), *cut(whole, stride=how.get("stride", 1))):
        path.write_bytes(damaged)
        yield damaged
    path.write_bytes(whole)


@pytest.mark.parametrize("name", ["identity", "checkpoint"])
def test_a_small_file_is_right_or_refused(name: str, data: Path) -> None:
    with opened(data) as found:
        for _damage in damages(data / name, bits_of=1 << 20):
            with pytest.raises(FencelogError) as caught:
                found.identity() if name == "identity" else found.shards[0].read_checkpoint()
            assert caught.value.code in (ErrorCode.CORRUPT, ErrorCode.UNSUPPORTED_VERSION)
            assert str(data / name) in caught.value.detail


def test_the_cookie_of_a_directory_is_right_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "cookie"
    path.write_bytes(encode_mark(Mark("b1", (Kind.LEDGER, 1), "00" * 16, is_made=True)))
    for damaged in damages(path, bits_of=1 << 20):
        with pytest.raises(FencelogError, match="cookie"):
            decode_mark(path, damaged)


@pytest.mark.parametrize("file_id", [1, 2])
def test_an_entry_log_gives_the_right_bytes_or_an_error(file_id: int, data: Path) -> None:
    """Footer and record headers are damaged too: reads do not go by them."""
    path = data / f"entrylog/{file_id:016x}.entrylog"
    with opened(data) as found:
        store = found.disk.open_store(data / "index", create=False)
        runs = [run for run in index_runs(store) if run.file_id == file_id]
        store.close()
        incarnation = found.identity().directory_bytes
        whole = path.read_bytes()
        errors: list[FencelogError] = []
        for _damage in damages(path):
            reader = EntryLogReader(PosixDisk(), path.parent, incarnation=incarnation)
            for run in runs:
                try:
                    assert reader.read(run) == whole[run.offset : run.offset + run.size]
                except FencelogError as error:
                    errors.append(error)
            reader.close()
        assert {error.code for error in errors} == {ErrorCode.CORRUPT}
        assert all(path.name in error.detail for error in errors)
        assert len(errors) > sum(run.size for run in runs)


def test_what_an_entry_log_is_said_to_hold_is_there(data: Path) -> None:
    """Tools go by records and footers: they must not make sense of what is damaged."""
    with opened(data) as found:
        (shard,) = found.shards
        path = data / "entrylog/0000000000000001.entrylog"
        true = list(inspect_entry_logs(found.disk, shard, path))
        for _damage in damages(path, stride=3):
            for item in inspect_entry_logs(found.disk, shard, path):
                assert item in true or item.get("valid") == "no" or "file" in item


def test_a_journal_is_right_or_refused(data: Path) -> None:
    """The last group is the exception, which nothing shows to have been synced: here it is a
    fence."""
    (path,) = data.glob("journal/*.journal")
    with opened(data) as found:
        (shard,) = found.shards
        incarnation = found.identity().directory_bytes

        def records() -> list[bytes]:
            replayed = journal_records(found.disk, shard, incarnation)
            return [record.body for _at, record in replayed if record is not None]

        true = records()
        whole = path.read_bytes()
        end = len(whole.rstrip(b"\0")) + 16
        lost, cuts = 0, [*range(end), *range(end, len(whole), 100)]
        refusals: list[str] = []
        flips = (part + whole[end:] for part in flipped(whole[:end]))
        for damaged in chain(flips, (whole[:size] for size in cuts)):
            path.write_bytes(damaged)
            try:
                read = records()
            except FencelogError as error:
                refusals.append(error.detail)
            else:
                assert read in (true, true[:-1])
                lost += read != true
        assert len(true) == 3
        assert all(path.name in refusal for refusal in refusals)
        assert len(refusals) > len(cuts)  # each of them, and most flipped bits
        assert 0 < lost <= 40  # a bit of each byte of the last record


@pytest.mark.parametrize("name", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_an_index_is_right_or_refused(name: str, data: Path) -> None:
    with opened(data) as found:
        checkpoint = found.shards[0].read_checkpoint().sequence

    def items() -> list[tuple[bytes, bytes]] | None:
        with suppress(OSError, FencelogError):
            store = ReadOnlyStore(data / "index")
            try:
                if Index(store).mark() >= checkpoint:
                    return list(store.scan(b"", b"\xff"))
            finally:
                store.close()
        return None

    true = items()
    outcomes = set()
    for path in (data / "index").glob(name):
        size = path.stat().st_size
        for _damage in damages(path, stride=max(1, size // 40), bits_of=0):
            found_items = items()
            assert found_items in (true, None)
            outcomes.add(found_items is None)
    assert True in outcomes


async def test_a_bookie_on_any_damage_denies_nothing(
    data: Path,
    open_bookie: OpenBookie,
    requests: Requests,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Samples of everything above, and of the files that nobody thought of."""
    monkeypatch.setattr(config, "_SMALLEST_FILE_BYTES", 8192)
    random = Random(4)
    expected = {i: requests.run(i, first, count) for i, (first, count) in ENTRIES.items()}
    files = [path.relative_to(data) for path in sorted(data.rglob("*")) if path.is_file()]
    answered = 0
    refusals: list[ErrorCode] = []
    unseen: list[str] = []
    for number in range(100):
        copy = Path(shutil.copytree(data, tmp_path / "copy"))
        path = copy / files[number % len(files)]
        damage(path, random)
        found = problems(copy)
        try:
            bookie = await open_bookie(data_dir=copy, journal_file_bytes=8192)
        except FencelogError as error:
            refusals.append(error.code)
            unseen += [] if found else [f"{path}: {error.detail}"]
        else:
            for ledger_id, (first, count) in ENTRIES.items():
                run = expected[ledger_id]
                errors = await check_reads(bookie, requests, ledger_id, first, count, run)
                unseen += [] if found else errors
            answered += 1
            await bookie.close()
        shutil.rmtree(copy)
    assert not DENIALS & set(refusals)
    assert unseen == []  # what stops a start or a read, ``verify`` had found
    assert len(refusals) > 10
    assert answered > 10


def damage(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    at = random.randrange(len(content) or 1)
    match random.randrange(3):
        case 0 if content:
            content[at] ^= 1 << random.randrange(8)
        case 1:
            del content[at:]
        case _:
            content[at : at + 16] = random.randbytes(16)
    path.write_bytes(content)


async def check_reads(
    bookie: Bookie, requests: Requests, ledger_id: int, first: int, count: int, expected: bytes
) -> list[str]:
    """Return what was said instead of entries."""
    errors: list[str] = []
    payloads = [bytes(entry.payload) for entry in verify_entries(expected)]
    for number in range(count):
        try:
            run = await requests.read(bookie, ledger_id, first + number, 1)
        except FencelogError as error:
            if error.code in DENIALS:
                raise
            errors.append(error.detail)
            continue
        (entry,) = verify_entries(run)
        assert bytes(entry.payload) == payloads[number]
    return errors
