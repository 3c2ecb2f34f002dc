"""Steps of one party, one bookie, one link: each computed once, then remembered by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fencelog.ledgers.errors import ErrorCode
from fencelog.ledgers.reader import core as reader_core
from tests.explore.bookies import as_heard, carry_out, is_settled, still_matters
from tests.explore.config import World
from tests.explore.messages import Answer, Link, Outcome, Request
from tests.explore.metadata import Node, NodeStore
from tests.explore.party import Move, Party, Scene
from tests.explore.values import Table, fork
from tests.scripts.playground_bookie import ModelBookie

Ends = tuple[tuple[int, tuple[tuple[int, Request], ...], int], ...]
"""Each way a party's step may end: what becomes of it, what it sends to which bookie, and what then
stands in the store (``UNCHANGED``)."""

UNCHANGED = -1


_SIDE_BY_SIDE = 2
"""Entries of a striped ledger that are read at once: as many as there are, not dozens beyond."""


@contextmanager
def _few_side_by_side() -> Iterator[None]:
    name = "MAX_SIDE_BY_SIDE_READS"
    before = getattr(reader_core, name)
    setattr(reader_core, name, _SIDE_BY_SIDE)
    try:
        yield
    finally:
        setattr(reader_core, name, before)


class LocalSteps:
    """All by numbers of ``table``. Bookies are numbers in the order of their names."""

    def __init__(self, world: World, table: Table) -> None:
        self._world = world
        self._names = world.bookies
        self._table = table
        self._value = table.values
        self._memo: dict[Any, Any] = {}
        # A bookie that lets go of the ledger, or fails a request, answers otherwise later.
        self._settles = not world.deleter and not world.faults.get("refuse")

    # -- parties ---------------------------------------------------------------------------------

    def move(
        self, party: int, move: Move, wrong: str, node: int, incarnations: tuple[str, ...]
    ) -> Ends:
        """A party does something by itself; ``wrong`` is what befalls its change of metadata."""
        key = (party, move, wrong, node, incarnations)
        if key not in self._memo:

            def act(actor: Party, scene: Scene) -> bool:
                actor.perform(move, scene)
                return wrong != "lost reply" or scene.store.was_lost

            known = dict(zip(self._names, incarnations, strict=True))
            self._memo[key] = self._ends(party, act, self._value[node], wrong, known)
        ends: Ends = self._memo[key]
        return ends

    def answer(self, party: int, bookie: int, link: int, n: int) -> tuple[Ends, int]:
        """A party gets an answer; and what is left of the link."""
        key = ("answer", party, bookie, link, n)
        if key not in self._memo:
            previous: Link = self._value[link]
            answer = previous.answers[n]
            rest = replace(previous, answers=previous.answers[:n] + previous.answers[n + 1 :])
            ends = self._hear(party, bookie, [(answer.request, answer.outcome)])
            self._memo[key] = ends, self._table.number(rest)
        found: tuple[Ends, int] = self._memo[key]
        return found

    def cut(self, party: int, bookie: int, link: int) -> Ends:
        """A party gives a link up: all that is on it is unknown from here on."""
        key = ("cut", party, bookie, link)
        if key not in self._memo:
            on_it: Link = self._value[link]
            asked = [*(answer.request for answer in on_it.answers), *on_it.requests]
            unknown = [(request, ErrorCode.REQUEST_TIMEOUT) for request in asked]
            self._memo[key] = self._hear(party, bookie, unknown)
        ends: Ends = self._memo[key]
        return ends

    def _hear(self, party: int, bookie: int, told: Iterable[tuple[Request, Outcome]]) -> Ends:
        name = self._names[bookie]

        def act(actor: Party, scene: Scene) -> bool:
            for request, outcome in told:
                if actor.cares(request, name):
                    actor.hear(name, request, outcome, scene)
            return True

        return self._ends(party, act, Node(None), "", {})

    def _ends(
        self,
        party: int,
        act: Callable[[Party, Scene], bool],
        node: Node,
        wrong: str,
        incarnations: dict[str, str],
    ) -> Ends:
        """``act`` says whether it was a step at all."""
        ends, choice, choices = [], 0, 1
        while choice < choices:
            actor = fork(self._value[party])
            scene = Scene(self._names, NodeStore(node, wrong), incarnations, choice)
            try:
                with _few_side_by_side():
                    happened = act(actor, scene)
            except Exception as error:  # cores raise nothing that their shells do not know
                happened, actor.broken = True, repr(error)
            if happened:
                sent = tuple((self._names.index(name), request) for name, request in scene.sent)
                present = scene.store.node
                stands = UNCHANGED if present is node else self._table.number(present)
                ends.append((self._table.number(actor), sent, stands))
            choice, choices = choice + 1, max(choices, scene.choices)
        return tuple(ends)

    # -- bookies and links -----------------------------------------------------------------------

    def sent(self, link: int, request: Request) -> int:
        key = ("sent", link, request)
        if key not in self._memo:
            previous: Link = self._value[link]
            after = replace(previous, requests=(*previous.requests, request))
            self._memo[key] = self._table.number(after)
        number: int = self._memo[key]
        return number

    def carried_out(self, bookie: int, link: int) -> tuple[int, int]:
        """The bookie carries out the first request of a link: both as they are then."""
        key = ("carried out", bookie, link)
        if key not in self._memo:
            before: Link = self._value[link]
            model_bookie: ModelBookie = fork(self._value[bookie])
            request = before.requests[0]
            answer = Answer(request, as_heard(request, carry_out(model_bookie, request)))
            after = Link(before.requests[1:], (*before.answers, answer))
            self._memo[key] = self._table.number(model_bookie), self._table.number(after)
        numbers: tuple[int, int] = self._memo[key]
        return numbers

    def refused(self, link: int) -> int:
        """The bookie fails the first request of a link, without an effect."""
        key = ("refused", link)
        if key not in self._memo:
            before: Link = self._value[link]
            answer = Answer(before.requests[0], ErrorCode.STORAGE_FAILED)
            after = Link(before.requests[1:], (*before.answers, answer))
            self._memo[key] = self._table.number(after)
        number: int = self._memo[key]
        return number

    def strayed(self, bookie: int, strays: int, n: int) -> tuple[int, int]:
        """A request of a link that was given up is carried out after all."""
        key = ("strayed", bookie, strays, n)
        if key not in self._memo:
            before: Link = self._value[strays]
            model_bookie: ModelBookie = fork(self._value[bookie])
            carry_out(model_bookie, before.requests[n])
            after = Link(before.requests[:n] + before.requests[n + 1 :])
            self._memo[key] = self._table.number(model_bookie), self._table.number(after)
        numbers: tuple[int, int] = self._memo[key]
        return numbers

    def left(self, strays: int, link: int) -> int:
        """Return what may yet be carried out, with the requests of a link that was given up."""
        joined = (*self._value[strays].requests, *self._value[link].requests)
        return self._table.number(Link(tuple(sorted(joined, key=repr))))

    def unanswered(self, link: int) -> int:
        """The link of a bookie that died: whoever asked is told that nothing is known."""
        key = ("unanswered", link)
        if key not in self._memo:
            on_it: Link = self._value[link]
            asked = [*(answer.request for answer in on_it.answers), *on_it.requests]
            unknown = ErrorCode.REQUEST_TIMEOUT
            answers = tuple(Answer(request, unknown) for request in asked)
            self._memo[key] = self._table.number(Link((), answers))
        number: int = self._memo[key]
        return number

    def settled(self, party: int, bookie: int, link: int, at: int) -> int:
        """The link without what nobody waits for and changes nothing, and with the answers to first
        requests whose answers are settled; ``at``: which bookie it is."""
        key = ("settled", party, bookie, link, at)
        if key not in self._memo:
            self._memo[key] = self._settle(party, bookie, link, at)
        number: int = self._memo[key]
        return number

    def _settle(self, party: int, bookie: int, link: int, at: int) -> int:
        client: Party = self._value[party]
        model_bookie: ModelBookie = self._value[bookie]
        on_it: Link = self._value[link]
        name, entries = self._names[at], self._world.entries

        def cares(request: Request) -> bool:
            return client.cares(request, name)

        answers = [answer for answer in on_it.answers if cares(answer.request)]
        requests = [one for one in on_it.requests if cares(one) or still_matters(model_bookie, one)]
        if model_bookie.is_down:
            never_left = ErrorCode.BOOKIE_UNAVAILABLE
            answers += [Answer(one, never_left) for one in requests if cares(one)]
            requests = []
        while requests and self._settles and is_settled(model_bookie, requests[0], entries):
            request = requests.pop(0)
            if cares(request):
                outcome = as_heard(request, carry_out(fork(model_bookie), request))
                answers.append(Answer(request, outcome))
        return self._table.number(Link(tuple(requests), tuple(answers)))

    def cleaned(self, bookie: int, strays: int) -> int:
        """Strays without those that would change nothing."""
        key = ("cleaned", bookie, strays)
        if key not in self._memo:
            model_bookie: ModelBookie = self._value[bookie]
            kept = tuple(
                one for one in self._value[strays].requests if still_matters(model_bookie, one)
            )
            self._memo[key] = self._table.number(Link(kept))
        number: int = self._memo[key]
        return number
