"""``host:port``."""

from __future__ import annotations

import pytest

from fencelog.api.http.addresses import BOOKIE_RISK, check_listener, format_address, parse_address
from fencelog.ledgers.errors import ErrorCode, FencelogError


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_addresses_are_read_and_written(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed
    assert format_address(*parsed) == text


@pytest.mark.parametrize("text", ["", "8080", ":8080", "host:", "host:x", "host:65536", "::1:80"])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(FencelogError, match="is no HOST:PORT") as raised:
        parse_address(text)
    assert raised.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"])
def test_loopback_needs_no_consent(address: str) -> None:
    check_listener(address, insecure=False)


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example:1"])
def test_what_others_reach_needs_consent(address: str) -> None:
    check_listener(address, insecure=True)
    with pytest.raises(FencelogError, match="--insecure") as raised:
        check_listener(address, insecure=False)
    assert raised.value.code is ErrorCode.BAD_REQUEST
    with pytest.raises(FencelogError, match="without --secret-file it asks"):
        check_listener(address, insecure=False, risk=BOOKIE_RISK)
