"""The simulated network: ports, faults one way, and what connections see of deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fencelog.bookie.server.server import BookieServer
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.run import Run, build_run
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.bookie_port import AddsCallback, AddToken, ReadReply
from fencelog.ledgers.rpc.handshake import FEATURES
from tests.sim.network.pairs import PORT, End, Pair, pattern, simulate

# -- traffic ---------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_traffic() -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        for _ in range(100):
            client.transport.write(pattern(5000))
            await asyncio.sleep(0.0001)
        await server.until(lambda: len(server.data) == 500_000)

    async def other(pair: Pair) -> None:
        client, server = await pair.joined()
        for number in range(100):
            client.transport.write(pattern(5000) if number != 50 else b"\1" * 5000)
            await asyncio.sleep(0.0001)
        await server.until(lambda: len(server.data) == 500_000)

    assert simulate(main) == simulate(main)
    assert simulate(main) != simulate(main, seed=2)
    assert simulate(main) != simulate(other)  # the same sizes, one other content


def test_connections_overtake_one_another() -> None:
    async def main(pair: Pair) -> None:
        orders = set()
        for _ in range(30):
            (one, one_end), (two, two_end) = await pair.joined(), await pair.joined()
            one.transport.write(b"1")
            two.transport.write(b"2")
            await asyncio.wait(
                [asyncio.create_task(end.changed.wait()) for end in (one_end, two_end)],
                return_when="FIRST_COMPLETED",
            )
            orders.add(bytes(one_end.data + two_end.data)[:1])
        assert orders == {b"1", b"2"}

    simulate(main)


# -- ports -----------------------------------------------------------------------------------------


def test_ports_are_refused_taken_and_given_out() -> None:
    async def main(pair: Pair) -> None:
        loop = pair.engine.loop
        with pytest.raises(ConnectionRefusedError, match="s:3181 refused"):
            await pair.connect()
        await pair.listen()
        with pytest.raises(OSError, match="in use"):
            await pair.listen()
        with pytest.raises(OSError, match="not an address of s"):
            await pair.s.call(loop.create_server(End, "c", 1))
        servers = [await pair.s.call(loop.create_server(End, "0.0.0.0", 0)) for _ in range(2)]
        assert len({server.sockets[0].getsockname() for server in servers}) == 2
        with pytest.raises(OSError, match="no machine nowhere"):
            await pair.c.call(loop.create_connection(End, "nowhere", 1))
        await pair.s.call(loop.create_connection(End, "127.0.0.1", PORT))

    simulate(main, listen=False)


# -- one way ---------------------------------------------------------------------------------------


def test_a_block_holds_in_one_direction_until_it_is_lifted() -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        pair.network.block("c", "s")
        client.transport.write(b"request")
        server.transport.write(b"news")
        await client.until(lambda: client.data == b"news")
        with pytest.raises(TimeoutError):
            await pair.connect(within_s=10)
        assert server.data == b""
        assert pair.network.is_blocked("c", "s")
        pair.network.unblock("c", "s")
        await server.until(lambda: server.data == b"request")
        pair.network.block("s", "c")
        with pytest.raises(TimeoutError):
            await pair.connect(within_s=10)
        pair.network.heal()
        await pair.connect()

    simulate(main)


def test_a_clog_delays_and_lifting_it_hurries_what_is_on_its_way() -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        loop = pair.engine.loop
        pair.network.clog("c", "s", 3)
        begin = loop.time()
        client.transport.write(b"1")
        await server.until(lambda: server.data == b"1")
        assert 3 < loop.time() - begin < 3.1
        pair.network.clog("c", "s", 500)
        client.transport.write(b"2")
        await asyncio.sleep(1)
        pair.network.unclog("c", "s")
        client.transport.write(b"3")
        await server.until(lambda: server.data == b"123")
        assert loop.time() - begin < 4.2

    simulate(main)


def test_an_attempt_that_was_given_up_leaves_no_connection() -> None:
    async def main(pair: Pair) -> None:
        pair.network.latency(1, 2)
        chance = pair.engine.random("test")
        for _ in range(40):
            with pytest.raises(TimeoutError):
                await pair.connect(within_s=2 * chance.random())
        await asyncio.sleep(20)
        assert all("lost" in end.events[-1] for end in pair.accepted)
        assert not pair.network._ends

    simulate(main)


@pytest.mark.parametrize("delay_s", [0.4, 0.55])
def test_an_attempt_that_succeeds_as_it_is_given_up_leaves_no_connection(delay_s: float) -> None:
    """Both happen while the process is stopped: before or after the connection is there."""

    async def main(pair: Pair) -> None:
        async def attempt() -> None:
            async with asyncio.timeout(1):
                await pair.engine.loop.create_connection(End, "s", PORT)

        pair.network.latency(delay_s, delay_s)
        pair.engine.loop.call_later(0.1, pair.c.pause)
        pair.engine.loop.call_later(5, pair.c.resume)
        with pytest.raises(TimeoutError):
            await pair.c.call(attempt())
        await asyncio.sleep(5)
        assert not pair.network._ends

    simulate(main)


# -- deaths ----------------------------------------------------------------------------------------


def test_peers_learn_of_a_death_and_what_was_sent_before_it_arrives() -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        server.transport.write(b"last words")
        pair.s.kill()
        server.transport.write(b"of a ghost")
        await client.until(lambda: "lost" in client.events)
        assert client.data == b"last words"
        assert client.events == ["eof", "lost"]
        assert server.events == []
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    simulate(main)


def test_a_death_with_unread_bytes_is_a_reset() -> None:
    async def main(pair: Pair) -> None:
        client, _ = await pair.joined()
        pair.s.pause()
        client.transport.write(b"unread")
        await asyncio.sleep(1)
        pair.s.kill()
        await client.until(lambda: bool(client.events))
        assert client.events == ["lost ConnectionResetError"]

    simulate(main)


def test_after_a_loss_of_power_connections_are_half_open_until_the_machine_is_back() -> None:
    async def main(pair: Pair) -> None:
        client, _ = await pair.joined()
        idle, _ = await pair.joined()
        pair.s.kill(silent=True)
        client.transport.write(b"into the void")
        with pytest.raises(TimeoutError):
            await pair.connect(within_s=30)
        assert client.events == []
        pair.s = pair.engine.start_process("s")
        await pair.listen()
        await client.until(lambda: bool(client.events))
        assert client.events == ["lost ConnectionResetError"]
        await asyncio.sleep(30)
        assert idle.events == []  # it said nothing, so nobody could tell it
        idle.transport.write(b"hello?")
        await idle.until(lambda: bool(idle.events))
        assert idle.events == ["lost ConnectionResetError"]
        fresh, accepted = await pair.joined()
        fresh.transport.write(b"hello")
        await accepted.until(lambda: accepted.data == b"hello")

    simulate(main)


# -- the real client and the real server -----------------------------------------------------------


class StubBookie:
    """The part of a bookie that its server needs: keeps runs, answers a little later."""

    def __init__(self) -> None:
        self.bookie_id = "b1"
        self.incarnation = "1"
        self.features = FEATURES
        self.is_under_pressure = False
        self.on_pressure: dict[object, None] = {}
        self.runs: list[bytes] = []

    def add_many(
        self, runs: Sequence[Run], tokens: Sequence[AddToken], *, on_replies: AddsCallback
    ) -> None:
        self.runs += [run.data for run in runs]
        asyncio.get_running_loop().call_later(0.001, on_replies, tokens, None)

    async def read(self, ledger_id: int, first: int, **limits: int) -> ReadReply:
        return ReadReply(5, b"run of " + str(first).encode())


async def serve(bookie: StubBookie) -> None:
    await BookieServer.start(bookie, "s", PORT)  # type: ignore[arg-type]  # a stub


class Calls:
    """A real client that adds and keeps what it is told."""

    def __init__(self) -> None:
        self.client = TcpBookieClient("b1", f"s:{PORT}", timeout_ms=2000)
        self.replies: list[FencelogError | None] = []
        self.wakeup = asyncio.Event()

    def add(self, run: bytes) -> None:
        self.client.add(run, recovery=False, incarnation="1", on_reply=self._reply)

    def _reply(self, error: FencelogError | None) -> None:
        self.replies.append(error)
        self.wakeup.set()

    async def add_all(self, runs: list[bytes]) -> list[ErrorCode | None]:
        """Add and wait for every answer, in the process that calls."""
        expected = len(self.replies) + len(runs)
        for run in runs:
            self.add(run)
        while len(self.replies) < expected:
            self.wakeup.clear()
            await self.wakeup.wait()
        return [e.code if e else None for e in self.replies[expected - len(runs) :]]


def runs_of(count: int, size: int) -> list[bytes]:
    return [
        build_run(1, number, [bytes([number]) * size], lac=-1, length_before=0)
        for number in range(count)
    ]


def test_the_real_client_and_server_talk_over_it() -> None:
    async def main(pair: Pair) -> None:
        bookie, calls, runs = StubBookie(), Calls(), runs_of(100, 20_000)
        await pair.s.call(serve(bookie))
        assert await pair.c.call(calls.add_all(runs)) == [None] * 100
        assert bookie.runs == runs
        read = calls.client.read(1, 7, max_entries=1, max_bytes=1000)
        assert await pair.c.call(read) == ReadReply(5, b"run of 7")
        await pair.c.call(calls.client.close())

    assert simulate(main, listen=False) == simulate(main, listen=False)


def test_the_real_client_sees_resets_silence_and_restarts() -> None:
    async def main(pair: Pair) -> None:
        bookie, calls, runs = StubBookie(), Calls(), runs_of(20, 1000)
        await pair.s.call(serve(bookie))
        assert await pair.c.call(calls.add_all(runs)) == [None] * 20
        pair.network.block("s", "c")
        adding = pair.c.spawn(calls.add_all(runs))
        await asyncio.sleep(0.1)
        pair.network.reset("s", "c")
        assert await adding == [ErrorCode.REQUEST_TIMEOUT] * 20
        pair.network.heal()
        assert await pair.c.call(calls.add_all(runs)) == [None] * 20
        pair.s.kill(silent=True)
        before = pair.engine.loop.time()
        assert await pair.c.call(calls.add_all(runs)) == [ErrorCode.REQUEST_TIMEOUT] * 20
        assert 2 <= pair.engine.loop.time() - before < 2.1
        pair.s = pair.engine.start_process("s")
        assert await pair.c.call(calls.add_all(runs)) == [ErrorCode.BOOKIE_UNAVAILABLE] * 20
        await pair.s.call(serve(bookie))
        await asyncio.sleep(1)
        assert await pair.c.call(calls.add_all(runs)) == [None] * 20

    simulate(main, listen=False)
