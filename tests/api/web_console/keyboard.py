"""A page as a person without a mouse uses it."""

from __future__ import annotations

from playwright.async_api import Page


async def active(page: Page) -> str:
    """Return the name of what has the focus."""
    return str(
        await page.evaluate(
            "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText "
            "|| document.activeElement.name || document.activeElement.tagName"
        )
    )


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until something of that name has the focus."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        if (await active(page)).startswith(name):
            return
    raise AssertionError(f"Tab does not reach {name!r}")
