"""The brokers that own what a client uses, as far as their answers have told."""

from __future__ import annotations

import anyio

OWNER = "fencelog-owner"

MAX_REMEMBERED_OWNERS = 10_000
"""The limit of places with a remembered owner; beyond it all are learnt anew."""

AVOID_S = 300.0
"""The time for which an owner that could not be reached is not tried again: a client outside the
cluster's network never reaches it, and each attempt delays a request."""


class KnownOwners:
    """The owner of each place. A place is any name; the empty one has no owner."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._avoided_until: dict[str, float] = {}

    def of(self, place: str) -> str | None:
        """Return the owner to ask directly, or None."""
        return self._of.get(place)

    def note(self, place: str, url: str | None) -> None:
        """Note what an answer has named as the owner; None: who has answered stays the one to
        ask."""
        if not place or url is None or not url.startswith(("http://", "https://")):
            return
        owner = url.rstrip("/")
        if anyio.current_time() < self._avoided_until.get(owner, 0):
            self._of.pop(place, None)
            return
        if len(self._of) >= MAX_REMEMBERED_OWNERS:
            self._of.clear()
        self._of[place] = owner

    def forget(self, place: str) -> None:
        """Ask the service next time: the owner has refused, or did not answer."""
        self._of.pop(place, None)

    def avoid(self, url: str) -> None:
        """Forget an owner that cannot be reached, and do not try it again for some time."""
        if len(self._avoided_until) >= MAX_REMEMBERED_OWNERS:
            self._avoided_until.clear()
        self._avoided_until[url] = anyio.current_time() + AVOID_S
        self._of = {place: owner for place, owner in self._of.items() if owner != url}
