"""An address that takes no connection and refuses none, as that of a server whose node is dead."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

_FULL = 4
"""The connections that fill the queue of a socket that accepts none, with some to spare."""


@contextmanager
def deaf_address(address: str, port: int = 0) -> Iterator[int]:
    """Yield a port, a free one without ``port``, at which packets of new connections are dropped:
    the queue of those that nobody accepts is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((address, port))
        listening.listen(0)
        name = listening.getsockname()
        for _ in range(_FULL):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(name)
        yield int(name[1])
