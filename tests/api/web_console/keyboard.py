"""A page as a person without a mouse uses it."""

from __future__ import annotations

from functools import partial

from playwright.async_api import Page

from tests.support.until import until_found

NAME = """element => element.getAttribute('aria-label') || element.innerText
    || element.name || element.tagName"""
STOPS = "a, button, input, select, summary, textarea, [tabindex]"
IS_THERE = f"""name => [...document.querySelectorAll('{STOPS}')]
    .some(element => ({NAME})(element).startsWith(name))"""


async def active(page: Page) -> str:
    """Return the name of what has the focus."""
    return str(await page.evaluate(f"({NAME})(document.activeElement)"))


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until something of that name has the focus; a screen may show it late."""
    await until_found(partial(page.evaluate, IS_THERE, name))
    for _ in range(40):
        await page.keyboard.press("Tab")
        if (await active(page)).startswith(name):
            return
    raise AssertionError(f"Tab does not reach {name!r}")
