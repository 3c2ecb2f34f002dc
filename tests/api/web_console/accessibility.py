"""What makes a page hard to use for some people."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

LOOKS = [("dark", 360), pytest.param("light", 1920, marks=pytest.mark.thorough)]
"""Color schemes and widths in pixels."""


async def accessibility_findings(page: Page, axe: str) -> list[Any]:
    """Return what axe finds, and whether the page scrolls sideways."""
    await page.evaluate(axe)  # Not a script of the page, to which its policy applies.
    found: list[Any] = await page.evaluate(
        "axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes[0].html]))"
    )
    over = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [*found, *([f"{over} pixels wider than the window"] if over > 0 else [])]
