"""The mode of an open log: how it treats appends at the moment."""

from __future__ import annotations

from fencelog.ledgers.errors import FencelogError


class AppendMode:
    """Part of ``LogCore``, obeyed by the pipeline and by conditional appends. Plain attributes,
    since they are read for every message.

    Three inputs that are independent of each other meet here: the state of the log (``refusal``,
    ``hold``), a quota that holds appends back (``pause``), and changes of producer access
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
        """The error that every new append is refused with."""
        self.is_held = True
        """True while the state of the log keeps appends from its ledger."""
        self.may_send = False
        """True while appends are handed to the current ledger; otherwise they wait."""
        self.checks_every_append = False
        """True while appends without conditions, too, go through ``ConditionalAppends``."""
        self.is_access_changing = False
        """True while ``ConditionalAppends`` holds appends until a change of access is durable."""
        self.access_refusal: FencelogError | None = None
        """The error that ``ConditionalAppends`` refuses appends with while the outcome of such a
        change is not known."""
        self._is_paused = False

    def hold(self, held: bool) -> None:
        """Note whether the log's ledger accepts appends."""
        self.is_held = held
        self.may_send = not held and not self._is_paused

    def pause(self, paused: bool) -> bool:
        """Note whether a quota holds appends back; return whether that has changed."""
        is_news = paused != self._is_paused
        self._is_paused = paused
        self.hold(self.is_held)
        return is_news

    def hold_access(self) -> None:
        """Hold appends: the access is being changed."""
        self.checks_every_append = self.is_access_changing = True

    def refuse_access(self, error: FencelogError) -> None:
        """Refuse appends: the outcome of that change is not known."""
        self.access_refusal = error

    def open_access(self, *, is_limited: bool) -> None:
        """Admit appends: the access is settled; ``is_limited``: not every producer may append."""
        self.is_access_changing, self.access_refusal = False, None
        self.checks_every_append = is_limited
