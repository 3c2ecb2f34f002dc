"""What an open log lets its appends do at the moment."""

from __future__ import annotations

from fencelog.ledgers.errors import FencelogError


class AppendMode:
    """Part of ``LogCore``; pipeline and gate obey it. Plain attributes, since they are read for
    every message.

    Three things that know nothing of each other meet here: the state of the log (``refusal``,
    ``hold``), a quota that holds appends back (``pause``), and changes of who may append
    (``hold_access``, ``refuse_access``, ``open_access``). Each is written by its owner alone.
    """

    __slots__ = (
        "_is_paused",
        "access_refusal",
        "checks_every_append",
        "is_access_changing",
        "is_held",
        "may_send",
        "refusal",
    )

    def __init__(self) -> None:
        self.refusal: FencelogError | None = None
        """What every append that comes is refused with."""
        self.is_held = True
        """Whether the state of the log keeps appends from its ledger."""
        self.may_send = False
        """Whether appends are handed to the present ledger; otherwise they wait."""
        self.checks_every_append = False
        """Whether appends without conditions pass the gate too."""
        self.is_access_changing = False
        """Whether appends wait at the gate until a change of who may append is durable."""
        self.access_refusal: FencelogError | None = None
        """What the gate refuses appends with while it is not known whether such a change is."""
        self._is_paused = False

    def hold(self, held: bool) -> None:
        """The log's ledger takes appends, or does not."""
        self.is_held = held
        self.may_send = not held and not self._is_paused

    def pause(self, paused: bool) -> bool:
        """A quota holds appends back, or does no more; return whether that is news."""
        is_news = paused != self._is_paused
        self._is_paused = paused
        self.hold(self.is_held)
        return is_news

    def hold_access(self) -> None:
        """Who may append is being changed."""
        self.checks_every_append = self.is_access_changing = True

    def refuse_access(self, error: FencelogError) -> None:
        """The outcome of that change is not known."""
        self.access_refusal = error

    def open_access(self, *, is_limited: bool) -> None:
        """Who may append is settled; ``is_limited``: not everybody may."""
        self.is_access_changing, self.access_refusal = False, None
        self.checks_every_append = is_limited
