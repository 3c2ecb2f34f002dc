"""A path through a small world, told step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from tests.explore.messages import LEDGER_ID, Link
from tests.explore.model import Model, State, Step
from tests.explore.reader import Reader
from tests.explore.recoverer import Deleter, Recoverer
from tests.explore.writer import Writer
from tests.scripts.playground_bookie import ModelBookie

Story = list[str]
Path = list[tuple[State, Step, State]]


def told(model: Model, path: Path) -> Story:
    """A line for each step, what it changed in brackets, and how things stand at the end."""
    lines, last = Story(), model.initial
    for number, (before, step, after) in enumerate(path, 1):
        changes = "; ".join(_changes(model, before, after))
        lines.append(
            f"{number:3}. {said(model, before, step)}" + (f"  [{changes}]" if changes else "")
        )
        last = after
    return [*lines, *_standing(model, last)]


def name_of(model: Model, client: int) -> str:
    match model.value(model.initial, model.parties[client]):
        case Writer():
            return "the writer"
        case Recoverer():
            return f"recoverer {client}"
        case Deleter():
            return "the deleter"
        case _:
            return "the reader"


def said(model: Model, state: State, step: Step) -> str:
    """The step in words."""
    match step:
        case ("move", int(client), (str(name), *which), str(wrong)):
            does = " ".join([name, *map(str, which)])
            befalls = f" ({wrong})" if wrong else ""
            return f"{name_of(model, client)}: {does}{befalls}"
        case ("carry out", int(client), int(bookie)):
            link: Link = model.value(state, model.link_at(client, bookie))
            return f"{model.names[bookie]} gets from {name_of(model, client)}: {link.requests[0]}"
        case ("answer", int(client), int(bookie), int(n)):
            link = model.value(state, model.link_at(client, bookie))
            return f"{name_of(model, client)} hears from {model.names[bookie]}: {link.answers[n]}"
        case ("stray", int(bookie), int(n)):
            left: Link = model.value(state, model.strays[bookie])
            return f"{model.names[bookie]} gets after all: {left.requests[n]}"
        case ("cut", int(client), int(bookie)):
            return f"{name_of(model, client)} gives up its connection to {model.names[bookie]}"
        case ("refuse", int(client), int(bookie)):
            link = model.value(state, model.link_at(client, bookie))
            asked = f"{link.requests[0]} of {name_of(model, client)}"
            return f"{model.names[bookie]} fails a {asked}"
        case ("damage", int(bookie), int(entry_id)):
            return f"{model.names[bookie]}'s copy of entry {entry_id} is damaged"
        case (str(kind), int(bookie)):
            return f"{model.names[bookie]} {_BEFALLS[kind]}"
    return str(step)


_BEFALLS = {
    "back": "is there again",
    "garbage": "finds that the ledger was deleted, and lets go of it",
    "kill": "dies",
    "lose": "loses its data, and comes back",
}


def _changes(model: Model, before: State, after: State) -> Iterator[str]:
    """Yield what others would notice."""
    if before[0] != after[0]:
        yield f"metadata: {shown(model.value(after, 0).metadata)}"
    for client, at in enumerate(model.parties):
        old, new = model.value(before, at), model.value(after, at)
        for what, previous, present in zip(*_facts(old, new), strict=True):
            if previous != present:
                yield f"{name_of(model, client)}: {what} {present}"


def _facts(old: Any, new: Any) -> tuple[list[str], list[Any], list[Any]]:
    match old:
        case Writer():
            facts = [
                ("acknowledged up to", old.core.lac, new.core.lac),
                ("finished:", _code(old.core.finished), _code(new.core.finished)),
                ("changing its ensemble:", old.core.changing, new.core.changing),
            ]
        case Reader():
            facts = [
                ("", old.phase, new.phase),
                ("takes for confirmed", old.last_confirmed, new.last_confirmed),
            ]
        case _:
            facts = [("", old.phase, new.phase)]
    what, previous, present = zip(*facts, strict=True)
    return list(what), list(previous), list(present)


def _code(error: Any) -> str:
    return "no" if error is None else str(error.code.slug)


def _standing(model: Model, state: State) -> Iterator[str]:
    yield f"     metadata: {shown(model.value(state, 0).metadata)}"
    for bookie, at in enumerate(model.bookies):
        model_bookie: ModelBookie = model.value(state, at)
        line = next(model_bookie.lines(), f"{model_bookie.bookie_id}: L{LEDGER_ID} unknown")
        down = ", down" if model_bookie.is_down else ""
        yield f"     {model.names[bookie]}{line.removeprefix(model_bookie.bookie_id)}{down}"


def shown(metadata: LedgerMetadata | None) -> str:
    if metadata is None:
        return "deleted"
    fragments = " ".join(
        f"[{one.first_entry_id}: {' '.join(one.bookies)}]" for one in metadata.fragments
    )
    end = f" at {metadata.last_entry_id}" if metadata.is_closed else ""
    return f"{metadata.state.value}{end} {fragments}"
