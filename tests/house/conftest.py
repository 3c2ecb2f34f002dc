"""The input of the house tests: the project's own files, parsed once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.house import PACKAGES, ROOT, Source, read_documents, read_sources


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def package_sources() -> list[Source]:
    """Every module of the five packages."""
    return list(read_sources(*PACKAGES))


@pytest.fixture(scope="session")
def all_sources(package_sources: list[Source]) -> list[Source]:
    """Every module of the packages and of the tests."""
    return [*package_sources, *read_sources("tests")]


@pytest.fixture(scope="session")
def pyproject() -> dict[str, Any]:
    """pyproject.toml, parsed."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def documents() -> list[Path]:
    """Every Markdown document of the project."""
    return read_documents()
