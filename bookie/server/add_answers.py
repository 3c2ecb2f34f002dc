"""The answers to the runs of one request, which is answered as its runs are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.rpc.adds import encode_added
from fencelog.ledgers.rpc.wire import Flag


class AddAnswers:
    """The answers to the runs of one ADD_MANY, of these sizes. ``on_reply`` gets the size of the
    runs that are answered, and body and flags of a reply to them."""

    def __init__(self, sizes: Sequence[int], on_reply: Callable[[int, bytes, Flag], None]) -> None:
        self._sizes = sizes
        self._missing = len(sizes)
        self._on_reply = on_reply

    def take(self, places: Sequence[int], error: FencelogError | None) -> None:
        """Take the answer to the runs at these places of the request."""
        self._missing -= len(places)
        size = sum([self._sizes[place] for place in places])
        body = encode_added(places, error, len(self._sizes))
        self._on_reply(size, body, Flag.MORE if self._missing else Flag.NONE)
