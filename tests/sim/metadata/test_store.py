"""The simulated metadata store: what networks and deaths do to sessions, and how late reads are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import NO_VERSION, SessionState, Version, Versioned
from tests.sim.metadata.world import TIMEOUT_S, World, code_of, simulate, until


def shown(node: Versioned | None) -> tuple[bytes, int, int] | None:
    """Value, number of changes, owner."""
    return None if node is None else (node.value, node.version.number, node.ephemeral_owner)


# -- lost messages -------------------------------------------------------------------------------


def test_a_write_whose_answer_is_blocked_took_effect_and_is_unknown() -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        world.network.block("zk", "c1")
        began = world.engine.now_us
        assert await code_of(process.call(store.create("/a", b""))) is ErrorCode.METADATA_UNKNOWN
        assert world.engine.now_us - began < 10_100_000
        assert world.has("/a")
        world.network.unblock("zk", "c1")
        assert shown(await process.call(store.get("/a"))) == (b"", 0, 0)

    for seed in range(1, 11):
        simulate(main, seed)


def test_a_write_that_was_sent_and_blocked_is_unknown_too() -> None:
    async def main(world: World) -> bool:
        process, store = await world.store("c1")
        world.network.block("c1", "zk")
        assert await code_of(process.call(store.create("/a", b""))) is ErrorCode.METADATA_UNKNOWN
        assert not world.has("/a")
        await asyncio.sleep(world.engine.random("test").random() * 4)  # the session may expire
        world.network.unblock("c1", "zk")
        known = await code_or_value(process.call(store.get("/a")))
        await asyncio.sleep(60)
        assert (known is not ErrorCode.METADATA_NOT_FOUND) == world.has("/a")
        return world.has("/a")

    assert {simulate(main, seed) for seed in range(1, 31)} == {False, True}


async def code_or_value(request: Awaitable[object]) -> object:
    try:
        return await request
    except FencelogError as error:
        return error.code


def test_a_write_without_a_connection_has_not_happened() -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        states: list[SessionState] = []
        store.on_session(states.append)
        world.cut("c1")
        await until(lambda: states == [SessionState.SUSPENDED])
        code = await code_of(process.call(store.create("/a", b"")))
        assert code is ErrorCode.METADATA_UNAVAILABLE
        assert await code_of(process.call(store.get("/a"))) is ErrorCode.METADATA_UNAVAILABLE
        world.network.heal()
        await asyncio.sleep(60)
        assert not world.has("/a")

    simulate(main)


def test_a_lost_reply_is_unknown_after_the_effect_and_read_back() -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        store.lose_next_reply()
        assert await code_of(process.call(store.create("/a", b"1"))) is ErrorCode.METADATA_UNKNOWN
        found = await process.call(store.get("/a"))
        assert shown(found) == (b"1", 0, 0)
        assert (await process.call(store.set("/a", b"2", found.version))).number == 1

    for seed in range(1, 21):
        simulate(main, seed)


def test_a_write_that_is_lost_is_unknown_and_has_not_happened() -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        store.lose_next_write("/a/")
        await process.call(store.create("/a", b""))  # another path
        assert await code_of(process.call(store.create("/a/b", b""))) is ErrorCode.METADATA_UNKNOWN
        await asyncio.sleep(60)
        assert not world.has("/a/b")
        await process.call(store.create("/a/b", b""))  # only one is lost
        store.lose_next_write("/a/")
        store.heal()
        await process.call(store.create("/a/c", b""))

    for seed in range(1, 21):
        simulate(main, seed)


def test_reads_are_sent_again_after_a_reset_and_writes_never() -> None:
    async def main(world: World) -> str:
        process, store = await world.store("c1")
        before = await process.call(store.create("/a", b""))
        chance = world.engine.random("test")
        for _ in range(20):
            read = process.spawn(store.get("/a"))
            write = process.spawn(store.set("/a", b"", before))
            await asyncio.sleep(chance.random() / 200)
            world.network.reset("c1", "zk")
            await asyncio.wait([read, write])
            after = Version(before.incarnation, before.number + 1)
            assert read.result().version in (before, after)
            known = (await process.call(store.get("/a"))).version
            if write.exception() is None:
                assert write.result() == known == after
            else:
                assert "metadata_unknown" in str(write.exception())
                assert known in (before, after)
            before = known
        return "unknown" if before.number < 20 else "known"

    assert {simulate(main, seed) for seed in range(1, 6)} == {"unknown"}


def test_a_store_that_refuses_is_unavailable_for_that_time() -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        seen: list[object] = []
        a = await process.call(store.create("/a", b""))
        store.refuse_for(3)

        async def life() -> None:
            store.watch_value("/a", seen.append)
            for request in (store.get("/a"), store.set("/a", b"", a), store.create("/b", b"")):
                assert await code_of(request) is ErrorCode.METADATA_UNAVAILABLE
            await asyncio.sleep(2.9)
            assert await code_of(store.children("/a")) is ErrorCode.METADATA_UNAVAILABLE
            assert seen == []
            await asyncio.sleep(0.2)
            assert await store.get("/a") == Versioned(b"", a)
            await until(lambda: seen == [Versioned(b"", a)])

        await process.call(life())
        assert not world.has("/b")

    simulate(main)


def test_nobody_there_is_a_clear_error_in_time() -> None:
    async def main(world: World) -> None:
        world.cut("c1")
        with pytest.raises(FencelogError, match="zk") as caught:
            await world.store("c1")
        assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
        assert world.engine.now_us < 10_000_000
        assert world.engine.processes[1].live_tasks() == []

    simulate(main)


# -- sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["kill", "silent kill", "cut", "cut off one way", "pause"])
def test_an_ephemeral_node_outlives_its_owner_by_the_session_timeout(ending: str) -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        await process.call(store.create("/me", b"", ephemeral=True))
        await asyncio.sleep(world.engine.random("test").random() * 10)
        match ending:
            case "kill":
                process.kill()
            case "silent kill":
                process.kill(silent=True)
            case "cut":
                world.cut("c1")
            case "cut off one way":
                world.network.block("c1", "zk")
            case "pause":
                process.pause()
        await asyncio.sleep(TIMEOUT_S * 2 / 3 - 0.1)  # the last ping may be a third of it old
        assert world.has("/me")
        await asyncio.sleep(TIMEOUT_S / 3 + 0.2)
        assert not world.has("/me")

    for seed in range(1, 6):
        simulate(main, seed)


def test_a_closed_session_takes_its_nodes_along_at_once() -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        await process.call(store.create("/me", b"", ephemeral=True))
        await process.call(store.close())
        assert not world.has("/me")
        assert process.live_tasks() == []

    simulate(main)


@pytest.mark.parametrize("how", ["cut", "pause", "expire"])
def test_an_expired_session_learns_it_when_it_connects_again(how: str) -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        states: list[SessionState] = []
        seen: list[Versioned | None] = []
        before = store.session_id

        async def begin() -> None:
            store.on_session(states.append)
            await store.create("/me", b"", ephemeral=True)
            store.watch_value("/me", seen.append)

        await process.call(begin())
        await until(lambda: [shown(node) for node in seen] == [(b"", 0, before)])
        if how == "expire":
            store.expire()
        else:
            world.cut("c1") if how == "cut" else process.pause()
            await asyncio.sleep(20)
            assert not world.has("/me")
            assert SessionState.EXPIRED not in states
            world.network.heal()
            process.resume()
        expected = [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
        await until(lambda: states == expected)
        assert store.session_id not in (0, before)
        await until(lambda: seen[-1] is None)
        await process.call(store.create("/me", b"", ephemeral=True))
        await until(lambda: shown(seen[-1]) == (b"", 0, store.session_id))

    for seed in range(1, 6):
        simulate(main, seed)


def test_no_node_is_left_of_a_session_that_expires_amid_creates() -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        world.tree.subscribe(lambda path: store.expire() if path == "/dir/010" else None)
        tasks = [
            process.spawn(store.create(f"/dir/{number:03}", b"", ephemeral=True))
            for number in range(100)
        ]
        await asyncio.wait(tasks)
        refused = [task.exception() for task in tasks if task.exception() is not None]
        assert refused
        assert all("metadata_unknown" in str(error) for error in refused)
        await process.call(store.create("/dir/last", b"", ephemeral=True))
        names = world.tree.children("/dir")
        owners = {world.tree.get(f"/dir/{name}").ephemeral_owner for name in names}
        assert owners == {store.session_id}

    for seed in range(1, 21):
        simulate(main, seed)


def test_a_short_cut_suspends_nobody_and_a_longer_one_keeps_the_session() -> None:
    async def main(world: World) -> None:
        process, store = await world.store("c1")
        states: list[SessionState] = []
        store.on_session(states.append)
        before = store.session_id
        await process.call(store.create("/me", b"", ephemeral=True))
        world.cut("c1")
        await asyncio.sleep(1)
        world.network.heal()
        await asyncio.sleep(10)
        assert states == []
        world.network.reset("c1", "zk")
        await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
        assert store.session_id == before
        assert world.has("/me")

    simulate(main)


# -- reads and watches ---------------------------------------------------------------------------


def test_reads_lag_behind_but_not_far_not_back_and_not_behind_own_writes() -> None:
    async def main(world: World) -> int:
        reader_process, reader = await world.store("r1")
        writer_process, writer = await world.store("w1")
        version = await writer_process.call(writer.create("/a", b""))
        times_us = [world.engine.now_us]
        assert (
            await code_of(reader_process.call(reader.delete("/a", NO_VERSION)))
            is ErrorCode.METADATA_CONFLICT
        )
        stale, own = 0, 0

        async def write() -> None:
            written = version
            for _ in range(40):
                written = await writer.set("/a", b"", written)
                times_us.append(world.engine.now_us)
                await asyncio.sleep(0.02)

        task = writer_process.spawn(write())
        last = 0
        while not task.done():
            newest = len(times_us) - 1
            asked_us = world.engine.now_us
            read = (await reader_process.call(reader.get("/a"))).version.number
            assert read >= last
            assert read >= own
            assert read >= sum(time_us < asked_us - 1_100_000 for time_us in times_us) - 1
            stale += read < newest
            last = read
            if world.engine.random("test").random() < 0.1:
                await reader_process.call(reader.create(f"/{world.engine.now_us}", b""))
                own = newest
        return stale

    seen = [simulate(main, seed) for seed in range(1, 11)]
    assert sum(stale > 10 for stale in seen) > 3
    assert len(set(seen)) > 5


def test_watches_are_late_and_deliver_the_newest_in_the_end() -> None:
    async def main(world: World) -> int:
        watcher_process, watcher = await world.store("r1")
        writer_process, writer = await world.store("w1")
        values: list[int] = []
        names: list[list[str]] = []

        async def watch() -> None:
            watcher.watch_value("/dir/a", lambda v: values.append(v.version.number if v else -1))
            watcher.watch_children("/dir", names.append)

        async def write() -> Version:
            version = await writer.create("/dir/a", b"")
            for _ in range(20):
                version = await writer.set("/dir/a", b"", version)
            await writer.create("/dir/b", b"")
            return version

        await watcher_process.call(watch())
        version = await writer_process.call(write())
        written_us = world.engine.now_us
        await until(lambda: values[-1:] == [20] and names[-1:] == [["a", "b"]])
        assert values == sorted(set(values))
        world.network.reset("r1", "zk")
        await writer_process.call(writer.set("/dir/a", b"", version))
        await until(lambda: values[-1] == 21)
        return world.engine.now_us - written_us

    took_us = [simulate(main, seed) for seed in range(1, 21)]
    assert max(took_us) > 100_000
    assert len(set(took_us)) > 10


def test_the_same_seed_is_the_same_history() -> None:
    def digest(seed: int) -> str:
        world = World(seed)

        async def main() -> None:
            stores = [await world.store(f"c{number}") for number in range(3)]
            for process, store in stores:
                process.spawn(store.create(f"/dir/{process.machine}", b"", ephemeral=True))
                process.spawn(store.create("/dir/common", b""))
                store.watch_children("/dir", lambda names: None)
            await asyncio.sleep(1)
            stores[0][1].expire()
            world.network.reset("c1", "zk")
            await asyncio.sleep(10)

        world.engine.run(main(), budget_s=100)
        return world.engine.trace.digest

    assert digest(3) == digest(3) != digest(4)
