"""What is wrong comes first on the overview: loading, nothing, findings, failed and refused are
different pictures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from tests.api.web_console.conftest import OpenPage, answer_part, reads
from tests.api.web_console.keyboard import tab_to

pytestmark = pytest.mark.asyncio(loop_scope="package")

DOCTOR = "/v1/admin/doctor"
FINDING = {
    "kind": "bookie_read_only",
    "severity": "warning",
    "subject": "b1",
    "summary": "bookie b1 takes no entries: <b>its disk is full</b>",
    "command": "fencelog topic trim TOPIC PARTITION --before OFFSET",
    "since_us": 3_600_000_000,
    "seen_since_us": 9_000_000_000,
    "details": {"reasons": ["disk"]},
}


def report(*findings: dict[str, Any]) -> dict[str, Any]:
    found = {"severity": "warning", "findings": findings, "took_ms": 1, "scanned": False}
    return found | {"examined_us": 10_800_000_000}


async def to_overview(page: Page) -> None:
    await page.get_by_role("link", name="Overview", exact=True).press("Enter")


async def test_a_finding_says_how_bad_what_since_when_and_what_helps(open_page: OpenPage) -> None:
    async with open_page("?screen=nothing") as page:

        async def answer(route: Route) -> None:
            await answer_part(route, DOCTOR, report(FINDING))

        await page.route(reads(DOCTOR), answer)
        await to_overview(page)
        found = page.locator(".finding")
        await expect(found.locator(".severity")).to_have_text("Warning")
        await expect(found).to_contain_text("takes no entries: <b>its disk is full</b>.")
        await expect(found).to_contain_text("Since 1970-01-01 01:00:00 UTC, for 2 hours.")
        await expect(page.get_by_text("1 warning.")).to_be_visible()
        first = page.locator("main h1 + section")
        await expect(first).to_have_attribute("aria-label", "What is wrong")
        await tab_to(page, "Copy")
        await page.keyboard.press("Enter")
        await expect(found.get_by_text("Copied.")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == FINDING["command"]


async def test_loading_failed_refused_old_and_healthy_are_different_pictures(
    open_page: OpenPage,
) -> None:
    expects = ("Failed to load",)
    async with open_page("?screen=nothing", expects=expects) as page:
        held: asyncio.Queue[Route] = asyncio.Queue()
        await page.route(reads(DOCTOR), held.put)
        await to_overview(page)
        section = page.locator("section[aria-label='What is wrong']")
        await expect(section.locator("[data-picture=loading]")).to_be_visible()
        await (await held.get()).abort()
        await expect(section.locator("[data-picture=failed]")).to_contain_text("does not answer")
        await answer_part(await held.get(), DOCTOR, report())
        await expect(section.locator("[data-picture=empty]")).to_contain_text("Nothing is wrong")
        await answer_part(await held.get(), DOCTOR, report(FINDING))
        await expect(section.locator(".finding")).to_have_count(1)
        await (await held.get()).abort()
        await expect(section.locator("[data-picture=failed]")).to_contain_text("This is old")
        await expect(section.locator(".finding")).to_have_count(1)
        problem = {"detail": "no permission", "code": "forbidden", "retryable": False}
        await answer_part(await held.get(), DOCTOR, problem, 403)
        await expect(section.locator("[data-picture=refused]")).to_contain_text("no permission")
        await page.unroute(reads(DOCTOR))


async def test_every_ledger_is_looked_at_on_request(open_page: OpenPage) -> None:
    async with open_page() as page:
        await expect(page.get_by_text("Not every ledger was looked at.")).to_be_visible()
        await tab_to(page, "Look at every ledger")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Every ledger was looked at, at")).to_be_visible()


async def test_many_findings_are_cut_short_and_counted(open_page: OpenPage) -> None:
    async with open_page("?screen=nothing") as page:
        many = report(*(FINDING | {"subject": f"b{number}"} for number in range(60)))
        await page.route(reads(DOCTOR), lambda route: answer_part(route, DOCTOR, many))
        await to_overview(page)
        await expect(page.locator(".finding")).to_have_count(50)
        await expect(page.get_by_text("and 10 more")).to_be_visible()


async def test_the_first_sighting_is_told_where_nobody_has_noted_the_time(
    open_page: OpenPage,
) -> None:
    async with open_page("?screen=nothing") as page:
        body = report(FINDING | {"since_us": None})
        await page.route(reads(DOCTOR), lambda route: answer_part(route, DOCTOR, body))
        await to_overview(page)
        told = page.get_by_text("Seen since 1970-01-01 02:30:00 UTC, for 30 minutes.")
        await expect(told).to_be_visible()


async def test_rates_are_told_and_drawn(open_page: OpenPage) -> None:
    path = "/v1/admin/rates"
    kib = 1024
    body = {
        "interval_ms": 5000,
        "since_us": 1_700_000_000_000_000,
        "in_bytes_per_s": [kib, 3 * kib, None, kib, 2 * kib],
        "out_bytes_per_s": [None, None],
        "unanswered": ["broker-9"],
    }
    async with open_page("?screen=nothing") as page:
        await page.route(reads(path), lambda route: answer_part(route, path, body))
        await to_overview(page)
        about = "Written: now 2.0 KiB/s, at most 3.0 KiB/s during the last 20 seconds"
        curve = page.get_by_role("img", name=about)
        await expect(curve).to_be_visible()
        assert await curve.locator("polyline").count() == 2  # One on each side of the gap.
        facts = page.locator(".facts")
        await expect(facts).to_contain_text("Readnot known")
        await expect(facts).to_contain_text("without those of broker-9, not known yet")
        await page.unroute_all(behavior="ignoreErrors")


TOKEN = "eyJ.a-secret"


async def ask_for_token(route: Route) -> None:
    """Answer as a proxy does that lets in whoever shows the token."""
    if route.request.headers.get("authorization") == f"Bearer {TOKEN}":
        await route.continue_()
    else:
        await route.fulfill(status=401, headers={"www-authenticate": "Bearer"}, body="who is it?")


async def test_a_token_is_asked_for_where_a_proxy_wants_one(open_page: OpenPage) -> None:
    async with open_page("?screen=nothing", expects=("status of 401",)) as page:
        await page.context.route("**/v1/**", ask_for_token)
        await to_overview(page)
        await expect(page.locator("[data-picture=refused]").first).to_contain_text(
            "You may not see this"
        )
        token = page.get_by_label("Token", exact=True)
        await token.fill("two words")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert").first).to_contain_text("without blanks")
        await token.fill("another-one")
        async with page.expect_navigation():
            await page.keyboard.press("Enter")
        await expect(token).to_have_value("")  # It was none, so that the page asks again.
        await tab_to(page, "token")
        await page.keyboard.type(TOKEN)
        async with page.expect_navigation():
            await page.keyboard.press("Enter")
        await expect(page.get_by_role("region", name="Brokers").locator("tbody tr")).to_have_count(
            1
        )
        await expect(token).to_have_count(0)
        await page.get_by_role("link", name="Topics").press("Enter")
        await page.get_by_text("Create a topic").press("Enter")
        await page.get_by_label("Name (namespace/topic)").fill("guarded/orders")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="guarded/orders")).to_be_visible()
        assert TOKEN not in page.url
        other = await page.context.new_page()
        await other.goto(page.url)
        await expect(other.get_by_label("Token", exact=True)).to_be_visible()


async def test_findings_that_are_alike_are_all_shown(open_page: OpenPage) -> None:
    """What could not be asked of the metadata store is several findings of one kind and subject."""
    unknown = FINDING | {"kind": "not_answered", "subject": "metadata", "details": {}}
    asked = [unknown | {"summary": f"not known: {what}"} for what in ("brokers", "topics")]
    async with open_page("?screen=nothing") as page:
        body = report(*asked, FINDING)
        await page.route(reads(DOCTOR), lambda route: answer_part(route, DOCTOR, body))
        await to_overview(page)
        await expect(page.locator(".finding")).to_have_count(3)
        await expect(page.locator(".finding").nth(1)).to_contain_text("not known: topics")
