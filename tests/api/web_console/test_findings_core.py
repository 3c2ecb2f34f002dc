"""Findings of the doctor as people read them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="package")


def finding(kind: str, subject: str, severity: str = "warning", **details: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "severity": severity,
        "subject": subject,
        "summary": kind,
        "command": None,
        "since_us": None,
        "details": details,
    }


TOO_FEW = finding(
    "too_few_bookies", "bookies", "critical", writable=["b3", "b4"], topics=["shop/orders"]
)
READ_ONLY = [finding("bookie_read_only", name) for name in ("b1", "b2")]
HELD = finding("retention_held_back", "shop/paid slow", topic="shop/paid", subscription="slow")
ROLL = finding("roll_stuck", "shop/orders/3", "critical", broker_id="r1")
DRAINING = finding("broker_draining", "r1", "notice")
ORPHANED = finding("orphaned", "metadata", "notice")


async def core(modules: Page, expression: str, said: Any) -> Any:
    code = f"""async (said) => {{
        const m = await import('./findings_core.js'); return {expression} }}"""
    return await modules.evaluate(code, said)


async def test_findings_are_counted_by_severity(modules: Page) -> None:
    counted = await core(modules, "m.counted(said)", [TOO_FEW, *READ_ONLY, DRAINING])
    assert counted == "1 critical, 2 warnings, 1 notice"
    assert await core(modules, "m.counted(said)", [HELD]) == "1 warning"


async def test_only_what_a_look_at_every_ledger_finds_is_kept_from_an_earlier_one(
    modules: Page,
) -> None:
    kinds = await core(
        modules,
        "m.together(said[0], said[1]).map((each) => each.kind)",
        [[HELD], [*READ_ONLY, ORPHANED]],
    )
    assert kinds == ["retention_held_back", "orphaned"]


@pytest.mark.parametrize(
    ("found", "screen", "params"),
    [
        (HELD, "subscription", {"topic": "shop/paid", "subscription": "slow"}),
        (ROLL, "partition", {"topic": "shop/orders", "partition": "3"}),
        (DRAINING, "cluster", {"broker": "r1"}),
        (TOO_FEW, "topic", {"topic": "shop/orders"}),
    ],
)
async def test_a_finding_leads_to_what_it_is_about(
    modules: Page, found: dict[str, Any], screen: str, params: dict[str, str]
) -> None:
    place = await core(modules, "m.placesOf(said)[0]", found)
    assert (place["screen"], place["params"]) == (screen, params)


async def test_a_finding_leads_to_a_few_topics_of_many(modules: Page) -> None:
    many = finding("ack_quorum_one", "ns/0", topics=[f"ns/{number}" for number in range(9)])
    places = await core(modules, "m.placesOf(said).map((each) => each.text)", many)
    assert places == [f"Topic ns/{number}" for number in range(5)]


async def test_a_finding_about_a_bookie_leads_nowhere_else(modules: Page) -> None:
    assert await core(modules, "m.placesOf(said)", READ_ONLY[0]) == []


@pytest.mark.parametrize(
    ("topic", "ensemble_size", "ack_quorum", "expected"),
    [
        ("shop/orders", 3, 2, ["too_few_bookies", "roll_stuck", *["bookie_read_only"] * 2]),
        ("shop/other", 3, 2, ["too_few_bookies", *["bookie_read_only"] * 2]),
        ("shop/small", 2, 2, []),
        ("shop/paid", 2, 2, ["retention_held_back"]),
        ("shop/single", 1, 1, ["ack_quorum_one"]),
    ],
)
async def test_a_topic_has_its_own_findings_and_the_causes_of_failing_appends(
    modules: Page, topic: str, ensemble_size: int, ack_quorum: int, expected: list[str]
) -> None:
    """Findings about many topics name only some: the settings of the topic decide."""
    everything = [TOO_FEW, ROLL, HELD, *READ_ONLY, DRAINING]
    everything.append(finding("ack_quorum_one", "shop/first", topics=["shop/first"]))
    code = f"""m.aboutTopic(said, '{topic}', {{ensembleSize: {ensemble_size},
        ackQuorum: {ack_quorum}}}).map((each) => each.kind)"""
    assert await core(modules, code, everything) == expected


async def test_the_state_of_a_bookie_is_its_worst_finding_or_not_known(modules: Page) -> None:
    limbo = finding("bookie_in_limbo", "b1")
    states = await core(
        modules,
        "['b1', 'b2', 'b3'].map((bookie_id) => m.bookieState(said, {bookie_id}))",
        [limbo, *READ_ONLY],
    )
    assert states == ["takes no entries", "takes no entries", "serves"]
    assert await core(modules, "m.bookieState(said, {bookie_id: 'b1'})", None) == "not known"
    registered = "{bookie_id: 'b3', is_read_only: true, is_full: %s}"
    full = f"m.bookieState(said, {registered % 'true'})"
    assert await core(modules, full, None) == "takes no entries: its disk is full"
    assert await core(modules, full, [finding("bookie_unreachable", "b3")]) == "does not answer"
    operator = f"m.bookieState(said, {registered % 'false'})"
    assert await core(modules, operator, []) == "takes no entries"


async def test_a_bookie_that_is_not_running_is_listed_too(modules: Page) -> None:
    gone = [finding("bookie_absent", "b2"), finding("bookie_absent", "b1")]
    code = """m.withAbsent(said, [{bookie_id: 'b1'}]).map((each) =>
        [each.bookie_id, m.bookieState(said, each)])"""
    assert await core(modules, code, gone) == [["b1", "not running"], ["b2", "not running"]]
    assert await core(modules, code, None) == [["b1", "not known"]]


async def test_a_broker_that_does_not_answer_is_not_said_to_serve(modules: Page) -> None:
    """It stays registered until its session has ended."""
    code = """['r1', 'r2'].flatMap((broker_id) => [false, true].map((draining) =>
        m.brokerState(said, {broker_id, draining})))"""
    gone = [finding("broker_unreachable", "r1", "critical")]
    assert await core(modules, code, gone) == [*["does not answer"] * 2, "serves", "draining"]
    assert await core(modules, code, None) == ["not known", "draining"] * 2


@pytest.mark.parametrize(
    ("topic", "changed", "expected"),
    [
        ("shop/orders", {}, ["roll_stuck"]),
        ("shop/other", {}, []),
        ("shop/other", {"unlisted": 9}, ["roll_stuck"]),
        ("shop/other", {"topic_count": 21}, ["roll_stuck"]),
    ],
)
async def test_a_finding_about_many_partitions_may_be_about_a_topic_that_it_does_not_name(
    modules: Page, topic: str, changed: dict[str, Any], expected: list[str]
) -> None:
    known = {"partitions": ["shop/orders/0"], "topics": ["shop/orders"], "topic_count": 1}
    many = finding("roll_stuck", "partitions", "critical", **(known | {"unlisted": 0} | changed))
    code = f"""m.aboutTopic([said], '{topic}', {{ensembleSize: 3, ackQuorum: 2}})
        .map((each) => each.kind)"""
    assert await core(modules, code, many) == expected
    places = await core(modules, "m.placesOf(said).map((each) => each.params)", many)
    assert places == [{"topic": "shop/orders"}]
