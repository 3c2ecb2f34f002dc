"""The answers to the LACs of one request, which is answered when all of them are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.rpc.answers import encode_answers


class LacAnswers:
    """The answers to so many LACs. ``on_all`` gets the body of the reply, once."""

    def __init__(self, count: int, on_all: Callable[[bytes], None]) -> None:
        self._missing = count
        self._on_all = on_all
        self._refusals: dict[int, FencelogError] = {}

    def take(self, places: Sequence[int], error: FencelogError | None) -> None:
        """Take the answer to the LACs at these places of the request."""
        self._missing -= len(places)
        if error is not None:
            self._refusals.update(dict.fromkeys(places, error))
        if not self._missing:
            self._on_all(encode_answers(self._refusals))
