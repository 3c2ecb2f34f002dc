"""Servers that take connections and never answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def silent_servers(count: int) -> Iterator[list[str]]:
    """Yield the URLs of so many servers."""
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in listening:
            each.bind(("127.0.0.1", 0))
            each.listen()  # the kernel takes connections, and nobody reads from them
        yield [f"http://127.0.0.1:{each.getsockname()[1]}" for each in listening]
