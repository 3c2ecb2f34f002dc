"""Who may reach a bookie: this machine, who knows the secret, or anybody if that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.api.processes.bookie_main import BookieProcessConfig, bookie_process
from fencelog.bookie.config import BookieConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError


def config(place: Path, *, secret: bool = False, insecure: bool = False) -> BookieProcessConfig:
    secret_file = place / "secret"
    secret_file.write_text("0123456789abcdef", "ascii")
    return BookieProcessConfig(
        "memory:",
        BookieConfig(place / "bookie"),
        listen="0.0.0.0:0",
        advertise="127.0.0.1:1",
        secret_file=secret_file if secret else None,
        insecure=insecure,
    )


async def test_without_a_secret_it_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(FencelogError, match="say --insecure") as raised:
        async with bookie_process(config(tmp_path)):
            pass
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert not (tmp_path / "bookie").exists()


@pytest.mark.parametrize(("secret", "insecure"), [(True, False), (False, True)])
async def test_with_a_secret_or_consent_it_serves(
    secret: bool, insecure: bool, tmp_path: Path
) -> None:
    async with bookie_process(config(tmp_path, secret=secret, insecure=insecure)) as running:
        assert running.announcement["role"] == "bookie"
