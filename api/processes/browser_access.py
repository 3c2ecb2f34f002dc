"""The options of a process that say who may use its HTTP listener."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from fencelog.api.http.addresses import parse_address
from fencelog.api.server.origins_core import Origins, check_origin


@dataclass(frozen=True, slots=True)
class BrowserAccess:
    """``insecure``: others than this machine may reach the listener. ``hosts``: further names of
    the server; ``allowed``: the origins of pages that may use it.

    Raises FencelogError(BAD_REQUEST) if one of these is no origin.
    """

    insecure: bool = False
    hosts: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for origin in self.allowed:
            check_origin(origin)

    def origins(self, listen: str, url: str) -> Origins:
        """Return what a server allows that listens here and is known by this URL. It is also known
        by the name of its machine."""
        machine = socket.gethostname()
        own = (parse_address(listen)[0], urlsplit(url).hostname or "", machine, f"{machine}.local")
        return Origins([name for name in (*own, *self.hosts) if name], self.allowed)


NO_OTHERS = BrowserAccess()
"""The access of this machine alone, by its usual names."""
