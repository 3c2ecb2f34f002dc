"""Members of the writer's ensemble: failing, replaced, gone for good, and back as somebody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata import model as metadata_module
from fencelog.ledgers.ledger_metadata.model import Fragment
from fencelog.ledgers.metastore.port import Version
from fencelog.ledgers.writer.options import WriterOptions
from tests.support.metadata_nodes import later
from tests.support.scripted_cluster import Cluster, MakeCluster
from tests.support.until import until

DELAYED = WriterOptions(explicit_lac_interval_ms=0, delay_ensemble_change=True)


def fragments(cluster: Cluster) -> list[tuple[int, str]]:
    return [(f.first_entry_id, " ".join(f.bookies)) for f in cluster.metadata().fragments]


def failing(cluster: Cluster, name: str, code: ErrorCode) -> None:
    error = FencelogError(code, f"{name}: {code.slug}")
    cluster.bookies[name].fault = lambda request: error


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.READ_ONLY,
        ErrorCode.OVERLOADED,
        ErrorCode.WRONG_INCARNATION,
        ErrorCode.REQUEST_TIMEOUT,
        ErrorCode.BOOKIE_UNAVAILABLE,
        ErrorCode.STORAGE_FAILED,
        ErrorCode.LEDGER_IN_LIMBO,
    ],
)
async def test_whatever_a_bookie_refuses_with_it_is_replaced(
    make_cluster: MakeCluster, code: ErrorCode
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    failing(cluster, "b2", code)
    await cluster.write(writer, b"x")
    assert fragments(cluster) == [(0, "b1 b4 b3")]
    assert cluster.failures == []


async def test_a_bookie_that_knows_another_secret_is_a_failed_member(
    make_cluster: MakeCluster,
) -> None:
    """The bookie refuses every connection of this process before anything is sent; that says
    nothing about the ledger. A bookie that is set up wrongly must not be worse than a dead one."""
    cluster = make_cluster(4)
    writer = cluster.create()
    failing(cluster, "b2", ErrorCode.UNAUTHORIZED)
    await cluster.write(writer, b"x")
    assert cluster.failures == []
    assert "b2" not in cluster.metadata().last_fragment.bookies
    assert all("b2" not in cluster.placement.choose(3) for _ in range(20))


async def test_two_failures_at_once_are_one_change(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(5)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    cluster.bookies["b1"].go_down()
    cluster.bookies["b2"].go_down()
    await cluster.write(writer, b"1")
    assert [first for first, _ in fragments(cluster)] == [0, 1]
    assert set(cluster.metadata().last_fragment.bookies) == {"b3", "b4", "b5"}


async def test_one_replacement_for_two_failed_members_is_taken(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    cluster.bookies["b1"].go_down()
    cluster.bookies["b2"].go_down()
    await cluster.write(writer, b"0")
    assert len(set(cluster.metadata().last_fragment.bookies) & {"b1", "b2"}) == 1
    assert cluster.failures == []


async def test_a_bookie_with_another_incarnation_is_replaced_and_not_taken_back(
    make_cluster: MakeCluster,
) -> None:
    """The bookie has fenced every ledger that names it at its start (rule 10): as a member it would
    end the writer. It is well otherwise, and other ledgers may have it."""
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    returned = cluster.bookies["b1"]
    returned.incarnation = "2"
    returned.entries.clear()
    returned.fenced.add(1)
    await cluster.write(writer, b"1")
    assert fragments(cluster)[-1] == (1, "b4 b2 b3")
    assert 1 not in returned.entries
    cluster.bookies["b4"].go_down()
    await cluster.write(writer, b"2")
    assert fragments(cluster)[-1] == (1, "b4 b2 b3")
    assert cluster.failures == []
    other = cluster.create(2)
    assert (await other.close()).last_fragment.bookies == ("b1", "b2", "b3")


async def test_a_former_member_with_the_same_incarnation_may_be_taken_back(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    cluster.bookies["b1"].go_down()
    await cluster.write(writer, b"0")
    cluster.bookies["b1"].come_back()
    cluster.placement._quarantine.clear()  # the failure is long past
    cluster.bookies["b3"].go_down()
    await cluster.write(writer, b"1")
    await cluster.until(lambda: fragments(cluster) == [(0, "b4 b2 b3"), (2, "b4 b2 b1")])
    await cluster.write(writer, b"2")
    assert set(cluster.bookies["b1"].entries[1]) == {2}


async def test_a_new_member_is_held_to_the_incarnation_it_was_chosen_with(
    make_cluster: MakeCluster,
) -> None:
    """The bookie loses its disk between the choice and the first add: it is never sent one."""
    cluster = make_cluster(4)
    writer = cluster.create()
    cluster.bookies["b1"].go_down()

    def wipe() -> None:
        cluster.bookies["b4"].incarnation = "2"

    cluster.ledgers.before_update = wipe
    await cluster.write(writer, b"x")
    assert fragments(cluster) == [(0, "b4 b2 b3")]
    assert cluster.bookies["b4"].entries == {}


async def test_an_ensemble_that_somebody_else_changed_ends_the_writer(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    foreign = replace(cluster.metadata(), fragments=(Fragment(0, ("b1", "b2", "b4")),))
    cluster.ledgers.values[1] = (foreign, Version(1, 1))
    cluster.bookies["b1"].go_down()
    writer.append(b"x")
    await cluster.until(lambda: bool(cluster.failures))
    assert cluster.failures[0].code is ErrorCode.LEDGER_FENCED
    assert cluster.ledgers.values[1] == (foreign, Version(1, 1))


async def test_earlier_fragments_that_were_repaired_stay_as_they_are(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(5)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    cluster.bookies["b1"].go_down()
    await cluster.write(writer, b"1")
    last = cluster.metadata().last_fragment
    spare = ({"b4", "b5"} - set(last.bookies)).pop()
    repaired = replace(cluster.metadata(), fragments=(Fragment(0, (spare, "b2", "b3")), last))
    cluster.ledgers.values[1] = (repaired, later(cluster.ledgers.values[1][1], 1))
    cluster.bookies["b2"].go_down()
    await cluster.write(writer, b"2")
    assert cluster.metadata().fragments[0].bookies == (spare, "b2", "b3")
    assert [first for first, _ in fragments(cluster)] == [0, 1, 2]


async def test_without_room_for_another_fragment_it_goes_on_at_qa(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_module, "MAX_FRAGMENTS", 1)
    cluster = make_cluster(4)
    writer = cluster.create()
    await cluster.write(writer, b"0")
    cluster.bookies["b1"].go_down()
    await cluster.write(writer, b"1")
    assert fragments(cluster) == [(0, "b1 b2 b3")]
    assert (await writer.close()).last_entry_id == 1


async def test_metadata_that_is_away_leaves_the_ensemble_and_qa_goes_on(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create()
    cluster.ledgers.unavailable = True
    cluster.bookies["b1"].go_down()
    await cluster.write(writer, b"0")
    assert fragments(cluster) == [(0, "b1 b2 b3")]
    cluster.ledgers.unavailable = False
    assert (await writer.close()).last_entry_id == 0


async def test_a_spare_that_comes_later_is_found(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(4)
    monkeypatch.setattr(cluster, "available", lambda: ["b1", "b2", "b3"])
    writer = cluster.create()
    cluster.bookies["b1"].go_down()
    await cluster.write(writer, b"0")
    monkeypatch.setattr(cluster, "available", lambda: ["b2", "b3", "b4"])
    await until(lambda: fragments(cluster)[-1] == (1, "b4 b2 b3"))
    await cluster.write(writer, b"1")
    assert (await writer.close()).last_entry_id == 1


async def test_a_delayed_change_waits_until_qa_is_out_of_reach(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(5)
    writer = cluster.create(options=DELAYED)
    cluster.bookies["b1"].go_down()
    await cluster.write(writer, b"0")
    await cluster.write(writer, b"1")
    assert fragments(cluster) == [(0, "b1 b2 b3")]
    cluster.bookies["b2"].go_down()
    await cluster.write(writer, b"2")
    assert [first for first, _ in fragments(cluster)] == [0, 2]
    assert set(cluster.metadata().last_fragment.bookies) == {"b3", "b4", "b5"}


@pytest.mark.parametrize("code", [ErrorCode.READ_ONLY, ErrorCode.WRONG_INCARNATION])
async def test_a_delayed_change_does_not_wait_for_a_member_that_is_lost(
    make_cluster: MakeCluster, code: ErrorCode
) -> None:
    cluster = make_cluster(4)
    writer = cluster.create(options=DELAYED)
    failing(cluster, "b2", code)
    await cluster.write(writer, b"0")
    await cluster.until(lambda: fragments(cluster)[-1][1] == "b1 b4 b3")
