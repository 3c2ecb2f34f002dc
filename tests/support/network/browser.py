"""The browser of this machine in which the console is shown."""

from __future__ import annotations

import shutil

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The best first: what has no windows takes half the processor time."""

ARGUMENTS = ("--disable-dev-shm-usage",)
"""Options that it is started with: containers have little shared memory."""


def browser_path() -> str | None:
    """Return the path of the first browser that is there."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)
