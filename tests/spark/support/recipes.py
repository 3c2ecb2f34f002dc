"""The recipes of ``examples/spark``, which are scripts and no package, and lines to work on."""

from __future__ import annotations

import importlib.util
import os
from itertools import cycle, islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tests.support.house import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECIPES = ROOT / "examples" / "spark"

REAL_LOGS = ROOT.parent / "shared" / "data" / "loghub"
"""Real logs, where somebody has put them beside the repository."""


def log_lines(count: int) -> list[bytes]:
    """Return so many lines: of the first log in the directory that the environment names (LOGS) or
    in REAL_LOGS, over and over; or made up."""
    for directory in (os.environ.get("LOGS"), REAL_LOGS):
        if directory and (logs := sorted(Path(directory).glob("*.log"))):
            return list(islice(cycle(logs[0].read_bytes().splitlines()), count))
    return [b"node-%d INFO request %d took %d ms" % (n % 7, n, n * n % 97) for n in range(count)]


def recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def problems_of(spark: SparkSession, server: str, topic: str) -> list[str]:
    """What ``verify.py`` says of a topic: nothing if it has no gap and no duplicate."""
    found: list[str] = recipe("verify").verify(spark, server=server, topic=topic)
    return found
