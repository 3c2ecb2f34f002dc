"""Subscriptions as people read them: lag, what is stuck, what a seek would do."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="package")

HEALTHY = {
    "partition": 0,
    "acked_to": 5,
    "backlog_messages": 3,
    "outstanding": 2,
    "oldest_lease_ms": 100,
    "holes": 0,
    "redelivering": 0,
    "delayed": 0,
    "burying": 0,
    "burial_error": None,
    "lost_to_retention": 0,
    "consumers": [{"name": "c1", "age_ms": 1, "idle_ms": 1, "outstanding": 2}],
}
PLACES = [
    {"partition": 0, "acked_to": 24, "earliest_offset": 4, "tail_offset": 36},
    {"partition": 1, "acked_to": 7, "earliest_offset": 0, "tail_offset": 7},
]


async def core(modules: Page, expression: str, said: Any = None) -> Any:
    code = f"""async (said) => {{
        const m = await import('./subscription_core.js'); return {expression} }}"""
    return await modules.evaluate(code, said)


async def test_the_age_is_by_the_clock_of_the_service(modules: Page) -> None:
    ages = await core(
        modules, "[m.age(1_000_000, 62_000_000), m.age(null, 5), m.age(9_000_000, 8_000_000)]"
    )
    assert ages == ["1 minute", "\u2013", "0 ms"]


async def test_a_lag_over_time_is_drawn_between_its_gaps(modules: Page) -> None:
    said = {"interval_ms": 10_000, "since_us": 0, "backlog_messages": [4, 2, None, 1, None]}
    curve = await core(modules, "m.lagCurve(said)", said)
    assert curve == {
        "runs": [[[0, 0], [0.25, 0.5]], [[0.75, 0.75]]],
        "most": 4,
        "last": None,
        "sinceUs": 0,
        "untilUs": 40_000_000,
    }
    rows = await core(modules, "m.lagRows(said, 2)", said)
    assert rows == [
        {"atUs": 30_000_000, "most": 1},
        {"atUs": 10_000_000, "most": 2},
        {"atUs": 0, "most": 4},
    ]
    assert await core(modules, "m.lagCurve(said)", said | {"since_us": None}) is None
    one = said | {"backlog_messages": [0]}
    assert (await core(modules, "m.lagCurve(said)", one))["runs"] == [[[1, 1]]]


async def test_the_trend_is_in_words(modules: Page) -> None:
    trends = await core(
        modules, "[[], [null, 4], [null, 4, 9], [9, 10, 4], [4, 5, 4]].map(m.trend)"
    )
    assert trends == ["", "", "+5", "-5", "steady"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_deliveries": None, "dead_letter_topic": None}, None),
        ({"max_deliveries": 3, "dead_letter_topic": None}, "ns/t-s-dead"),
        ({"max_deliveries": 3, "dead_letter_topic": "ns/lost"}, "ns/lost"),
    ],
)
async def test_dead_letters_have_a_topic(
    modules: Page, config: dict[str, Any], expected: str | None
) -> None:
    assert await core(modules, "m.deadLetterTopic('ns/t', 's', said)", config) == expected


@pytest.mark.parametrize(
    ("change", "sentence", "offset"),
    [
        (
            {"burying": 2, "burial_error": "no bookies"},
            "2 messages cannot get to the dead letter topic: no bookies.",
            5,
        ),
        (
            {"holes": 1},
            "Message 5 is not acknowledged, while 1 range of messages after it is.",
            5,
        ),
        ({"redelivering": 1}, "1 message has failed before, and comes again.", 5),
        (
            {"oldest_lease_ms": 90_000},
            "A consumer has had a message for 1 minute without acknowledging it.",
            5,
        ),
        (
            {"consumers": [], "outstanding": 0},
            "3 messages wait, and no consumer asks for them.",
            None,
        ),
        (
            {"lost_to_retention": 1},
            "1 message was deleted by retention before anyone acknowledged it.",
            None,
        ),
    ],
)
async def test_what_is_stuck_is_said_with_the_message_to_look_at(
    modules: Page, change: dict[str, Any], sentence: str, offset: int | None
) -> None:
    found = await core(modules, "m.stuckIn(said, 30_000)", [HEALTHY, HEALTHY | change])
    assert found == [{"partition": 0, "sentence": sentence, "offset": offset}]


async def plan(modules: Page, to: str, text: str = "", partition: str = "") -> Any:
    form = f"{{to: '{to}', text: '{text}', partition: '{partition}'}}"
    return await core(modules, f"m.seekPlan({form}, said)", PLACES)


async def test_a_seek_says_what_is_delivered_again_and_what_never(modules: Page) -> None:
    back = await plan(modules, "earliest")
    assert back["body"] == {"to": "earliest"}
    assert back["sentences"] == [
        "Partition 0 goes back from 24 to 4: up to 20 messages are delivered again.",
        "Partition 1 goes back from 7 to 0: up to 7 messages are delivered again.",
    ]
    ahead = await plan(modules, "latest")
    assert ahead["sentences"] == [
        "Partition 0 goes ahead from 24 to 36: up to 12 messages are never delivered.",
        "Partition 1 stays at 7.",
    ]


async def test_a_seek_names_its_partitions_once(modules: Page) -> None:
    to_offset = await plan(modules, "offset", "2", "0")
    assert (to_offset["partition"], to_offset["body"]) == (
        "",
        {"offsets": [{"partition": 0, "offset": 2}]},
    )
    assert to_offset["sentences"] == [
        "Partition 0 goes back from 24 to 4: up to 20 messages are delivered again."
    ]
    to_time = await plan(modules, "time", "1970-01-01 00:00:01", "1")
    assert (to_time["partition"], to_time["body"]) == ("1", {"time": 1_000_000})
    assert to_time["sentences"] == [
        "Partition 1 goes on with the first message published at 1970-01-01 00:00:01 UTC or later."
    ]


@pytest.mark.parametrize(
    ("to", "text", "partition", "mistake"),
    [
        ("offset", "x", "", "“x” is no offset."),
        ("offset", "8", "", "Partition 1 ends at 7, before 8."),
        ("time", "soon", "", "“soon” is no time like 2026-01-31 12:00:00 (UTC)."),
        ("earliest", "", "9", "The partitions are not known yet."),
    ],
)
async def test_a_mistake_in_the_form_is_said(
    modules: Page, to: str, text: str, partition: str, mistake: str
) -> None:
    assert await plan(modules, to, text, partition) == {"mistake": mistake}


async def test_many_partitions_are_not_all_named(modules: Page) -> None:
    places = [PLACES[0] | {"partition": number} for number in range(10)]
    code = "m.seekPlan({to: 'latest', text: '', partition: ''}, said).sentences"
    sentences = await core(modules, code, places)
    assert len(sentences) == 9
    assert sentences[-1] == "And 2 more partitions likewise."
