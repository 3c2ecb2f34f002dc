"""The decisions of the console on a ledger list: what the picture says."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="package")


def segment(ledger_id: int, epoch: int, base: int, end: int, **other: Any) -> dict[str, Any]:
    fragments = [{"first_entry": 0, "bookies": ["b1", "b2", "b3"]}]
    ledger = {
        "state": "closed",
        "ensemble_size": 3,
        "write_quorum": 3,
        "ack_quorum": 2,
        "fragments": fragments,
    }
    return {
        "ledger_id": ledger_id,
        "epoch": epoch,
        "created_us": ledger_id * 1_000_000,
        "base_offset": base,
        "end_offset": end,
        "is_closed": True,
        "is_written": False,
        "is_adopted": False,
        "entries": (end - base) // 2,
        "size": 100,
        "last_publish_us": ledger_id * 1_000_000,
        "ledger": ledger,
        "missing": [],
        **other,
    }


def answer() -> dict[str, Any]:
    """Ledger 1 of broker a, in which b4 took the place of b2; ledger 2 of broker b; b2 is gone."""
    first = segment(1, 1, 0, 100)
    first["ledger"]["fragments"].append({"first_entry": 25, "bookies": ["b1", "b4", "b3"]})
    second = segment(2, 2, 100, 110, is_closed=False, is_written=True, last_publish_us=None)
    second["ledger"]["fragments"] = [{"first_entry": 0, "bookies": ["b1", "b3", "b4"]}]
    return {
        "segments": [first, second],
        "takeovers": [
            {"epoch": 1, "broker_id": "a", "taken_us": 1_000_000, "from": None},
            {"epoch": 2, "broker_id": "b", "taken_us": 2_000_000, "from": "a"},
        ],
        "bookies": ["b1", "b3", "b4"],
        "older": None,
        "newer": None,
        "epoch": 2,
        "owner": "b",
        "earliest_offset": 40,
        "tail_offset": 110,
        "terminated": False,
        "ledgers": 2,
        "next_cut": {
            "held_by": "subscription",
            "ledger_id": 1,
            "to_offset": 100,
            "due_us": None,
            "bytes_to_come": None,
        },
        "subscriptions": [{"subscription": "slow", "durable": True, "acked_to": 50}],
        "more_subscriptions": 0,
    }


async def model(modules: Page, expression: str, said: dict[str, Any]) -> Any:
    code = f"""async (said) => {{ const m = await import('./ledger_model.js');
        const model = m.modelOf(said); return {expression} }}"""
    return await modules.evaluate(code, said)


async def test_a_takeover_a_replacement_and_a_trim_are_told(modules: Page) -> None:
    told = await model(modules, "m.story(model)", answer())
    assert told == [
        "Ledger 1, from about offset 50 on: b4 took the place of b2, which did not answer.",
        (
            "1970-01-01 00:00:02: b took the partition over from a. It fenced ledger 1, closed it "
            "before offset 100 and went on in ledger 2 (epoch 2)."
        ),
        (
            "Trimmed: messages below 40 cannot be read any more. A ledger is deleted when all of "
            "it is below the line."
        ),
    ]


async def test_a_ledger_that_was_closed_before_an_idle_owner_was_lost_was_not_fenced(
    modules: Page,
) -> None:
    said = answer()
    said["segments"][1]["epoch"] = 3
    said["takeovers"][1] |= {"broker_id": "c"}
    said["takeovers"].append({"epoch": 3, "broker_id": "a", "taken_us": 3_000_000, "from": "c"})
    events = [
        {"partition": 0, "epoch": 2, "from": {"broker_id": "a", "ended": "released"}},
        {"partition": 0, "epoch": 3, "from": {"broker_id": "c", "ended": "unreachable"}},
    ]
    code = """async ([said, events]) => { const m = await import('./ledger_model.js');
        return m.story(m.modelOf(said, m.happenedIn(events, 0)))[2] }"""
    assert await modules.evaluate(code, [said, events]) == (
        "1970-01-01 00:00:03: a took the partition over from c, whose port refused connections. "
        "Ledger 1 had been closed in good order before offset 100, and a went on in ledger 2 "
        "(epoch 3)."
    )


@pytest.mark.parametrize(
    ("listed", "more", "drawn", "undrawn"), [(12, 0, 12, 0), (13, 0, 12, 1), (100, 37, 12, 125)]
)
async def test_the_subscriptions_that_are_not_drawn_are_counted(
    modules: Page, listed: int, more: int, drawn: int, undrawn: int
) -> None:
    said = answer()
    said["subscriptions"] *= listed
    said["more_subscriptions"] = more
    found = await model(modules, "[model.cursors.length, model.undrawn]", said)
    assert found == [drawn, undrawn]


FENCED = (
    "It fenced ledger 1, closed it before offset 100 and went on in ledger 2 (epoch 2).",
    "Ledger 1, closed by a takeover, offsets",
)
HANDED_OVER = (
    (
        "Ledger 1 had been closed in good order before offset 100, "
        "and b went on in ledger 2 (epoch 2)."
    ),
    "Ledger 1, closed, offsets",
)


@pytest.mark.parametrize(
    ("ended", "how", "did"),
    [
        ("released", "which had given it up", HANDED_OVER),
        ("session_ended", "which was lost: its session had ended", FENCED),
        ("fenced", "which was still registered", FENCED),
        ("unreachable", "whose port refused connections", FENCED),
    ],
)
async def test_how_the_owner_before_ended_is_told_where_the_ledger_or_an_event_knows_it(
    modules: Page, ended: str, how: str, did: tuple[str, str]
) -> None:
    events = [
        {"partition": 1, "epoch": 2, "from": {"broker_id": "x", "ended": "other partition"}},
        {"partition": 0, "epoch": 2, "from": {"broker_id": "a", "ended": ended}},
        {"partition": 0, "epoch": 1, "from": None},
    ]
    code = """async ([said, events]) => { const m = await import('./ledger_model.js');
        const model = m.modelOf(said, m.happenedIn(events, 0));
        return [m.story(model)[1], m.spokenName(model.ledgers[0])] }"""
    told, spoken = await modules.evaluate(code, [answer(), events])
    sentence, name = did
    assert told == f"1970-01-01 00:00:02: b took the partition over from a, {how}. {sentence}"
    assert spoken.startswith(name)


async def test_an_owner_that_wrote_nothing_is_told(modules: Page) -> None:
    """Its ledger was dropped, so that the ledgers alone would hide from whom it was taken over."""
    said = answer()
    said["segments"][1]["epoch"] = 3
    said["takeovers"][1] |= {"broker_id": "c"}
    said["takeovers"].append({"epoch": 3, "broker_id": "a", "taken_us": 3_000_000, "from": "c"})
    told = await model(modules, "m.story(model)", said)
    assert told[1:3] == [
        "1970-01-01 00:00:02: c took the partition over from a, and wrote nothing (epoch 2).",
        (
            "1970-01-01 00:00:03: a took the partition over from c. It fenced ledger 1, closed it "
            "before offset 100 and went on in ledger 2 (epoch 3)."
        ),
    ]
    assert await model(modules, "model.epochs.map((each) => each.previous)", said) == ["", "c"]


async def test_the_time_of_a_change_of_bookies_is_told_where_an_event_knows_it(
    modules: Page,
) -> None:
    event = {"partition": 0, "kind": "ensemble_change", "epoch": 1, "from": None}
    change = event | {"ledger_id": 1, "time_us": 5_000_000, "detail": {"first_entry": 25}}
    others = [change | {"partition": 1, "time_us": 1}, change | {"ledger_id": 2, "time_us": 2}]
    code = """async ([said, events]) => { const m = await import('./ledger_model.js');
        return m.story(m.modelOf(said, m.happenedIn(events, 0)))[0] }"""
    told = "Ledger 1, from about offset 50 on: b4 took the place of b2, which did not answer."
    assert await modules.evaluate(code, [answer(), others]) == told
    with_time = await modules.evaluate(code, [answer(), [*others, change]])
    assert with_time == f"1970-01-01 00:00:05: {told}"
    noted = answer()
    noted["segments"][0]["ledger"]["fragments"][1]["since_us"] = 4_000_000
    assert await modules.evaluate(code, [noted, [change]]) == f"1970-01-01 00:00:04: {told}"


async def test_what_bookies_list_counts_where_they_answer(modules: Page) -> None:
    ledger = {
        "fragments": [{"firstEntry": 0, "lastEntry": 9, "bookies": ["a", "b", "c", "d"]}],
        "quorums": [4, 4, 2],
        "lost": ["d"],
    }
    said = {"expected": 10, "held": 10, "missing": [], "are_more": False, "in_limbo": False}
    bookies = [
        said | {"bookie_id": "a", "problem": None},
        said
        | {"bookie_id": "b", "problem": None, "held": 6, "missing": [[1, 1], [3, 5]]}
        | {"are_more": True, "in_limbo": True},
        said | {"bookie_id": "c", "problem": "no answer within 2 s", "held": 0},
    ]
    code = """async ([ledger, copies]) => (await import('./ledger_model.js'))
        .copiesOf(ledger, copies)
        .map((each) => [each.bookie, each.held, each.missing, each.isLacking])"""
    assert await modules.evaluate(code, [ledger, {"bookies": bookies}]) == [
        ["a", 10, "nothing", False],
        ["b", 6, "1, 3 \u2013 5, …; in limbo: it may have forgotten what is missing", True],
        ["c", None, "not known: no answer within 2 s", False],
        ["d", None, "all, as far as is known", True],
    ]
    unknown = await modules.evaluate(code, [ledger, None])
    assert unknown[0] == ["a", None, "not known", False]


async def test_each_bookie_has_its_share_of_a_striped_ledger(modules: Page) -> None:
    """Entry N is on as many bookies as the write quorum, from place N of the ensemble on."""
    fragments: list[dict[str, Any]] = [
        {"firstEntry": 0, "lastEntry": 9, "bookies": ["a", "b", "c"]},
        {"firstEntry": 10, "lastEntry": 16, "bookies": ["a", "d", "c"]},
        {"firstEntry": 17, "lastEntry": None, "bookies": ["e", "d", "c"]},
    ]
    ledger = {"fragments": fragments, "quorums": [3, 2, 2], "lost": ["d"]}
    expected = dict.fromkeys("abcde", 0)
    for one in fragments[:2]:
        for entry in range(one["firstEntry"], one["lastEntry"] + 1):
            for place in (entry % 3, (entry + 1) % 3):
                expected[one["bookies"][place]] += 1
    code = """async (ledger) => (await import('./ledger_model.js')).entriesPerBookie(ledger)"""
    assert await modules.evaluate(code, ledger) == [
        {"bookie": bookie, "entries": entries, "isLost": bookie == "d"}
        for bookie, entries in expected.items()
    ]


async def test_a_closer_look_is_at_the_ledgers_around_the_chosen_one(modules: Page) -> None:
    code = """([at, steps]) => import('./ledger_model.js').then((m) => {
        const ledgers = [0, 1, 2, 3, 4, 5, 6, 7].map((id) => (
            {id, epoch: 1, from: 10 * id, to: 10 * id + 10, takeover: null}));
        const part = m.zoomed({ledgers, first: 0, end: 85}, ledgers[at], steps);
        return [part.ledgers.map((each) => each.id), part.first, part.end] })"""
    for at, steps, expected in (
        (3, 0, [[*range(8)], 0, 85]),
        (3, 1, [[1, 2, 3, 4], 10, 50]),
        (0, 2, [[0, 1], 0, 20]),
        (7, 2, [[6, 7], 60, 85]),
        (5, 9, [[5], 50, 60]),
    ):
        assert await modules.evaluate(code, [at, steps]) == expected


async def test_missing_copies_are_counted_not_guessed(modules: Page) -> None:
    (sentence,) = await model(modules, "m.problems(model)", answer())
    assert sentence.startswith("b2 is gone. 1 of 2 ledgers shown (1) has fewer copies")
    assert sentence.endswith("Every message shown still has 2 or more.")
    worse = answer() | {"bookies": []}
    (sentence,) = await model(modules, "m.problems(model)", worse)
    assert sentence.endswith("Some messages have no copy that answers.")


async def test_copies_that_the_auditor_misses_count_although_the_bookie_answers(
    modules: Page,
) -> None:
    said = answer() | {"bookies": ["b1", "b2", "b3", "b4"]}
    said["segments"][1]["missing"] = ["b3"]
    found = await model(
        modules, "[model.ledgers.map((each) => each.lost), m.problems(model).length]", said
    )
    assert found == [[[], ["b3"]], 1]


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ({}, "ledger 1 (up to offset 99), when slow has acknowledged it"),
        ({"held_by": "settings"}, "nothing: neither age nor size is bounded"),
        ({"held_by": "nothing"}, "ledger 1 (up to offset 99), with the next check"),
        (
            {"held_by": "retention", "due_us": 90_000_000, "bytes_to_come": 2048},
            "ledger 1 (up to offset 99), in 1 minute or after 2.0 KiB more",
        ),
    ],
)
async def test_the_next_cut_says_what_it_waits_for(
    modules: Page, cut: dict[str, Any], expected: str
) -> None:
    said = answer()
    said["next_cut"] |= cut
    assert await model(modules, "m.nextCut(model, 10_000)", said) == expected
