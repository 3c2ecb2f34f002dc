"""Parameters of tests of which ``make test`` takes a few, and ``make thorough`` the rest."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from _pytest.mark import ParameterSet


def thorough_but(few: Collection[str], values: Sequence[str]) -> list[ParameterSet]:
    """Return a parameter for each value, marked as thorough unless it is one of ``few``."""
    assert set(few) <= set(values)
    return [
        pytest.param(value, marks=() if value in few else pytest.mark.thorough) for value in values
    ]
