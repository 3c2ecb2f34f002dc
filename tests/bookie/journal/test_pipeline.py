"""The journal's two I/O threads, step by step: what may be on its way at once, and what fails with
what.

The I/O threads do nothing until they are told, so every interleaving here is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random  # noqa: TID251 - each test seeds its own

import pytest

from fencelog.bookie.journal.file import journal_name
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.stepped_journal import Answers, SteppedJournal, replay, turn


@pytest.fixture
async def setup() -> AsyncIterator[SteppedJournal]:
    setup = SteppedJournal()
    await setup.start()
    yield setup
    await setup.finish()


def numbers(answers: Answers) -> list[int]:
    assert [error for _number, error in answers] == [None] * len(answers)
    return [number for number, _error in answers]


async def test_a_lone_group_is_one_piece_of_work(setup: SteppedJournal) -> None:
    await setup.append(3)
    assert not setup.write_io_thread.has_work
    await setup.step(setup.sync_io_thread)
    assert setup.disk.calls == ["write", "sync"]
    assert numbers(setup.answers) == [0, 1, 2]
    assert not setup.sync_io_thread.is_busy


async def test_under_load_groups_are_written_while_another_is_synced(setup: SteppedJournal) -> None:
    await setup.append()
    await setup.append(size=200)  # while the first is being written and synced: it has to wait
    assert not setup.write_io_thread.has_work
    await setup.step(setup.sync_io_thread)
    await setup.step(setup.write_io_thread)
    assert setup.disk.calls == ["write", "sync", "write"]
    assert setup.sync_io_thread.has_work  # the second's sync
    await setup.append()
    await setup.step(setup.write_io_thread)
    await setup.append()
    await setup.step(setup.write_io_thread)
    assert numbers(setup.answers) == [0]
    await setup.step(setup.sync_io_thread)
    assert numbers(setup.answers) == [0, 1]
    await setup.step(setup.sync_io_thread)  # one for both
    assert numbers(setup.answers) == [0, 1, 2, 3]
    assert setup.disk.calls == ["write", "sync", "write", "write", "write", "sync", "sync"]
    # What a record says was synced was so when it was written: 3 and 4 beside the sync of 2.
    assert [r.durable for r in setup.records()] == [0, 1, 1, 1]


async def test_runs_of_one_call_are_one_group_and_join_what_waits(setup: SteppedJournal) -> None:
    await setup.append()
    await setup.append_runs([10] * 6)  # while the first is being written and synced
    await setup.append()
    await setup.step(setup.sync_io_thread)
    assert numbers(setup.answers) == [0]
    setup.write_io_thread.run_free()
    setup.sync_io_thread.run_free()
    await turn()
    assert numbers(setup.answers) == list(range(8))
    assert [r.sequence for r in setup.records()] == list(range(1, 9))


async def test_runs_of_one_call_may_take_several_files(setup: SteppedJournal) -> None:
    """A file takes 8 KiB; each run has its answer once, in order, and none is cut."""
    setup.write_io_thread.run_free()
    setup.sync_io_thread.run_free()
    chance = Random(1)
    sizes = [chance.randint(0, 2000) for _ in range(40)]
    await setup.append_runs(sizes)
    await setup.append_runs([3000])
    await turn()
    assert numbers(setup.answers) == list(range(41))
    assert setup.journal.position.file_id > 4
    assert setup.journal.position.sequence == 42
    assert replay(setup.disk) == setup.bodies


async def test_what_is_small_waits_for_the_sync_and_joins_what_was_written() -> None:
    setup = SteppedJournal(max_file_bytes=128 * 1024)  # 1 KiB is worth a piece of work of its own
    await setup.start()
    await setup.append()
    await setup.append(8, size=200)
    await setup.step(setup.sync_io_thread)
    await setup.step(setup.write_io_thread)
    await setup.append(8, size=200)
    await setup.step(setup.write_io_thread)
    await setup.append()
    assert not setup.write_io_thread.has_work
    await setup.step(setup.sync_io_thread)
    await setup.step(setup.sync_io_thread)
    assert numbers(setup.answers) == list(range(18))
    assert setup.disk.calls == ["write", "sync", "write", "write", "sync", "write", "sync"]
    assert [r.durable for r in setup.records()] == [0, *[1] * 16, 9]
    await setup.finish()


async def test_a_group_that_is_still_being_written_is_not_covered_by_a_sync(
    setup: SteppedJournal,
) -> None:
    await setup.append()
    await setup.append()
    await setup.step(setup.sync_io_thread)
    await setup.step(setup.write_io_thread)
    await setup.append()
    setup.write_io_thread.work()  # written, but nobody knows
    await setup.step(setup.sync_io_thread)
    assert numbers(setup.answers) == [0, 1]
    assert setup.journal.durable_before == 3  # the third record is not
    assert not setup.sync_io_thread.has_work
    setup.write_io_thread.report()
    await turn()
    await setup.step(setup.sync_io_thread)
    assert numbers(setup.answers) == [0, 1, 2]


async def test_a_file_is_begun_when_all_of_the_one_before_it_is_synced(
    setup: SteppedJournal,
) -> None:
    await setup.append()
    await setup.append(20, size=300)
    await setup.step(setup.sync_io_thread)
    await setup.append(15, size=300)  # the last of these do not fit
    await setup.step(setup.write_io_thread)
    for _ in range(10):
        for io_thread in (setup.write_io_thread, setup.sync_io_thread):
            if io_thread.has_work:
                await setup.step(io_thread)
                begun = setup.disk.files.get(journal_name(2))
                assert begun is None or not setup.disk.files[journal_name(1)].unsynced
    assert numbers(setup.answers) == list(range(36))
    assert setup.records(2)[0].durable == setup.records(1)[-1].sequence
    assert replay(setup.disk) == setup.bodies


async def both_io_threads_at_work(setup: SteppedJournal) -> None:
    """Record 0 is durable, 1 is being synced, 2 being written, 3 waits."""
    await setup.append()
    await setup.append()
    await setup.step(setup.sync_io_thread)
    await setup.step(setup.write_io_thread)
    await setup.append()
    await setup.append()
    assert setup.sync_io_thread.has_work
    assert setup.write_io_thread.has_work
    assert numbers(setup.answers) == [0]


@pytest.mark.parametrize("failing", ["write", "sync"])
@pytest.mark.parametrize("is_late", [False, True])
async def test_when_one_io_thread_fails_the_other_does_nothing_more_and_all_are_told(
    setup: SteppedJournal, failing: str, is_late: bool
) -> None:
    """``is_late``: the other I/O thread begins before the event loop knows of the failure."""
    await both_io_threads_at_work(setup)
    setup.disk.fails.add(failing)
    first, second = setup.sync_io_thread, setup.write_io_thread
    if failing == "write":
        first, second = second, first
    first.work()
    setup.disk.fails.clear()
    calls = len(setup.disk.calls)
    if not is_late:
        first.report()
        await turn()
        assert len(setup.answers) == 4
    second.work()
    first.report()
    second.report()
    await turn()
    await setup.append()
    assert len(setup.disk.calls) == calls
    assert not setup.write_io_thread.is_busy
    assert not setup.sync_io_thread.is_busy
    codes = [error.code if error else None for _number, error in setup.answers]
    assert codes == [None, *[ErrorCode.STORAGE_FAILED] * 4]
    assert [number for number, _error in setup.answers] == [0, 1, 2, 3, 4]
    assert len(setup.failures) == 1


async def test_a_failure_elsewhere_ends_it_with_both_io_threads_at_work(
    setup: SteppedJournal,
) -> None:
    await both_io_threads_at_work(setup)
    stopped = FencelogError(ErrorCode.STORAGE_FAILED, "the flush failed")
    setup.journal.fail(stopped)
    await turn()
    assert setup.answers == [(0, None), (1, stopped), (2, stopped), (3, stopped)]
    closing = asyncio.get_running_loop().create_task(setup.journal.close())
    await turn()
    while setup.sync_io_thread.has_work:
        await setup.step(setup.sync_io_thread)
    assert "close" not in setup.disk.calls  # the other I/O thread may still write to it
    setup.write_io_thread.run_free()
    await turn()
    setup.sync_io_thread.run_free()
    await closing
    assert setup.disk.calls[-1] == "close"
    assert len(setup.answers) == 4
    assert setup.failures == []


async def test_closing_waits_for_both_io_threads(setup: SteppedJournal) -> None:
    await both_io_threads_at_work(setup)
    closing = asyncio.get_running_loop().create_task(setup.journal.close())
    await turn()
    assert not closing.done()
    setup.sync_io_thread.run_free()
    setup.write_io_thread.run_free()
    await closing
    assert numbers(setup.answers) == [0, 1, 2, 3]
    assert setup.disk.calls[-1] == "close"
    assert not setup.disk.files[journal_name(1)].unsynced


async def test_a_barrier_is_behind_everything_on_the_way(setup: SteppedJournal) -> None:
    await both_io_threads_at_work(setup)
    setup.journal.barrier(lambda error: setup.answers.append((99, error)))
    setup.sync_io_thread.run_free()
    setup.write_io_thread.run_free()
    await turn()
    assert numbers(setup.answers) == [0, 1, 2, 3, 99]


async def test_runs_that_are_not_synced_are_answered_when_they_are_written() -> None:
    setup = SteppedJournal(sync_runs=False)
    await setup.start()
    await setup.append()
    await setup.append()
    await setup.step(setup.sync_io_thread)
    assert numbers(setup.answers) == [0]
    await setup.step(setup.sync_io_thread)
    assert setup.disk.calls == ["write", "write"]
    await setup.append(control=True)
    await setup.append()
    await setup.step(setup.sync_io_thread)
    await setup.step(setup.sync_io_thread)
    assert setup.disk.calls == ["write", "write", "write", "sync", "write"]
    assert [r.durable for r in setup.records()] == [0, 0, 0, 3]
    await setup.finish()


@pytest.mark.parametrize("sync_runs", [True, False])
async def test_a_journal_of_control_records_alone_is_synced(sync_runs: bool) -> None:
    """A bookie that journals no runs syncs every control record, and nothing else."""
    setup = SteppedJournal(sync_runs=sync_runs, max_file_bytes=256)
    await setup.start()
    setup.sync_io_thread.run_free()
    setup.write_io_thread.run_free()
    await setup.journal.settle(sync=True)
    assert setup.disk.calls == []
    for _ in range(12):
        await setup.append(control=True)
        assert not any(file.unsynced for file in setup.disk.files.values())
    assert numbers(setup.answers) == list(range(12))
    calls = len(setup.disk.calls)
    await setup.journal.settle(sync=True)
    await setup.journal.settle()
    assert len(setup.disk.calls) == calls
    assert len(setup.disk.files) > 2
    assert replay(setup.disk.copy()) == setup.bodies
    assert replay(setup.disk.after_power_loss(Random(1))) == setup.bodies
    await setup.finish()


@pytest.mark.parametrize("sync_runs", [True, False])
@pytest.mark.parametrize("seed", range(60))
async def test_after_a_power_loss_at_any_step_all_that_was_promised_is_there(
    seed: int, sync_runs: bool
) -> None:
    """Whatever the disk keeps of what was not synced, the start is not refused either."""
    random = Random(seed)
    setup = SteppedJournal(max_file_bytes=random.choice((1024, 4096)), sync_runs=sync_runs)
    await setup.start()
    promised = 0
    for _ in range(40):
        choice = random.randrange(4)
        io_thread = random.choice((setup.write_io_thread, setup.sync_io_thread))
        if choice == 0:
            await setup.append(random.randint(1, 3), size=random.randint(1, 90))
        elif choice == 1 and not sync_runs:
            await setup.append(control=True)
        elif io_thread.has_work:
            await setup.step(io_thread)
        if sync_runs:
            promised = len(numbers(setup.answers))
        else:
            controls = [n for n in numbers(setup.answers) if len(setup.bodies[n]) == 8]
            promised = max([n + 1 for n in controls], default=0)
        bodies = replay(setup.disk.after_power_loss(random))
        assert promised <= len(bodies)
        assert bodies == setup.bodies[: len(bodies)]
    await setup.finish()
    assert replay(setup.disk) == setup.bodies
