"""The files beside this one, made anew: ``python tests/bookie/golden/make.py``.

They are what this version of the formats looks like on disk. Who changes a format gives it a new
version and adds files; these stay, and stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.format.control_records import lac_body, ledger_body
from fencelog.bookie.format.ledger_state import BookieLedgerState
from fencelog.bookie.format.records import (
    ENTRY_LOG_MAGIC,
    JOURNAL_MAGIC,
    FileHeader,
    RecordType,
    encode_records,
)
from fencelog.bookie.identity.cookies import (
    Cookie,
    Identity,
    Kind,
    Mark,
    State,
    encode_cookie,
    encode_identity,
    encode_mark,
)
from fencelog.bookie.journal.file import JournalPosition
from fencelog.bookie.storage.entry_log import StoredRun, encode_footer
from fencelog.bookie.storage.index import Index
from fencelog.bookie.storage.shard_directory import ShardDirectory, ShardPaths
from fencelog.ledgers.format.availability import Availability
from fencelog.ledgers.format.run import build_run

HERE = Path(__file__).parent

INCARNATION = bytes(range(16))
SALT = bytes(range(16, 32))
RUN = build_run(7, 3, [b"three", b"four"], lac=2, length_before=10)
OTHER_RUN = build_run(8, 0, [b"zero"], lac=-1, length_before=0)
COOKIE = Cookie(
    bookie_id="bookie-1",
    instance="11" * 16,
    incarnation="22" * 16,
    directory=INCARNATION.hex(),
    journals=("33" * 16,),
    ledgers=("44" * 16, "55" * 16),
)

RECORDS: list[tuple[RecordType, bytes]] = [
    (RecordType.RUN, RUN),
    (RecordType.FENCE, ledger_body(7)),
    (RecordType.LAC, lac_body(7, 4)),
    (RecordType.LIMBO, ledger_body(9)),
    (RecordType.LIMBO_CLEARED, ledger_body(9)),
    (RecordType.DELETED, ledger_body(10)),
    (RecordType.DROPPED, ledger_body(11)),
    (RecordType.REPLACEMENT, OTHER_RUN),
]
"""One of each type."""

STATES = {
    7: BookieLedgerState(last_entry=4, lac=2),
    8: BookieLedgerState(fenced=True, last_entry=0),
    9: BookieLedgerState(fenced=True, limbo=True),
    10: BookieLedgerState(fenced=True, deleted=True),
}
RUNS = [StoredRun(7, 3, 4, 1, 96, len(RUN)), StoredRun(8, 0, 0, 2, 96, len(OTHER_RUN))]


def records(
    header: FileHeader, bodies: Sequence[tuple[RecordType, bytes]], *, durable: bool
) -> bytes:
    """A file of records, each of which says, if ``durable``, that the one before it was synced."""
    parts = [header.encode()]
    for sequence, (kind, body) in enumerate(bodies, header.first_sequence):
        said = sequence - 1 if durable else 0
        record = [(kind, body)]
        parts += map(
            bytes, encode_records(record, sequence=sequence, durable=said, seed=header.seed)
        )
    return b"".join(parts)


def journals() -> Iterator[tuple[str, bytes]]:
    """Two files; the second one ends in the middle of a record."""
    first = FileHeader(JOURNAL_MAGIC, 1, 1, INCARNATION, SALT, reserved=4096)
    yield "0000000000000001.journal", records(first, RECORDS, durable=True).ljust(4096, b"\0")
    second = FileHeader(JOURNAL_MAGIC, 2, 9, INCARNATION, SALT[::-1])
    whole = records(second, [(RecordType.FENCE, ledger_body(8)), RECORDS[0]], durable=True)
    yield "0000000000000002.journal", whole[:-50]


def entry_logs() -> Iterator[tuple[str, bytes]]:
    """One that is sealed, and one that was cut off."""
    runs = [(RecordType.RUN, RUN), (RecordType.RUN, OTHER_RUN)]
    header = FileHeader(ENTRY_LOG_MAGIC, 1, 1, INCARNATION, SALT)
    log = records(header, runs, durable=False)
    sizes = {7: 32 + len(RUN), 8: 32 + len(OTHER_RUN)}
    footer = encode_footer(sizes, offset=len(log), seed=header.seed)
    yield "0000000000000001.entrylog", log + footer
    header = FileHeader(ENTRY_LOG_MAGIC, 2, 1, INCARNATION, SALT[::-1])
    yield "0000000000000002.entrylog", records(header, runs[::-1], durable=False)[:-50]


class _Items:
    """A store that remembers what was written."""

    def __init__(self) -> None:
        self.items: list[tuple[bytes, bytes]] = []

    def write(self, items: Iterable[tuple[bytes, bytes]], *, delete: object = ()) -> None:
        self.items += items


def index() -> bytes:
    """Keys and values in hexadecimal, one item a line."""
    store = _Items()
    states = [(ledger_id, state.encode()) for ledger_id, state in STATES.items()]
    Index(store).write(RUNS, states, mark=17)  # type: ignore[arg-type]  # has the methods used
    return "".join(f"{key.hex()} {value.hex()}\n" for key, value in store.items).encode()


def checkpoint() -> bytes:
    with TemporaryDirectory() as place:
        paths = ShardPaths(Path(place), Path(place))
        ShardDirectory(PosixDisk(), paths).write_checkpoint(JournalPosition(17, 2, 64))
        return paths.checkpoint.read_bytes()


def contents() -> dict[str, bytes]:
    """All files by name."""
    return {
        **dict(journals()),
        **dict(entry_logs()),
        "index.txt": index(),
        "checkpoint": checkpoint(),
        "identity": encode_identity(Identity(COOKIE, State.FORGOT, replaces="66" * 16)),
        "cookie": encode_mark(Mark("bookie-1", (Kind.LEDGER, 1), "55" * 16, is_made=True)),
        "cookie.json": encode_cookie(COOKIE),
        "entries.bp34": Availability.of([(0, 0), (3, 3), (6, 6), (10, 19)]).encode(),
    }


def main() -> None:
    for name, content in contents().items():
        (HERE / name).write_bytes(content)


if __name__ == "__main__":
    main()
