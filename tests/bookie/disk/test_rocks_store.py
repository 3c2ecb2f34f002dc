"""RocksDB on a disk that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.bookie.disk.rocks_store import RocksStore


def test_a_store_whose_last_write_failed_closes_and_opens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk fails the flush of ``write``, and then the flush with which RocksDB closes."""
    store = RocksStore(tmp_path, create=True)
    store.write([(b"a", b"1")])
    inner = store._store

    class Full:
        """A full disk as RocksDB reports it; the store is closed then."""

        write = inner.write

        def flush(self, wait: bool) -> None:
            raise Exception("IO error: No space left on device")

        def close(self) -> None:
            inner.close()
            raise Exception("IO error: No space left on device")

    monkeypatch.setattr(store, "_store", Full())
    with pytest.raises(OSError, match="No space left"):
        store.write([(b"b", b"2")])
    store.close()
    again = RocksStore(tmp_path, create=False)
    assert again.get(b"a") == b"1"
    again.close()
