"""The kinds of findings that tests provoke at a real cluster. Each test registers its own, and
fails if the doctor did not find them in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec

from fencelog.api.admin.doctor.findings import FindingKind

P = ParamSpec("P")

PROVOKED: dict[FindingKind, list[str]] = {}
"""The tests that provoke a kind."""

_found: set[str] = set()


def note(findings: Iterable[Mapping[str, Any]]) -> None:
    """Note what the doctor has found in the current test."""
    _found.update(finding["kind"] for finding in findings)


def provokes(
    *kinds: FindingKind,
) -> Callable[[Callable[P, Awaitable[None]]], Callable[P, Awaitable[None]]]:
    """Register a test, which then has to provoke these kinds."""

    def register(test: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
        for kind in kinds:
            PROVOKED.setdefault(kind, []).append(test.__qualname__)

        @wraps(test)
        async def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            _found.clear()
            await test(*args, **kwargs)
            assert _found >= set(kinds)

        return checked

    return register
