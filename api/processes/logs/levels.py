"""The levels of packages: ``info,broker=debug,bookie.gc=warning``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec

from fencelog.ledgers.errors import ErrorCode, FencelogError

ROOT = "fencelog"
"""The logger of all packages."""

DEFAULT = "info"

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class LogFormat(StrEnum):
    HUMAN = "human"
    JSON = "json"


def parse_levels(given: str) -> dict[str, int]:
    """Return the level of each logger that is named. ``given``: a level for all packages, levels of
    packages and modules, or both, with commas. Raises FencelogError(BAD_REQUEST)."""
    levels = {ROOT: LEVELS[DEFAULT]}
    named = set[str]()
    for part in given.split(","):
        package, equals, level = part.strip().rpartition("=")
        if level.strip().lower() not in LEVELS:
            raise _wrong(f"{level.strip()!r} is no level; there are {', '.join(LEVELS)}")
        logger = _logger(package.strip()) if equals else ROOT
        if logger in named:
            raise _wrong(f"{package.strip() or 'the level of all packages'} is given twice")
        named.add(logger)
        levels[logger] = LEVELS[level.strip().lower()]
    return levels


def _logger(package: str) -> str:
    name = f"{ROOT}.{package.removeprefix(f'{ROOT}.')}"
    try:
        found = all(part.isidentifier() for part in name.split(".")) and find_spec(name)
    except ModuleNotFoundError:
        found = None
    if not found:
        raise _wrong(f"there is no package or module {package!r}; one is broker, or bookie.gc")
    return name


def _wrong(detail: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, detail)
