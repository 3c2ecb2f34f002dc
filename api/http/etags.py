"""Entity tags: what tells a client that it has an answer already (RFC 9110, 8.8.3 and 13.1.2)."""

from __future__ import annotations

from hashlib import blake2b

from fencelog.api.http.asgi import Exchange

_TAG_BYTES = 16


def etag_of(body: bytes) -> bytes:
    """Return the strong tag of a body."""
    return b'"%b"' % blake2b(body, digest_size=_TAG_BYTES).hexdigest().encode()


def is_current(exchange: Exchange, etag: bytes) -> bool:
    """Tell whether ``If-None-Match`` names the tag: the answer is 304 then. Weak tags, which
    proxies make when they compress, count as the strong ones."""
    named = exchange.header(b"if-none-match") or b""
    tags = (each.strip().removeprefix(b"W/") for each in named.split(b","))
    return any(each in (etag, b"*") for each in tags)
