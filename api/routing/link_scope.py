"""The ASGI scope of a request that came over a link."""

from __future__ import annotations

from urllib.parse import unquote

from fencelog.api.http.asgi import Scope
from fencelog.api.routing.link_frames import FORWARDED, RequestHead

OVER_LINK = "fencelog.over_link"
"""The member of a scope that shows that another broker asks: any client can send the header."""


def scope_of(head: RequestHead) -> Scope:
    """Return the ASGI scope of a request that came over a link: it counts as forwarded. Raises
    ProtocolError."""
    path = head.path.decode("latin-1")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": None,
        "client": None,
        "scheme": "http",
        "root_path": "",
        "method": head.method,
        "path": unquote(path),
        "raw_path": head.path,
        "query_string": head.query,
        "headers": [*head.headers, (FORWARDED, b"1")],
        "state": {},
        OVER_LINK: True,
    }
