"""The heads of single posts that came before: what was read of them once holds again.

Producers that describe their messages by nothing that changes send the same few heads, byte
for byte (one for each topic and length of body), and to parse a head is a quarter of an append.
"""

from __future__ import annotations

from fencelog.api.produce.post import Post
from fencelog.ledgers.limits import KIB

Headers = list[tuple[bytes, bytes]]

HEAD_END = b"\r\n\r\n"

MAX_KNOWN_HEADS = 4096
"""The limit of known heads, and of hashes of those that came once: topics times lengths of bodies.
They take 1.3 KiB each as a rule, 12 KiB at most; beyond the limit the memory starts anew."""

MAX_KNOWN_HEAD_BYTES = 2 * KIB
"""The largest of them: programs send some 200 bytes."""

MAX_KNOWN_HEADERS = 32
"""The most headers that one has."""


class KnownHead:
    """The content of a head. Nothing of it is ever changed."""

    __slots__ = ("body_bytes", "framing", "headers", "post", "url")

    def __init__(
        self, url: bytes, headers: Headers, framing: dict[bytes, bytes], post: Post
    ) -> None:
        self.url = url
        self.headers = headers
        self.framing = framing
        self.post = post
        self.body_bytes = int(framing[b"content-length"])


class KnownHeads:
    """The heads that one service knows."""

    def __init__(self) -> None:
        self._known: dict[bytes, KnownHead] = {}
        self._came_once: set[int] = set()
        """Hashes of heads: one that never comes again takes no more."""

    def find(self, head: bytes) -> KnownHead | None:
        """Return what is known of a head, given with the empty line at its end."""
        return self._known.get(head)

    def learn(
        self,
        head: bytes,
        url: bytes,
        headers: Headers,
        framing: dict[bytes, bytes],
        post: Post,
    ) -> None:
        """Take note of a head with this content, which is known from its second time on: if it is
        nothing but the lines that were read, each with CR and LF at its end. The parser also passes
        over lines before the first one, for example."""
        number = hash(head)
        if number not in self._came_once:
            if len(self._came_once) >= MAX_KNOWN_HEADS:
                self._came_once.clear()
            self._came_once.add(number)
            return
        if len(headers) > MAX_KNOWN_HEADERS or not _has_only(head, url, headers):
            return
        if len(self._known) >= MAX_KNOWN_HEADS:
            self._known.clear()
        self._known[head] = KnownHead(url, headers, framing, post)


def _has_only(head: bytes, url: bytes, headers: Headers) -> bool:
    """Tell whether the bytes of a head are its request line, its headers and the empty line."""
    lines = len(headers) + 2
    return (
        head.startswith(b"POST %b HTTP/1.1\r\n" % url)
        and head.count(b"\r\n") == head.count(b"\n") == lines
    )
