"""The HTTP client of tests, which waits for a loaded machine."""

from __future__ import annotations

import ssl
from functools import cache

import httpx

TIMEOUT_S = 60.0
"""The usual 5 s are a bare time: a disk that is busy with other work takes longer to sync what a
new topic needs."""


def http_client(base_url: str = "") -> httpx.AsyncClient:
    """Return a client for paths below ``base_url``, which heeds no proxy of the environment."""
    return httpx.AsyncClient(
        base_url=base_url, trust_env=False, timeout=TIMEOUT_S, verify=plain_http()
    )


@cache
def plain_http() -> ssl.SSLContext:
    """Return a context that trusts nobody. A client which is given none reads all authorities of
    the machine, which takes longer than most tests do."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
