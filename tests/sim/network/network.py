"""A simulated TCP network between machines; a machine's name is its address.

Every connection is two ordered streams (``network/transport.py``). Faults are set from one machine
to another, one way. Nothing is lost but by a reset or the death of an end: what is blocked, or sent
to a machine without power, is retransmitted when the way is free.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.engine.process import Process, current_process
from tests.sim.network.transport import Factory, Mark, SimTransport, Stream

if TYPE_CHECKING:
    from tests.sim.engine.engine import Engine

_LATENCY_S = (0.0002, 0.002)
_WINDOWS = (1 << 16, 1 << 18, 1 << 20)
_BOOT_S = 1.0
"""Within this time what waits for a machine is sent again after it came back."""

_FIRST_FREE_PORT = 20_000
_HERE = ("", "0.0.0.0", "::", "127.0.0.1", "localhost")

Callback = Callable[[], None]


class SimSocket:
    """The part of a listening socket that programs use."""

    def __init__(self, machine: str, port: int) -> None:
        self._name = (machine, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name


class SimServer(asyncio.AbstractServer):
    """A listening port of a process."""

    def __init__(self, network: Network, process: Process, port: int, factory: Factory) -> None:
        self.process = process
        self.address = (process.machine, port)
        self.sockets: tuple[SimSocket, ...] = (SimSocket(*self.address),)
        self._network = network
        self._factory = factory
        self._open: dict[SimTransport, None] = {}
        self._all_closed = asyncio.Event()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return bool(self.sockets)

    async def start_serving(self) -> None:
        """Do nothing: the server serves from the beginning."""

    async def serve_forever(self) -> None:
        await self.wait_closed()

    def close(self) -> None:
        """Listen no more; connections stay."""
        self.sockets = ()
        self._network.unlisten(self)
        if not self._open:
            self._all_closed.set()

    async def wait_closed(self) -> None:
        """Wait until the server and the last of its connections are closed (as from Python 3.12
        on)."""
        await self._all_closed.wait()

    def accept(self, transport: SimTransport) -> None:
        """Make a connection's protocol, within the process."""
        if not self.sockets:
            transport.abort()
            return
        self._open[transport] = None
        transport.start(self._factory())

    def detach(self, transport: SimTransport) -> None:
        self._open.pop(transport, None)
        if not self.sockets and not self._open:
            self._all_closed.set()


class _Dial:
    """An attempt to connect."""

    def __init__(
        self, network: Network, process: Process, target: tuple[str, int], factory: Factory
    ) -> None:
        self.waiter: asyncio.Future[SimTransport] = network.loop.create_future()
        self.client: SimTransport | None = None
        self._network = network
        self._process = process
        self._target = target
        self._factory = factory

    def knock(self) -> None:
        """The request to connect reached the machine."""
        server = self._network.server_at(self._target)
        here, there = self._process.machine, self._target[0]
        if server is None:
            self._network.carry(there, here, self._refused)
        else:
            self._network.carry(there, here, partial(self._established, server))

    def _refused(self) -> None:
        text = f"connection to {self._target[0]}:{self._target[1]} refused"
        self._network.deliver(
            self._process, self._fail, ConnectionRefusedError(errno.ECONNREFUSED, text)
        )

    def _fail(self, error: OSError) -> None:
        if not self.waiter.done():
            self.waiter.set_exception(error)

    def _established(self, server: SimServer) -> None:
        """The answer came back: this end is open, the other one when its program accepts."""
        if not self._process.is_alive or self.waiter.done():
            return
        self.client = client = self._network.join(self._process, server)
        self._network.deliver(self._process, self._open, client)

    def _open(self, client: SimTransport) -> None:
        if self.waiter.done():
            client.abort()
            return
        try:
            client.start(self._factory())
        except Exception as error:
            client.abort()
            self.waiter.set_exception(error)
        else:
            self.waiter.set_result(client)


class Network:
    """The network of an engine; made by it."""

    def __init__(self, engine: Engine) -> None:
        self.loop = engine.loop
        self.trace = engine.trace
        self.chance = engine.random("network")
        self.at = engine.loop.at
        self.deliver = engine.loop.deliver
        self._engine = engine
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._ports: dict[str, int] = {}
        self._ends: dict[SimTransport, None] = {}
        self._made = 0
        self._blocked: dict[tuple[str, str], list[Callback]] = {}
        self._down: dict[str, list[Callback]] = {}
        self.is_impeded = False
        """True if there is anything that ``holds`` could find."""
        self._random = self.chance.random
        self._clogs: dict[tuple[str, str], float] = {}
        self._latency_s = _LATENCY_S
        self._spike: tuple[float, float] | None = None

    # -- faults ----------------------------------------------------------------------------------

    def block(self, source: str, target: str) -> None:
        """Let nothing pass in this direction; it is delivered after ``unblock``."""
        self._note(f"block {source} > {target}")
        self._blocked.setdefault((source, target), [])
        self.is_impeded = True

    def unblock(self, source: str, target: str) -> None:
        held = self._blocked.pop((source, target), None)
        if held is not None:
            self.is_impeded = bool(self._blocked or self._down)
            self._note(f"unblock {source} > {target}")
            for retry in held:
                self.at(self.loop.now_us + self.delay_us(source, target), retry)

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def clog(self, source: str, target: str, delay_s: float) -> None:
        """Delay everything that is sent in this direction."""
        self._note(f"clog {source} > {target} {delay_s:g}")
        self._clogs[source, target] = delay_s

    def unclog(self, source: str, target: str) -> None:
        """Deliver data in flight without its remaining delay, too."""
        if self._clogs.pop((source, target), None) is not None:
            self._note(f"unclog {source} > {target}")
            for end in list(self._ends):
                if (end.incoming.source, end.incoming.target) == (source, target):
                    end.incoming.hurry()

    def reset(self, one: str, other: str) -> None:
        """Reset every connection between two machines; what is on its way arrives in part."""
        self._note(f"reset {one} = {other}")
        for end in list(self._ends):
            source, target = end.incoming.source, end.incoming.target
            if (source, target) in ((one, other), (other, one)):
                end.cut()
                self.at(self.loop.now_us + self.delay_us(source, target), end.lose)

    def reset_one(self, end: SimTransport) -> None:
        """Reset the connection of this end, if it is still open."""
        if end in self._ends:
            self._note(f"reset one {end.incoming.source} = {end.incoming.target}")
            for each in (end, end.incoming.sender):
                each.cut()
                delay_us = self.delay_us(each.incoming.source, each.incoming.target)
                self.at(self.loop.now_us + delay_us, each.lose)

    def latency(self, min_s: float, max_s: float) -> None:
        """Set the delay of every segment, evenly distributed."""
        self._note(f"latency {min_s:g} to {max_s:g}")
        self._latency_s = (min_s, max_s)

    def spike(self, probability: float, max_s: float) -> None:
        """Now and then a segment takes up to so much longer: loss and retransmission."""
        self._note(f"spike {probability:g} {max_s:g}")
        self._spike = (probability, max_s) if probability else None

    def heal(self) -> None:
        """Undo all of the above. Connections that were reset stay so."""
        self.latency(*_LATENCY_S)
        self.spike(0.0, 0.0)
        for pair in list(self._clogs):
            self.unclog(*pair)
        for pair in list(self._blocked):
            self.unblock(*pair)

    def _note(self, text: str) -> None:
        self.trace.note(f"network: {text}")

    # -- carrying --------------------------------------------------------------------------------

    def delay_us(self, source: str, target: str) -> int:
        """Return what something sent now takes, blocks aside."""
        low, high = self._latency_s
        delay_s = low + (high - low) * self._random()
        if self._spike is not None:
            probability, max_s = self._spike
            if self._random() < probability:
                delay_s += max_s * self._random()
        if self._clogs:
            delay_s += self._clogs.get((source, target), 0.0)
        return int(delay_s * 1e6) + 1

    def carry(self, source: str, target: str, callback: Callable[..., None], *args: Any) -> None:
        """Call back, outside of all processes, when a message has come to its target; not in
        order with others. It waits while the direction is blocked or the target has no power."""
        self.at(
            self.loop.now_us + self.delay_us(source, target),
            self._carried,
            source,
            target,
            partial(callback, *args) if args else callback,
        )

    def _carried(self, source: str, target: str, callback: Callback) -> None:
        retry = partial(self._carried, source, target, callback)
        if not (self.is_impeded and self.holds(source, target, retry)):
            callback()

    def holds(self, source: str, target: str, retry: Callback) -> bool:
        """Tell whether what arrives now has to wait; ``retry`` is then called when it may try
        again."""
        held = self._blocked.get((source, target))
        if held is None:
            held = self._down.get(target)
        if held is None:
            return False
        held.append(retry)
        return True

    def is_down(self, machine: str) -> bool:
        """Tell whether it has lost its power."""
        return machine in self._down

    # -- connections -----------------------------------------------------------------------------

    def listen(self, factory: Factory, host: str | None, port: int) -> SimServer:
        """Open a port of the running process' machine. Raises OSError."""
        process = current_process()
        machine = process.machine
        if host is not None and host not in (*_HERE, machine):
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {machine}")
        if port == 0:
            port = self._ports.get(machine, _FIRST_FREE_PORT)
            self._ports[machine] = port + 1
        if (machine, port) in self._servers:
            raise OSError(errno.EADDRINUSE, f"port {port} of {machine} is in use")
        server = SimServer(self, process, port, factory)
        if process.is_alive:
            self._servers[server.address] = server
        return server

    def unlisten(self, server: SimServer) -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    def server_at(self, address: tuple[str, int]) -> SimServer | None:
        return self._servers.get(address)

    async def connect(
        self, factory: Factory, host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Connect the running process. Raises OSError; waits where the peer is silent."""
        process = current_process()
        target = process.machine if host in _HERE else host
        if not self._engine.is_machine(target):
            raise OSError(errno.EHOSTUNREACH, f"there is no machine {target}")
        dial = _Dial(self, process, (target, port), factory)
        if process.is_alive:
            self.carry(process.machine, target, dial.knock)
        try:
            transport = await dial.waiter
        except BaseException:
            if dial.client is not None:
                dial.client.abort()
            raise
        return transport, transport.get_protocol()

    def join(self, process: Process, server: SimServer) -> SimTransport:
        """Make a connection; gives the client's end, the server's is on its way."""
        self._made += 1
        there, here = server.address, (process.machine, _FIRST_FREE_PORT + self._made)
        out = Stream(self, 2 * self._made, here[0], there[0])
        back = Stream(self, 2 * self._made + 1, there[0], here[0])
        client = SimTransport(self, process, (here, there), out)
        accepted = SimTransport(self, server.process, (there, here), back)
        accepted.server = server
        client.incoming, accepted.incoming = back, out
        out.sender, out.receiver = client, accepted
        back.sender, back.receiver = accepted, client
        self._ends[client] = None
        if server.process.is_alive and server.is_serving():
            self._ends[accepted] = None
        else:
            accepted.vanish()
        out.send(Mark.ACCEPT)
        return client

    def forget(self, end: SimTransport) -> None:
        self._ends.pop(end, None)

    def choose_window(self) -> int:
        """Return how many unread bytes a stream carries."""
        return self.chance.choice(_WINDOWS)

    # -- processes -------------------------------------------------------------------------------

    def process_died(self, process: Process, *, silent: bool) -> None:
        """Close what it had open. Without power, nobody is told."""
        for address in [a for a, server in self._servers.items() if server.process is process]:
            del self._servers[address]
        if silent:
            self._down.setdefault(process.machine, [])
            self.is_impeded = True
        for end in [end for end in self._ends if end.process is process]:
            if silent:
                end.cut()
                end.vanish()
            else:
                end.leave()

    def machine_up(self, machine: str) -> None:
        """Restore power: data that was sent meanwhile is sent again."""
        waiting = self._down.pop(machine, ())
        self.is_impeded = bool(self._blocked or self._down)
        for retry in waiting:
            self.at(self.loop.now_us + int(self.chance.random() * _BOOT_S * 1e6), retry)

    def close(self) -> None:
        """The run is over: let everything go."""
        self._servers.clear()
        self._ends.clear()
        self._blocked.clear()
        self._down.clear()
