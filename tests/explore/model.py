"""A small world: its states, and the steps from each.

A state is a tuple of numbers, each of a value in one table: what stands in the metadata store, each
party, each bookie, each link between them, what is left of links that were given up, and what may
still go wrong. A party's step is a function of its own state and what it hears, so the real code
runs once for each step that is locally different, and the search works on numbers.

Fewer interleavings do for all: requests of a link are carried out in their order, as on a
connection; one whose answer will be the same whenever it is carried out is carried out at once; and
what nobody waits for and changes nothing is dropped (``LocalSteps.settled``).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from fencelog.ledgers.ledger_metadata.model import new_metadata
from tests.explore.bookies import comes_back_empty, lets_go, new_bookie
from tests.explore.config import FAULTS, World
from tests.explore.local import UNCHANGED, LocalSteps
from tests.explore.messages import EMPTY, LEDGER_ID, Link, Request
from tests.explore.metadata import Node
from tests.explore.party import CHANGES, LOOK_AGAIN
from tests.explore.reader import Reader
from tests.explore.recoverer import Deleter, Recoverer
from tests.explore.values import Table, fork
from tests.explore.writer import Writer
from tests.scripts.playground_bookie import ModelBookie

State = tuple[int, ...]
Step = tuple[Any, ...]
"""An event, the party that it concerns, and the choice among several."""

Pick = Callable[[State], tuple[int, ...]]
Look = Callable[[int], int]


def is_end(steps: list[Step]) -> bool:
    """Tell whether nothing happens any more, but that somebody looks again for what is not
    there."""
    return all(step[0] == "move" and step[2] == LOOK_AGAIN for step in steps)


class Model:
    """One world, with the code as it is now: a model does not outlive a change of the code."""

    def __init__(self, world: World, *, with_symmetry: bool = True) -> None:
        """``with_symmetry``: for ``key``, which takes time with every new value."""
        self.world = world
        self.names = world.bookies
        self._renamings = world.renamings()[: None if with_symmetry else 1]
        self.table = Table(self._renamings)
        self._local = LocalSteps(world, self.table)
        parties = _parties(world)
        count, bookies = len(parties), len(self.names)
        self.parties = range(1, 1 + count)
        self.bookies = range(1 + count, 1 + count + bookies)
        self.links = range(self.bookies.stop, self.bookies.stop + count * bookies)
        self.strays = range(self.links.stop, self.links.stop + bookies)
        number = self.table.number
        self._empty = number(EMPTY)
        budget = (world.budget, *(world.faults.get(kind, 0) for kind in FAULTS))
        self.initial: State = (
            number(Node(parties[0].metadata)),
            *map(number, parties),
            *[number(new_bookie())] * bookies,
            *[self._empty] * (len(self.links) + len(self.strays)),
            number(budget),
        )
        self._orders = self._orders_of_renamings()

    def value(self, state: State, at: int) -> Any:
        return self.table.values[state[at]]

    def link_at(self, client: int, bookie: int) -> int:
        return self.links.start + client * len(self.names) + bookie

    # -- what may happen -------------------------------------------------------------------------

    def steps(self, state: State) -> list[Step]:
        """All that may happen without a fault. None: an end."""
        values, steps = self.table.values, list[Step]()
        for client, at in enumerate(self.parties):
            if self._may_begin(state, at):
                steps += [("move", client, move, "") for move in values[state[at]].moves()]
        for at in self.links:
            if state[at] != self._empty:
                client, bookie = divmod(at - self.links.start, len(self.names))
                link: Link = values[state[at]]
                if link.requests:
                    steps.append(("carry out", client, bookie))
                steps += [("answer", client, bookie, n) for n in range(len(link.answers))]
        for bookie, at in enumerate(self.bookies):
            left: Link = values[state[self.strays[bookie]]]
            steps += [("stray", bookie, n) for n in range(len(left.requests))]
            if values[state[at]].is_down:
                steps.append(("back", bookie))
            elif self._has_garbage(state, at):
                steps.append(("garbage", bookie))
        return steps

    def fault_steps(self, state: State) -> list[Step]:
        """All that may go wrong."""
        steps, left = list[Step](), self.value(state, len(state) - 1)
        may = dict(zip(FAULTS, left[1:], strict=True)) if left[0] else dict[str, int]()
        if may.get("cut"):
            cuts = [divmod(at - self.links.start, len(self.names)) for at in self._busy(state)]
            steps += [("cut", client, bookie) for client, bookie in cuts]
        if may.get("refuse"):
            asked = [at for at in self._busy(state) if self.value(state, at).requests]
            links = [divmod(at - self.links.start, len(self.names)) for at in asked]
            steps += [("refuse", client, bookie) for client, bookie in links]
        model_bookies = [(bookie, self.value(state, at)) for bookie, at in enumerate(self.bookies)]
        for kind in ("kill", "lose"):
            if may.get(kind):
                steps += [
                    (kind, bookie)
                    for bookie, model_bookie in model_bookies
                    if not model_bookie.is_down
                ]
        if may.get("damage"):
            for bookie, model_bookie in model_bookies:
                ledger = model_bookie.ledgers.get(LEDGER_ID)
                if ledger is not None:
                    steps += [("damage", bookie, entry_id) for entry_id in ledger.entries]
        if may.get("lost reply"):
            begun = self._changes(state, under_way=False)
            steps += [("move", client, move, "lost reply") for client, move in begun]
        if may.get("away"):
            changes = [
                *self._changes(state, under_way=False),
                *self._changes(state, under_way=True),
            ]
            steps += [("move", client, move, "away") for client, move in changes]
        return steps

    def _busy(self, state: State) -> list[int]:
        return [at for at in self.links if state[at] != self._empty]

    def _changes(self, state: State, *, under_way: bool) -> list[tuple[int, Any]]:
        """Changes of metadata: those of which an answer was lost, or those not under way yet."""
        return [
            (client, move)
            for client, at in enumerate(self.parties)
            if self._may_begin(state, at)
            for move in self.value(state, at).moves()
            if move[0] in CHANGES and (self.value(state, at).unresolved is not None) == under_way
        ]

    def _may_begin(self, state: State, at: int) -> bool:
        """One recoverer begins after the other: they are alike."""
        before, party = self.value(state, at - 1), self.value(state, at)
        alike = type(before) is Recoverer and type(party) is Recoverer
        return not alike or before.phase != "idle"

    def _has_garbage(self, state: State, at: int) -> bool:
        ledger = self.value(state, at).ledgers.get(LEDGER_ID)
        is_gone = self.value(state, 0).metadata is None
        return is_gone and ledger is not None and not ledger.is_deleted

    # -- where it leads --------------------------------------------------------------------------

    def after(self, state: State, step: Step) -> list[State]:
        """Return where a step leads: to one state, unless chance decides something in it."""
        local = self._local
        match step:
            case ("move", int(client), tuple(move), str(wrong)):
                runs = tuple(self.value(state, at).incarnation for at in self.bookies)
                ends = local.move(state[self.parties[client]], move, wrong, state[0], runs)
                state = self._spent(state, wrong) if wrong else state
            case ("answer", int(client), int(bookie), int(n)):
                at, party = self.link_at(client, bookie), state[self.parties[client]]
                ends, rest = local.answer(party, bookie, state[at], n)
                state = (*state[:at], rest, *state[at + 1 :])
            case ("cut", int(client), int(bookie)):
                at, party = self.link_at(client, bookie), state[self.parties[client]]
                ends = local.cut(party, bookie, state[at])
                numbers = list(self._spent(state, "cut"))
                left = self.strays[bookie]
                numbers[left] = local.left(numbers[left], numbers[at])
                numbers[left] = local.cleaned(numbers[self.bookies[bookie]], numbers[left])
                numbers[at] = self._empty
                state = tuple(numbers)
            case _:
                return [self._at_bookie(state, step)]
        return [self._went(state, client, *end) for end in ends]

    def _went(
        self,
        state: State,
        client: int,
        party: int,
        sent: tuple[tuple[int, Request], ...],
        node: int,
    ) -> State:
        """The state with a party's step done."""
        numbers, local = list(state), self._local
        if node != UNCHANGED:
            numbers[0] = node
        numbers[self.parties[client]] = party
        first = self.link_at(client, 0)
        for bookie, request in sent:
            numbers[first + bookie] = local.sent(numbers[first + bookie], request)
        for bookie, at in enumerate(self.bookies):
            link = numbers[first + bookie]
            if link != self._empty:
                numbers[first + bookie] = local.settled(party, state[at], link, bookie)
        return tuple(numbers)

    def _at_bookie(self, state: State, step: Step) -> State:
        """The state with a bookie's step done."""
        numbers, local = list(state), self._local
        match step:
            case ("carry out", int(client), int(bookie)):
                at, where = self.link_at(client, bookie), self.bookies[bookie]
                numbers[where], numbers[at] = local.carried_out(state[where], state[at])
            case ("refuse", int(client), int(bookie)):
                numbers = list(self._spent(state, "refuse"))
                at = self.link_at(client, bookie)
                numbers[at] = local.refused(state[at])
            case ("stray", int(bookie), int(n)):
                at, where = self.strays[bookie], self.bookies[bookie]
                numbers[where], numbers[at] = local.strayed(state[where], state[at], n)
            case (str(kind), int(bookie), *which):
                numbers = list(self._befallen(state, kind, bookie, *which))
        known = numbers[self.bookies[bookie]]
        for client, at in enumerate(
            range(self.links.start + bookie, self.links.stop, len(self.names))
        ):
            if numbers[at] != self._empty:
                party = numbers[self.parties[client]]
                numbers[at] = local.settled(party, known, numbers[at], bookie)
        left = self.strays[bookie]
        if numbers[left] != self._empty:
            numbers[left] = local.cleaned(known, numbers[left])
        return tuple(numbers)

    def _befallen(self, state: State, kind: str, bookie: int, *which: int) -> State:
        """Return what befalls a bookie as a whole."""
        at = self.bookies[bookie]
        model_bookie: ModelBookie = fork(self.table.values[state[at]])
        match kind:
            case "back":
                model_bookie.is_down = False
            case "garbage":
                lets_go(model_bookie)
            case "damage":
                model_bookie.damage(LEDGER_ID, *which)
            case "kill":
                model_bookie.is_down = True
            case "lose":
                comes_back_empty(model_bookie, is_named=self._is_named(state, self.names[bookie]))
        numbers = list(self._spent(state, kind) if kind in FAULTS else state)
        numbers[at] = self.table.number(model_bookie)
        if kind in ("kill", "lose"):
            for link in range(self.links.start + bookie, self.links.stop, len(self.names)):
                numbers[link] = self._local.unanswered(numbers[link])
            numbers[self.strays[bookie]] = self._empty
        return tuple(numbers)

    def _is_named(self, state: State, name: str) -> bool:
        metadata = self.value(state, 0).metadata
        if metadata is None:
            return False
        return any(name in fragment.bookies for fragment in metadata.fragments)

    def _spent(self, state: State, kind: str) -> State:
        left = self.value(state, len(state) - 1)
        which = 1 + FAULTS.index(kind)
        less = (left[0] - 1, *left[1:which], left[which] - 1, *left[which + 1 :])
        return (*state[:-1], self.table.number(less))

    # -- symmetry --------------------------------------------------------------------------------

    def _orders_of_renamings(self) -> list[tuple[Pick, Pick, Look]]:
        """Return, for each renaming: the bookies in their new order; all the rest of a state in its
        new order, the budget left out; and what its values look like."""
        orders, size = list[tuple[Pick, Pick, Look]](), len(self.names)
        heads = range(self.bookies.start)
        starts = range(self.links.start, self.strays.stop, size)
        for renaming, looks in zip(self._renamings, self.table.looks, strict=True):
            back = {new: old for old, new in renaming.names.items()}
            source = [self.names.index(back[name]) for name in self.names]
            bookies = itemgetter(*(self.bookies.start + number for number in source))
            rest = itemgetter(*heads, *(start + number for start in starts for number in source))
            orders.append((bookies, rest, looks.__getitem__))
        return orders

    def key(self, state: State) -> int:
        """One for all states that differ in the names of bookies alone."""
        orders = self._orders
        if len(orders) == 1:
            return hash(state)
        seen = [bookies(state) for bookies, _, _ in orders]
        least = min(seen)
        best = min(
            tuple(map(look, rest(state)))
            for (_, rest, look), bookies in zip(orders, seen, strict=True)
            if bookies == least
        )
        return hash((least, best, state[-1]))


def _parties(world: World) -> list[Any]:
    metadata = new_metadata(
        LEDGER_ID,
        ensemble=world.members,
        write_quorum=world.write_quorum,
        ack_quorum=world.ack_quorum,
        token="token",
    )
    incarnations = dict.fromkeys(world.members, new_bookie().incarnation)
    parties: list[Any] = [Writer.of(world, metadata, incarnations)]
    parties += [Recoverer() for _ in range(world.recoverers)]
    parties += [Reader(world.readers)] if world.readers else []
    return parties + ([Deleter()] if world.deleter else [])
