"""Protection against web pages: which hosts a browser may know this server by, and which pages may
ask it.

A page that its reader only visits can have the reader's browser send requests anywhere, also to
this server. Browsers say so (``Origin``, ``Sec-Fetch-Site``), unless the page's own name leads here
(DNS rebinding); then the name (``Host``) is none of this server's. Other clients send neither, and
nothing is asked of them but a name that is known.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from fencelog.ledgers.errors import ErrorCode, FencelogError

ANY = "*"

ORIGIN_HEADERS = frozenset((b"origin", b"sec-fetch-site", b"sec-fetch-mode"))
"""The headers by which browsers say which page sends a request."""

MAX_REMEMBERED_HOSTS = 1024
"""The limit of remembered ``Host`` headers: one server has few names, with and without ports."""

_PREFLIGHT_S = 600
"""The time for which a browser remembers what a page may do."""

_EXPOSED = (b"access-control-expose-headers", b"*")
_VARY = (b"vary", b"origin")
_READING = (b"GET", b"HEAD")
_OTHER_PAGES = (b"cross-site", b"same-site")
_NAVIGATE = b"navigate"
_MAX_SHOWN = 80

Headers = list[tuple[bytes, bytes]]


class Origins:
    """The names of a server, and the origins of other pages that may use it.

    ``hosts``: names beside ``localhost`` and addresses, which no other page can have; ``.NAME``
    stands for all names below it. ``allowed``: origins, ``https://NAME``. ``*`` in either means
    all.
    """

    def __init__(self, hosts: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        names = {host.lower() for host in hosts}
        self._any_host = ANY in names
        self._names = {"localhost"} | {name for name in names if not name.startswith(".")}
        self._suffixes = (".localhost", *(name for name in names if name.startswith(".")))
        self._allowed = {origin.lower().rstrip("/").encode() for origin in allowed}
        self._known: set[bytes] = set()

    def refusal(self, method: bytes, given: Mapping[bytes, bytes]) -> FencelogError | None:
        """Return why a request with these headers is refused, or None."""
        host = given.get(b"host", b"")
        if host not in self._known and not self._learn(host):
            return FencelogError(
                ErrorCode.UNKNOWN_HOST,
                f"this server is not known as {_shown(host)}; --allow-host adds names",
            )
        origin = given.get(b"origin")
        if origin is not None:
            if self.allows(origin) or _is_same(origin, host):
                return None
        elif given.get(b"sec-fetch-site") not in _OTHER_PAGES:
            return None
        elif method in _READING and given.get(b"sec-fetch-mode") == _NAVIGATE:
            return None  # A link that was followed: the other page does not see the answer.
        return _foreign("another origin" if origin is None else _shown(origin))

    def check_navigation(self, site: bytes | None, mode: bytes | None) -> None:
        """Refuse a link that another page had followed (``Sec-Fetch-Site``, ``Sec-Fetch-Mode``) to
        where reading alone takes something. Raises FencelogError(CROSS_ORIGIN)."""
        if mode == _NAVIGATE and site in _OTHER_PAGES and ANY.encode() not in self._allowed:
            raise _foreign("another origin")

    def allows(self, origin: bytes) -> bool:
        """Tell whether pages of this origin may use the server and see its answers."""
        return ANY.encode() in self._allowed or origin.lower() in self._allowed

    def answer_headers(self, origin: bytes | None) -> Headers:
        """Return the headers that let a browser show the answer to the page that asked."""
        if origin is None or not self.allows(origin):
            return []
        return [(b"access-control-allow-origin", origin), _EXPOSED, _VARY]

    def preflight(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Return what answers a browser that asks on behalf of a page: none if that is not so, or
        not allowed. The answer's ``Allow`` tells the methods."""
        asked = dict(headers)
        origin, method = asked.get(b"origin"), asked.get(b"access-control-request-method")
        if origin is None or method is None or not self.allows(origin):
            return []
        answer = [
            (b"access-control-allow-methods", method),
            (b"access-control-max-age", b"%d" % _PREFLIGHT_S),
        ]
        wanted = asked.get(b"access-control-request-headers")
        if wanted is not None:
            answer.append((b"access-control-allow-headers", wanted))
        if asked.get(b"access-control-request-private-network") == b"true":
            answer.append((b"access-control-allow-private-network", b"true"))
        return answer

    def _learn(self, host: bytes) -> bool:
        if not (self._any_host or self._is_own(host)):
            return False
        if len(self._known) >= MAX_REMEMBERED_HOSTS:
            self._known.clear()
        self._known.add(host)
        return True

    def _is_own(self, host: bytes) -> bool:
        name = _name_of(host)
        return not name or name in self._names or name.endswith(self._suffixes) or _is_address(name)


def check_origin(origin: str) -> str:
    """Return an origin that may be allowed. Raises FencelogError(BAD_REQUEST)."""
    parts = urlsplit(origin)
    is_origin = parts.scheme and parts.netloc and f"{parts.scheme}://{parts.netloc}" == origin
    if origin not in (ANY, "null") and not is_origin:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"{origin!r} is no origin, for example https://console.example"
        )
    return origin


def _foreign(page: str) -> FencelogError:
    return FencelogError(
        ErrorCode.CROSS_ORIGIN, f"a page of {page} may not use this server; see --allow-origin"
    )


def _name_of(host: bytes) -> str:
    """Return the name or address in a Host header, without port and brackets."""
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same(origin: bytes, host: bytes) -> bool:
    """Tell whether a page comes from the server that it asks. A proxy may have taken off TLS, so
    that the scheme does not matter."""
    return origin.partition(b"://")[2].lower() == host.lower() != b""


def _shown(given: bytes) -> str:
    return repr(given[:_MAX_SHOWN].decode("latin-1"))
