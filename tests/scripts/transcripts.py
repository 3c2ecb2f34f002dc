"""Transcripts: commands, and under each what happened.

    # An introduction, and remarks between the blocks.

    c1 appends E0
    ----
    c1 -> b1  add 0 (lac -1)

A block is one or more commands, a line of dashes, and all that was seen until nothing more could
happen by itself. ``play`` carries out the commands against the real code and writes the transcript
anew: it is right when nothing changed. The commands are the methods of ``Story``, each with its
grammar; ``cN`` are clients, ``bN`` bookies, ``LN`` ledgers, ``zk`` is the metadata store.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata
from fencelog.ledgers.writer.options import WriterOptions
from tests.scripts.playground import Client, Playground, describe_metadata
from tests.scripts.playground_network import Message, Route, ScriptLoop

RULE = "----"
NOTHING = "(nothing)"

Command = TypeVar("Command", bound=Callable[..., Any])


class Commands:
    """The commands of one kind of story: a decorator of its methods, which takes their grammar."""

    def __init__(self) -> None:
        self._commands: list[tuple[re.Pattern[str], Callable[..., Any]]] = []

    def __call__(self, grammar: str) -> Callable[[Command], Command]:
        """Words as they stand; ``NAME`` in braces takes words, ``{first:n}`` a number."""
        pattern = re.sub(r"\\{(\w+):n\\}", r"(?P<\1>-?\\d+)", re.escape(grammar))
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", pattern)

        def register(function: Command) -> Command:
            self._commands.append((re.compile(pattern.replace(r"\ ", " ")), function))
            return function

        return register

    def carry_out(self, story: object, line: str) -> Any:
        """Return what the method returns that this line calls."""
        for pattern, function in self._commands:
            if (match := pattern.fullmatch(line)) is not None:
                return function(story, **match.groupdict())
        raise ValueError(f"no such command: {line}")


command = Commands()


def play(transcript: str) -> str:
    """The transcript as it is in truth. Raises ValueError for a command that nobody knows."""
    with asyncio.Runner(loop_factory=ScriptLoop) as runner:
        return runner.run(_play(transcript))


async def _play(transcript: str) -> str:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, ScriptLoop):
        raise TypeError("a story needs a loop whose time stands still")
    story = Story(Playground.make(loop))
    try:
        played = [await _play_block(story, block) for block in blocks(transcript)]
    finally:
        await story.playground.end()
    return "\n\n".join(played) + "\n"


def blocks(transcript: str) -> Iterator[str]:
    """Return the blocks, remarks among them."""
    yield from re.split(r"\n{2,}", transcript.strip("\n"))


def commands_of(block: str) -> list[str]:
    """Return the lines of a block above the dashes, remarks among them."""
    lines = block.split("\n")
    return lines[: lines.index(RULE)] if RULE in lines else lines


async def _play_block(story: Story, block: str) -> str:
    commands = commands_of(block)
    if all(line.startswith("#") for line in commands):
        return block
    story.network.events.clear()
    for line in commands:
        if not line.startswith("#"):
            try:
                await command.carry_out(story, line)
            except Exception as error:
                error.add_note(f"in the command: {line}")
                raise
            await story.network.loop.settle()
    return "\n".join([*commands, RULE, *(story.network.events or [NOTHING])])


class Story:
    """One transcript being played."""

    def __init__(self, playground: Playground) -> None:
        self.playground = playground
        self.network = playground.network

    # -- the cast --------------------------------------------------------------------------------

    @command("bookies {names}")
    async def bookies(self, names: str) -> None:
        self.playground.add_bookies(names.split())

    @command("{client} creates L{ledger:n} on {ensemble} with Qw {qw:n} Qa {qa:n}")
    async def create(self, client: str, ledger: str, ensemble: str, qw: str, qa: str) -> None:
        await self._create(client, ledger, ensemble, qw, qa, WriterOptions())

    @command("{client} creates L{ledger:n} on {ensemble} with Qw {qw:n} Qa {qa:n}, in no hurry")
    async def create_patiently(
        self, client: str, ledger: str, ensemble: str, qw: str, qa: str
    ) -> None:
        """Ensemble changes are put off as long as Qa can be reached without them."""
        options = WriterOptions(delay_ensemble_change=True)
        await self._create(client, ledger, ensemble, qw, qa, options)

    async def _create(
        self, client: str, ledger: str, ensemble: str, qw: str, qa: str, options: WriterOptions
    ) -> None:
        await self._client(client).create(
            int(ledger), tuple(ensemble.split()), qw=int(qw), qa=int(qa), options=options
        )

    # -- clients ---------------------------------------------------------------------------------

    @command("{client} appends {payloads} one by one")
    async def append_one_by_one(self, client: str, payloads: str) -> None:
        for payload in _payloads(payloads):
            self._client(client).append([payload])
            await self.network.loop.settle()

    @command("{client} appends {payloads}")
    async def append(self, client: str, payloads: str) -> None:
        """All in one turn of the loop, hence as one run."""
        self._client(client).append(_payloads(payloads))

    @command("{client} closes its ledger")
    async def close(self, client: str) -> None:
        self._client(client).start("close", self._client(client).close())

    @command("{client} recovers L{ledger:n}")
    async def recover(self, client: str, ledger: str) -> None:
        self._client(client).start("recovery", self._client(client).recover(int(ledger)))

    @command("{client} opens L{ledger:n}")
    async def open(self, client: str, ledger: str) -> None:
        self._client(client).start("open", self._client(client).open(int(ledger)))

    @command("{client} reads L{ledger:n} {first:n}..{last:n}")
    async def read(self, client: str, ledger: str, first: str, last: str) -> None:
        reading = self._client(client).read(int(ledger), int(first), int(last))
        self._client(client).start("read", reading)

    @command("{client} reads the LAC of L{ledger:n}")
    async def read_lac(self, client: str, ledger: str) -> None:
        self._client(client).start("read", self._client(client).read_lac(int(ledger)))

    @command("{client} waits {seconds:n} s for more than {above:n} of L{ledger:n}")
    async def wait_lac(self, client: str, seconds: str, above: str, ledger: str) -> None:
        waiting = self._client(client).wait_lac(int(ledger), int(above), int(seconds))
        self._client(client).start("wait", waiting)

    @command("{client} deletes L{ledger:n}")
    async def delete(self, client: str, ledger: str) -> None:
        self._client(client).start("delete", self._client(client).delete(int(ledger)))

    @command("{client} dies")
    async def die(self, client: str) -> None:
        await self._client(client).die()

    # -- messages --------------------------------------------------------------------------------

    @command("flow {routes}")
    async def flow(self, routes: str) -> None:
        """Deliver at once on these routes from now on, without a line for it."""
        self.network.flowing.update(_routes(routes))
        self.network.held.difference_update(_routes(routes))

    @command("hold {routes}")
    async def hold(self, routes: str) -> None:
        """Hold messages on these routes from now on (between clients and bookies they do from the
        start)."""
        self.network.held.update(_routes(routes))
        self.network.flowing.difference_update(_routes(routes))

    @command("deliver everything")
    async def deliver_everything(self) -> None:
        while self.network.waiting:
            await self.network.deliver(self.network.waiting.pop(0))

    @command("deliver all {routes}")
    async def deliver_all(self, routes: str) -> None:
        """Deliver the messages in flight on these routes, oldest first, until none is left."""
        for message in self._under_way(routes):
            await self.network.deliver(message)

    @command("deliver {routes}")
    async def deliver(self, routes: str) -> None:
        """The oldest message of each route: a request is carried out and answered."""
        for route in _routes(routes):
            await self.network.deliver(self.network.oldest(route))

    @command("arrive {routes}")
    async def arrive(self, routes: str) -> None:
        """The request is carried out, its answer is a message that waits."""
        for route in _routes(routes):
            await self.network.arrive(self.network.oldest(route))

    @command("lose all {routes}")
    async def lose_all(self, routes: str) -> None:
        for message in self._under_way(routes):
            await self._lose(message)

    @command("lose {routes}")
    async def lose(self, routes: str) -> None:
        """The message is never seen; whoever waits for the answer gets a time-out."""
        for route in _routes(routes):
            await self._lose(self.network.oldest(route))

    @command("delay {routes}")
    async def delay(self, routes: str) -> None:
        """A time-out, but the message is still under way."""
        for route in _routes(routes):
            message = self.network.oldest(route)
            self.network.waiting.append(message)
            self.network.tell(f"{message}: late")
            await self.network.give_up(message)

    @command("refuse {routes} with {slug}")
    async def refuse(self, routes: str, slug: str) -> None:
        for route in _routes(routes):
            error = FencelogError(ErrorCode[slug.upper()], f"{route[1]} was told to say so")
            await self.network.refuse(self.network.oldest(route), error)

    @command("{milliseconds:n} ms pass")
    async def pass_time(self, milliseconds: str) -> None:
        self.network.loop.now_s += int(milliseconds) / 1000

    # -- bookies ---------------------------------------------------------------------------------

    @command("{bookie} goes down")
    async def go_down(self, bookie: str) -> None:
        self.playground.bookies[bookie].is_down = True

    @command("{bookie} comes back")
    async def come_back(self, bookie: str) -> None:
        self.playground.bookies[bookie].is_down = False

    @command("{bookie} loses entry {entry:n} of L{ledger:n}")
    async def lose_entry(self, bookie: str, entry: str, ledger: str) -> None:
        del self.playground.bookies[bookie].ledgers[int(ledger)].entries[int(entry)]

    @command("{bookie} damages entry {entry:n} of L{ledger:n}")
    async def damage_entry(self, bookie: str, entry: str, ledger: str) -> None:
        self.playground.bookies[bookie].damage(int(ledger), int(entry))

    @command("{bookie} forgets everything and {measures}")
    async def forget(self, bookie: str, measures: str) -> None:
        """``knows nothing of it``, or any of ``takes a new incarnation``, ``fences``, ``is in
        limbo``: what a bookie does about it before it serves (rule 10)."""
        known = {"knows nothing of it", "takes a new incarnation", "fences", "is in limbo"}
        taken = set(measures.split(", "))
        if not taken <= known:
            raise ValueError(f"no such measure: {taken - known}")
        mine = [m for m in self.playground.ledgers() if _names(m, bookie)]
        model = self.playground.bookies[bookie]
        model.forget(
            [m.ledger_id for m in mine] if "fences" in taken else [],
            limbo=[m.ledger_id for m in mine if not m.is_closed] if "is in limbo" in taken else [],
        )
        model.run += "takes a new incarnation" in taken

    # -- what there is ---------------------------------------------------------------------------

    @command("show L{ledger:n}")
    async def show_ledger(self, ledger: str) -> None:
        self.network.tell(describe_metadata(self.playground.metadata(int(ledger))))

    @command("show {bookies}")
    async def show_bookies(self, bookies: str) -> None:
        for bookie in bookies.split():
            for line in self.playground.bookies[bookie].lines():
                self.network.tell(line)

    @command("judge L{ledger:n}")
    async def judge(self, ledger: str) -> None:
        """Print the fate of the acknowledged entries."""
        self.network.tell(self.playground.judgement(int(ledger)))

    def _under_way(self, routes: str) -> Iterator[Message]:
        """Taken out of the network one by one; what is sent meanwhile comes too."""
        wanted = _routes(routes)
        while found := [m for m in self.network.waiting if m.route in wanted]:
            self.network.waiting.remove(found[0])
            yield found[0]

    async def _lose(self, message: Message) -> None:
        self.network.tell(f"{message}: lost")
        await self.network.give_up(message)

    def _client(self, name: str) -> Client:
        return self.playground.client(name)


def _names(metadata: LedgerMetadata, bookie: str) -> bool:
    return any(bookie in fragment.bookies for fragment in metadata.fragments)


def _payloads(words: str) -> list[str]:
    """``E0 E1``, or ``E0..E9``."""
    match = re.fullmatch(r"(\D+)(\d+)\.\.\1(\d+)", words)
    if match is None:
        return words.split()
    return [f"{match[1]}{n}" for n in range(int(match[2]), int(match[3]) + 1)]


def _routes(words: str) -> list[Route]:
    """``c1 -> b1 b2, c2 -> zk``: both sides may name several."""
    routes: list[Route] = []
    for part in words.split(", "):
        sources, _, destinations = part.partition(" -> ")
        routes += [(s, d) for s in sources.split() for d in destinations.split()]
    return routes
