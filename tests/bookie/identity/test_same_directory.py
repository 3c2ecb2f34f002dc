"""One directory given twice, by two names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.bookie_stage import BookieSettings, OpenBookie


@pytest.mark.parametrize(("journals", "ledgers"), [(["a"], ["b"]), ([], ["a", "b"])])
async def test_a_directory_that_has_two_names_is_refused_before_anything_is_in_it(
    open_bookie: OpenBookie, tmp_path: Path, journals: list[str], ledgers: list[str]
) -> None:
    """Each mark would take the other's place, and no later start would go on with the data."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    settings: BookieSettings = {
        "journal_dirs": tuple(tmp_path / name for name in journals),
        "ledger_dirs": tuple(tmp_path / name for name in ledgers),
    }
    with pytest.raises(FencelogError, match="is the same directory as") as caught:
        await open_bookie(**settings)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    (tmp_path / "b").unlink()
    await (await open_bookie(**settings)).close()
    await open_bookie(**settings)
