"""Bookies as people read them: disks, forecasts, how far one that leaves has come, copies made
again."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="package")

GIB = 1024**3
WORKER: dict[str, Any] = {
    "is_disabled": False,
    "at_ledgers": [7, 8],
    "bytes_per_s": 2 * 1024**2,
    "seconds_left": 90,
}
STATUS: dict[str, Any] = {
    "is_enabled": True,
    "auditor": {"process_id": "a1", "since_us": 0},
    "processes": [{"process_id": "a1", "worker": WORKER}],
}
JOB: dict[str, Any] = {"bookie_id": "b1", "since_us": 3_600_000_000, "phase": "draining"}
REMAINDER = {"at_us": 0, "fragments": 3, "ledgers": 2, "not_closed": 0, "unreadable": 0}


async def core(modules: Page, expression: str, said: Any = None) -> Any:
    code = f"async (said) => {{ const m = await import('./bookies_core.js'); return {expression} }}"
    return await modules.evaluate(code, said)


async def test_a_disk_is_told_by_what_is_free_and_used(modules: Page) -> None:
    assert await core(modules, f"m.diskOf({GIB}, {4 * GIB})") == {
        "used": 0.75,
        "text": "1.0 GiB free of 4.0 GiB, 75% used",
    }
    assert await core(modules, f"m.diskOf({GIB}, 0)") is None
    assert await core(modules, f"m.diskOf(null, {GIB})") is None
    directory = {"path": "/d", "holds": ["identity", "ledgers"], "total_bytes": 4, "free_bytes": 1}
    (found,) = await core(modules, "m.directoriesOf(said)", [directory])
    assert (found["path"], found["holds"], found["disk"]["used"]) == (
        *("/d", "identity and ledgers"),
        0.75,
    )


@pytest.mark.parametrize(
    ("bookie", "text"),
    [
        ({"problem": "no answer within 2 s"}, "not known: no answer within 2 s"),
        ({"is_full": True, "full_in_s": None}, "it is full"),
        ({"full_in_s": None}, "not foretold"),
        ({"full_in_s": 7300}, "full in 2 hours"),
    ],
)
async def test_a_forecast_is_in_words(modules: Page, bookie: Any, text: str) -> None:
    assert await core(modules, "m.foretold(said)", bookie) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"remainder": None}, "what is left was not counted yet. Since 1970-01-01 01:00:00 UTC."),
        ({"remainder": REMAINDER}, "Left on it: 3 fragments of 2 ledgers. Counted at 1970-01-01"),
        (
            {"remainder": REMAINDER | {"not_closed": 2, "unreadable": 1}},
            "2 ledgers; 2 of them are still being written, 1 node of metadata cannot be",
        ),
        ({"phase": "drained", "remainder": None}, "No ledger names it any more: stop it."),
        ({"phase": "removing", "remainder": None}, "removed after a last look at all ledgers."),
    ],
)
async def test_how_far_a_bookie_that_leaves_has_come(modules: Page, change: Any, text: str) -> None:
    assert text in await core(modules, "m.progressOf(said)", JOB | change)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {},
            [
                "a1 looks for ledgers that lack copies.",
                "a1 copies ledgers 7, 8 at 2.0 MiB/s, 1 minute left.",
            ],
        ),
        (
            {"is_enabled": False, "auditor": None, "processes": []},
            [
                "It is switched off: no copies are made.",
                "No process looks for ledgers that lack copies.",
            ],
        ),
        (
            {"processes": []},
            [
                "No process makes copies: start fencelog autorecovery, or a bookie that heals.",
                "a1 looks for ledgers that lack copies.",
            ],
        ),
        (
            {"processes": [{"process_id": "a1", "worker": WORKER | {"at_ledgers": []}}]},
            ["a1 looks for ledgers that lack copies.", "Nothing is copied at this moment."],
        ),
        (
            {
                "processes": [
                    {
                        "process_id": "a1",
                        "worker": WORKER
                        | {"at_ledgers": [*range(7)], "seconds_left": None, "bytes_per_s": 0},
                    }
                ]
            },
            [
                "a1 looks for ledgers that lack copies.",
                "a1 copies ledgers 0, 1, 2, 3, 4, and 2 more at 0 B/s.",
            ],
        ),
    ],
)
async def test_self_healing_is_told_in_sentences(
    modules: Page, change: Any, expected: list[str]
) -> None:
    assert await core(modules, "m.healingOf(said, 3)", STATUS | change) == expected


async def test_what_a_ledger_lacks_and_what_its_repair_waits_for(modules: Page) -> None:
    mark = {
        "missing": {"b1": ["lost_bookie"], "b2": ["damaged"]},
        "moves": [{"first_entry_id": 0, "bookie_id": "b3", "target": "b4"}],
        "waiting": [{"detail": "no bookie is left"}, {"detail": "it is being written"}],
    }
    assert await core(modules, "m.lackOf(said)", mark) == {
        "parts": "copies of b1, b2; to be moved from b3 to b4",
        "waiting": "no bookie is left; it is being written",
    }
