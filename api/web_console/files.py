"""The files of the console: an HTML page, style sheets and modules, as they are in the package.

They are sent with a policy under which the page runs these files alone, makes no script or HTML of
text (Trusted Types), and talks to this server only. A browser keeps them, and asks every time
whether they have changed: an upgraded broker shows its own console at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import NamedTuple

from fencelog.api.http.asgi import Exchange
from fencelog.api.http.etags import etag_of, is_current

CONSOLE = "/console"

_PAGE = "index.html"
_FOLDER = "static"

MEDIA_TYPES = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
"""The media types by the ends of names; a file with another end is not served."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The content security policy of every file."""

_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class ConsoleFile(NamedTuple):
    """A file of the console."""

    media_type: bytes
    body: bytes
    etag: bytes

    async def get(self, exchange: Exchange) -> None:
        """Answer 200 with the file, or 304 if the browser has it."""
        headers = [(b"etag", self.etag), *_HEADERS]
        if is_current(exchange, self.etag):
            await exchange.start(304, headers)
            await exchange.send_body(b"")
        else:
            await exchange.respond(200, self.media_type, self.body, headers)


def console_pages() -> Mapping[str, Callable[[Exchange], Awaitable[None]]]:
    """Return the handlers of GET by path."""
    pages = {f"{CONSOLE}/{name}": file.get for name, file in load_files().items()}
    page = pages.pop(f"{CONSOLE}/{_PAGE}")
    return {CONSOLE: _to_folder, f"{CONSOLE}/": page, **pages}


def load_files() -> dict[str, ConsoleFile]:
    """Read the files of the package, by name."""
    found = {}
    for file in files(__package__).joinpath(_FOLDER).iterdir():
        media_type = MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            body = file.read_bytes()
            found[file.name] = ConsoleFile(media_type, body, etag_of(body))
    return found


async def _to_folder(exchange: Exchange) -> None:
    """Send the browser to the path below which the page names its files."""
    query: bytes = exchange.scope["query_string"]
    location = b"console/" + (b"?" + query if query else b"")
    await exchange.start(308, [(b"location", location), (b"content-length", b"0")])
    await exchange.send_body(b"")
