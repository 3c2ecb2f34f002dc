"""The recipes of ``examples/spark``, which are scripts and no package."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

from tests.support.house import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECIPES = ROOT / "examples" / "spark"


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
