"""The addresses of ZooKeeper's servers, also while no name server answers.

A name server dies with its node, and a lookup may then take as long as the session has left: the
resolver repeats its question from the same port, and a Service of Kubernetes leads all packets of
one port to the same server, dead or not. So a lookup that is late is left behind, and what the last
one found is tried.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

LOOKUP_S = 0.3
"""The time for which a lookup is waited for where an earlier one has found addresses."""


class ServerNames:
    """The addresses that lookups have found, by name. There is one lookup of a name at a time."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}
        self._lookups: dict[str, asyncio.Task[list[str]]] = {}

    async def addresses(self, name: str) -> Sequence[str]:
        """Return the addresses of a name: those of now, or else of before. Of these another one is
        the first each time. Raises OSError, or ValueError for what cannot be a name, if there are
        none."""
        known = self._known.get(name)
        lookup = self._lookups.get(name)
        if lookup is None or lookup.done():
            lookup = asyncio.get_running_loop().create_task(self._look_up(name))
            lookup.add_done_callback(_is_seen)
            self._lookups[name] = lookup
        if known is None:
            return await asyncio.shield(lookup)
        await asyncio.wait((lookup,), timeout=LOOKUP_S)
        if lookup.done() and lookup.exception() is None:
            return lookup.result()
        known.append(known.pop(0))
        return list(known)

    async def close(self) -> None:
        """End the lookups that are on their way."""
        lookups = [lookup for lookup in self._lookups.values() if not lookup.done()]
        for lookup in lookups:
            lookup.cancel()
        if lookups:
            await asyncio.wait(lookups)

    async def _look_up(self, name: str) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        self._known[name] = addresses
        return addresses


def _is_seen(lookup: asyncio.Task[list[str]]) -> None:
    """See the error of a lookup that nobody may wait for any more."""
    if not lookup.cancelled():
        lookup.exception()
