"""Ledgers that belong to nothing: each doubt keeps one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencelog.broker.background.sweep_core import Tag, is_garbage, tag_of
from fencelog.broker.ledger_list.ledger_list import LedgerList, Segment

LEDGER_LIST = LedgerList(epoch=5, segments=(Segment(9, 0, 0, None, 5),), state_ledger=7)


@pytest.mark.parametrize(
    ("properties", "tag"),
    [
        ({"log": "t1/3", "epoch": "4"}, Tag("t1", 3, 4)),
        ({}, None),
        ({"log": "t1/3"}, None),
        ({"log": "t1", "epoch": "4"}, None),
        ({"log": "/3", "epoch": "4"}, None),
        ({"log": "t1/x", "epoch": "4"}, None),
        ({"log": "t1/3", "epoch": "-1"}, None),
        ({"log": "t1/3", "epoch": "9" * 30}, None),
        ({"purpose": "bench"}, None),
        ({"log": "t1/3", "committer": "q"}, Tag("t1", 3, None, True)),
        ({"log": "t1/3", "committer": "q", "epoch": "4"}, Tag("t1", 3, 4, True)),
        (
            {"log": "t1/3", "committer": "q", "epoch": "4", "withdrawn": "yes"},
            Tag("t1", 3, 4, True, True),
        ),
        ({"log": "t1", "committer": "q"}, None),
    ],
)
def test_only_ledgers_of_topic_logs_are_judged(properties: dict[str, str], tag: Tag | None) -> None:
    assert tag_of(properties) == tag


def judged(
    ledger_id: int,
    epoch: int,
    ledger_list: LedgerList | None,
    *,
    gone: bool = False,
    age_s: float = 1e9,
) -> bool:
    tag = Tag("t1", 0, epoch)
    return is_garbage(tag, ledger_id, ledger_list, topic_is_gone=gone, age_s=age_s, grace_s=60)


def test_an_unlisted_ledger_of_a_former_epoch_goes() -> None:
    assert judged(8, 4, LEDGER_LIST)


@pytest.mark.parametrize(
    ("ledger_id", "epoch"),
    [
        (8, 5),  # the present owner may be about to list it
        (8, 6),  # a takeover's, before its compare-and-set
        (9, 4),  # listed: whatever its tag says
        (7, 4),  # the state log's
    ],
)
def test_what_may_be_or_become_listed_stays(ledger_id: int, epoch: int) -> None:
    assert not judged(ledger_id, epoch, LEDGER_LIST)
    assert not judged(ledger_id, epoch, LEDGER_LIST, gone=True)


@pytest.mark.parametrize("ledger_list", [None, replace(LEDGER_LIST, deleted=True)])
def test_of_a_topic_that_is_gone_for_good_all_goes(ledger_list: LedgerList | None) -> None:
    assert judged(9, 5, ledger_list, gone=True)
    assert not judged(9, 5, ledger_list, gone=False)
    assert not judged(9, 5, ledger_list, gone=True, age_s=59)
    assert judged(9, 5, ledger_list, gone=True, age_s=60)


@pytest.mark.parametrize(
    ("tag", "ledger_id", "age_s", "goes"),
    [
        (Tag("t1", 0, None, True), 8, 99.0, False),  # it may still be committed
        (Tag("t1", 0, None, True), 8, 100.0, True),
        (Tag("t1", 0, None, True, True), 8, 0.0, True),  # withdrawn
        (Tag("t1", 0, 5, True), 8, 1e9, False),  # the present owner may be about to list it
        (Tag("t1", 0, 4, True), 8, 99.0, False),  # the present owner may get the commit again
        (Tag("t1", 0, 4, True), 8, 100.0, True),  # claimed by an owner that lists nothing any more
        (Tag("t1", 0, 4, True, True), 8, 0.0, True),
        (Tag("t1", 0, 4, True), 9, 1e9, False),  # listed
    ],
)
def test_a_ledger_of_a_committer_goes_once_no_owner_can_list_it(
    tag: Tag, ledger_id: int, age_s: float, goes: bool
) -> None:
    judgement = is_garbage(
        tag, ledger_id, LEDGER_LIST, topic_is_gone=False, age_s=age_s, grace_s=60, pending_s=100
    )
    assert judgement is goes
