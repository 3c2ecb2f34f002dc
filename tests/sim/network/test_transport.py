"""Simulated connections: bytes in order under every fault, flow control, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from tests.sim.network.pairs import PORT, End, Pair, pattern, simulate


def has_received(end: End, count: int) -> bool:
    return len(end.data) == count


# -- bytes -----------------------------------------------------------------------------------------


def test_bytes_arrive_in_order_in_other_pieces() -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        data = pattern(100_000)
        client.transport.write(data[:1000])
        client.transport.writelines([data[1000:1500], bytearray(data[1500:2000])])
        client.transport.write(b"")
        for start in range(2000, len(data), 1000):
            client.transport.write(memoryview(data)[start : start + 1000])
        await server.until(lambda: len(server.data) == len(data))
        assert server.data == data
        assert len(server.chunks) > 1
        assert any(len(chunk) % 1000 for chunk in server.chunks)
        server.transport.write(b"answer")
        await client.until(lambda: client.data == b"answer")
        assert client.transport.get_extra_info("peername") == ("s", PORT)
        assert server.transport.get_extra_info("sockname") == ("s", PORT)
        with pytest.raises(TypeError, match="str"):
            client.transport.write("text")  # type: ignore[arg-type]  # the mistake under test

    simulate(main)


def _faults(pair: Pair) -> dict[str, Callable[[], object]]:
    network = pair.network
    return {
        "block there": lambda: network.block("c", "s"),
        "block back": lambda: network.block("s", "c"),
        "clog": lambda: network.clog("c", "s", 0.2),
        "slow": lambda: network.latency(0.001, 0.05),
        "spike": lambda: network.spike(0.3, 0.5),
        "pause": pair.s.pause,
        "none": lambda: None,
        "heal": network.heal,
        "resume": pair.s.resume,
    }


@pytest.mark.parametrize("seed", range(1, 21))
def test_streams_stay_whole_under_faults_in_both_directions(seed: int) -> None:
    async def main(pair: Pair) -> None:
        chance = pair.engine.random("test")
        faults = _faults(pair)
        data = pattern(2_000_000)
        ends = await pair.joined()
        sent = [0, 0]
        while sent != [len(data)] * 2:
            for side, end in enumerate(ends):
                size = chance.choice([1, 10, 1000, 100_000])
                end.transport.write(data[sent[side] : sent[side] + size])
                sent[side] = min(sent[side] + size, len(data))
            if chance.random() < 0.2:
                faults[chance.choice(list(faults))]()
            if chance.random() < 0.1:
                reader = chance.choice(ends).transport
                reader.pause_reading()
                pair.engine.loop.call_later(chance.random(), reader.resume_reading)
            await asyncio.sleep(chance.random() / 100)
        pair.s.resume()
        pair.network.heal()
        for end in ends:
            await end.until(partial(has_received, end, len(data)))
            assert end.data == data

    assert simulate(main, seed=seed)


# -- flow control ----------------------------------------------------------------------------------


def test_what_a_reader_does_not_take_waits_with_the_sender() -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        client.transport.set_write_buffer_limits(high=100_000)
        assert client.transport.get_write_buffer_limits() == (25_000, 100_000)
        data = pattern(2_000_000)
        client.transport.write(data)
        await asyncio.sleep(1)
        waiting = client.transport.get_write_buffer_size()
        assert waiting >= len(data) - (1 << 20)
        assert client.events == ["pause"]
        assert server.data == b""
        client.transport.close()
        assert client.transport.is_closing()
        client.transport.write(b"ignored")
        server.transport.write(b"too late")
        await asyncio.sleep(1)
        server.transport.resume_reading()
        await server.until(lambda: "lost" in server.events)
        assert client.data == b""
        assert client.events == ["pause", "resume", "lost"]
        assert server.events == ["lost ConnectionResetError"]
        assert data.startswith(server.data)


def test_a_close_sends_what_waits_and_then_the_end() -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        data = pattern(3_000_000)
        client.transport.write(data)
        client.transport.close()
        await server.until(lambda: "lost" in server.events)
        assert server.data == data
        assert server.events == ["eof", "lost"]
        assert client.events == ["pause", "resume", "lost"]

    simulate(main)

    simulate(main)


def test_a_paused_process_takes_nothing_and_its_peer_may_still_write_a_window() -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        pair.s.pause()
        client.transport.write(b"small")
        await asyncio.sleep(1)
        assert server.data == b""
        assert client.transport.get_write_buffer_size() == 0
        other = await pair.connect()  # its kernel answers
        assert len(pair.accepted) == 1
        other.transport.write(bytes(2_000_000))
        await asyncio.sleep(1)
        assert other.transport.get_write_buffer_size() > 0
        pair.s.resume()
        await server.until(lambda: server.data == b"small")
        await asyncio.sleep(1)
        assert len(pair.accepted[1].data) == 2_000_000

    simulate(main)


# -- ends ------------------------------------------------------------------------------------------


def test_an_abort_in_the_middle_of_a_read_ends_both_sides() -> None:
    class Rude(End):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.abort()
            self.transport.write(b"never")

    async def main(pair: Pair) -> None:
        rude: list[Rude] = []

        def factory() -> Rude:
            rude.append(Rude())
            return rude[-1]

        server = await pair.s.call(pair.engine.loop.create_server(factory, "s", 0))
        port = server.sockets[0].getsockname()[1]
        _, client = await pair.c.call(pair.engine.loop.create_connection(End, "s", port))
        for _ in range(50):
            client.transport.write(b"x" * 100)
        await client.until(lambda: len(client.events) >= 1 and "lost" in client.events[-1])
        assert rude[0].events == ["lost"]
        assert len(rude[0].chunks) == 1
        assert client.data == b""
        server.close()
        await pair.s.call(server.wait_closed())
        with pytest.raises(ConnectionRefusedError):
            await pair.c.call(pair.engine.loop.create_connection(End, "s", port))

    simulate(main)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_reset_cuts_streams_anywhere(seed: int) -> None:
    async def main(pair: Pair) -> None:
        client, server = await pair.joined()
        other, _ = await pair.joined()
        data = pattern(200_000)
        pair.network.latency(0.01, 0.1)
        client.transport.write(data[:-50_000])
        await asyncio.sleep(0.2 * pair.engine.random("test").random())
        client.transport.write(data[-50_000:])
        pair.network.reset("s", "c")
        client.transport.write(b"after")
        await asyncio.sleep(1)
        assert client.events[-1] == server.events[-1] == "lost ConnectionResetError"
        assert other.events == ["lost ConnectionResetError"]
        assert data.startswith(server.data)
        assert len(server.data) < len(data)

    simulate(main, seed=seed)
