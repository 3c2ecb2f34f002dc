"""The heads of single posts that came before, and forms of heads: what was read of them once holds
again.

Producers send the same few heads, byte for byte (one for each topic and length of body), or heads
of one form, in which a key, a number or a trace differs. To parse a head is a quarter of an append.
One that came before is not read again, and one of a known form is read by a single regular
expression, which matches no head that the parser would refuse; what it does not match is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from fencelog.api.http.request_spans import TRACEPARENT_HEADER
from fencelog.api.produce.post import Post
from fencelog.ledgers.limits import KIB

Headers = list[tuple[bytes, bytes]]
ReadPost = Callable[[bytes, Headers], Post | None]
"""Reads a post from its URL and its headers; None: it is none, or not valid."""

HEAD_END = b"\r\n\r\n"

MAX_KNOWN_HEADS = 4096
"""The limit of known heads, and of hashes of those that came once: topics times lengths of bodies.
They take 1.3 KiB each as a rule, 12 KiB at most; beyond the limit the memory starts anew."""

MAX_KNOWN_FORMS = 256
"""The limit of known forms: kinds of clients. They take 5 to 12 KiB each. Beyond the limit no more
become known: connections hold them, also where they are forgotten here."""

MAX_FORM_HEADERS = 16
MAX_FORM_BYTES = KIB
"""The largest head that has a form: to compile one takes up to a millisecond of the loop."""

MAX_KNOWN_HEAD_BYTES = 2 * KIB
"""The largest of them: programs send some 200 bytes."""

MAX_KNOWN_HEADERS = 32
"""The most headers that one has."""

_LENGTH = b"content-length"
_VARIED = frozenset((_LENGTH, TRACEPARENT_HEADER))
"""The headers of framing that differ between heads of one form."""

_OF_CONNECTION = b"proxy-connection"
"""The header that the parser, too, reads like ``Connection``."""

_URL = rb"/[A-Za-z0-9/_.~:%&=?-]*+"
_DIGITS = rb"\d{1,9}+"
_VALUE = rb"[!-~][ -~]*+(?<! )"
"""The least that every parser reads alike: visible characters, and spaces in between."""

_PLAIN = re.compile(rb"POST %b HTTP/1\.1\r\n(?:[!-9;-~]++: %b\r\n)++\r\n" % (_URL, _VALUE))
"""The heads that have a form."""


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
        self.body_bytes = int(framing[_LENGTH])


class HeadForm:
    """The form of heads that have the same headers in the same order, and the same values of those
    that say how a request is received; URL, length of the body and all other values differ."""

    __slots__ = ("_framing", "_names", "_pattern", "_varied")

    def __init__(self, pattern: bytes, names: list[bytes], framing: dict[bytes, bytes]) -> None:
        self._pattern = re.compile(pattern)
        self._names = names
        self._framing = framing
        self._varied = [(name, names.index(name)) for name in _VARIED.intersection(names)]

    def read(self, head: bytes, read_post: ReadPost) -> KnownHead | None:
        """Return the content of a head of this form; None: it has another one, or is that of no
        post."""
        match = self._pattern.fullmatch(head)
        if match is None:
            return None
        url, *values = match.groups()
        headers = list(zip(self._names, values, strict=True))
        post = read_post(url, headers)
        if post is None:
            return None
        framing = self._framing.copy()
        for name, index in self._varied:
            framing[name] = values[index]
        return KnownHead(url, headers, framing, post)


class KnownHeads:
    """The heads that one service knows. ``read_post`` reads the posts of those whose form it
    knows."""

    def __init__(self, read_post: ReadPost) -> None:
        self._read_post = read_post
        self._known: dict[bytes, KnownHead] = {}
        self._forms: dict[bytes, HeadForm] = {}
        """Forms by their regular expressions."""
        self._came_once: set[int] = set()
        """Hashes of heads and forms: one that never comes again takes no more."""

    def find(self, head: bytes) -> KnownHead | None:
        """Return what is known of a head, given with the empty line at its end."""
        return self._known.get(head)

    def read(self, head: bytes, form: HeadForm) -> KnownHead | None:
        """Return the content of a head, if it has this form and is that of a post."""
        return form.read(head, self._read_post)

    def note(self, head: bytes, known: KnownHead) -> None:
        """Take note of a head that was read by its form, as ``learn`` does."""
        if self._came_before(head):
            self._keep(head, known)

    def learn(
        self,
        head: bytes,
        url: bytes,
        headers: Headers,
        framing: dict[bytes, bytes],
        post: Post,
        *,
        with_form: bool = True,
    ) -> HeadForm | None:
        """Take note of a head with this content: ``headers`` in their order, ``framing`` those that
        say how the request is received. It is known from its second time on, and so is its form,
        which is returned ``with_form``: if it is nothing but the lines that were read, each with CR
        and LF at its end. The parser also passes over lines before the first one, for example."""
        is_known = self._came_before(head)
        has_form = with_form and len(head) <= MAX_FORM_BYTES and _PLAIN.fullmatch(head) is not None
        if not is_known and not has_form:
            return None
        if len(headers) > MAX_KNOWN_HEADERS or not _has_only(head, url, headers):
            return None
        if is_known:
            self._keep(head, KnownHead(url, headers, framing, post))
        return self._form_of(head, headers, framing) if has_form else None

    def _keep(self, head: bytes, known: KnownHead) -> None:
        if len(self._known) >= MAX_KNOWN_HEADS:
            self._known.clear()
        self._known[head] = known

    def _came_before(self, head: bytes) -> bool:
        number = hash(head)
        if number in self._came_once:
            return True
        if len(self._came_once) >= MAX_KNOWN_HEADS:
            self._came_once.clear()
        self._came_once.add(number)
        return False

    def _form_of(
        self, head: bytes, headers: Headers, framing: dict[bytes, bytes]
    ) -> HeadForm | None:
        """Return the form of a plain head, if it has one, and one like it came before."""
        names = [name for name, _ in headers]
        if len(names) > MAX_FORM_HEADERS or any(names.count(name) > 1 for name in _VARIED):
            return None
        pieces = [b"POST (%b) HTTP/1\\.1\r\n" % _URL]
        for line, (name, value) in zip(head.split(b"\r\n")[1:-2], headers, strict=True):
            kind = _DIGITS if name == _LENGTH else _VALUE
            if name == _OF_CONNECTION or (name in framing and name not in _VARIED):
                kind = re.escape(value)
            pieces.append(b"%b: (%b)\r\n" % (re.escape(line.partition(b":")[0]), kind))
        pattern = b"".join([*pieces, b"\r\n"])
        form = self._forms.get(pattern)
        if form is None and len(self._forms) < MAX_KNOWN_FORMS and self._came_before(pattern):
            same = {name: value for name, value in framing.items() if name not in _VARIED}
            form = HeadForm(pattern, names, same)
            self._forms[pattern] = form
        return form


def _has_only(head: bytes, url: bytes, headers: Headers) -> bool:
    """Tell whether the bytes of a head are its request line, its headers and the empty line."""
    lines = len(headers) + 2
    return (
        head.startswith(b"POST %b HTTP/1.1\r\n" % url)
        and head.count(b"\r\n") == head.count(b"\n") == lines
    )
