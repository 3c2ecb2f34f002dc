"""Which package may import which: the table of ARCHITECTURE.md kept true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.house import PACKAGES, Source

OURS = {
    "ledgers": set[str](),
    "bookie": {"ledgers"},
    "broker": {"ledgers"},
    "api": {"ledgers", "bookie", "broker"},
    "spark_connector": {"ledgers"},
}
"""What each package may import of the others."""

ALSO = {"spark_connector": {"fencelog.api.client"}}
"""Single modules beyond that."""

HTTP = {"fastapi", "httpx", "pydantic", "starlette", "typer", "uvicorn", "rich"}
SPARK = {"pandas", "pyarrow", "pyspark"}
FOREIGN = {
    "ledgers": HTTP | SPARK | {"rocksdict"},
    "bookie": HTTP | SPARK | {"kazoo"},
    "broker": HTTP | SPARK | {"kazoo", "rocksdict"},
    "api": SPARK,
    "spark_connector": {"fastapi", "kazoo", "rocksdict", "starlette", "uvicorn"},
}
"""Libraries that belong to another floor: the protocol knows no HTTP, the service no Spark."""


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, also those inside functions.

    ``from fencelog.api import client`` counts as ``fencelog.api.client``.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = node.module.count(".") == 1 and node.module.startswith("fencelog.")
            names = [f"{node.module}.{alias.name}" for alias in node.names] if inside else []
            for name in names or [node.module]:
                yield node.lineno, name


def allowed(folder: str, module: str) -> bool:
    """Whether a module in ``folder`` may import ``module``."""
    parts = module.split(".")
    if parts[0] in FOREIGN[folder]:
        return False
    if parts[0] != "fencelog":
        return parts[0] not in PACKAGES
    return parts[1] in OURS[folder] | {folder} or module in ALSO.get(folder, set())


def test_imports_go_one_way(package_sources: list[Source]) -> None:
    wrong = [
        f"{source.path}:{line} imports {module}"
        for source in package_sources
        for line, module in imported(source)
        if not allowed(source.folder, module)
    ]
    assert wrong == []


def test_the_map_says_the_same(root: Path) -> None:
    rows = re.findall(
        r"^\| `(\w+)/` \| `fencelog\.\1` \| .* \| (.*) \|$",
        (root / "ARCHITECTURE.md").read_text("utf-8"),
        re.MULTILINE,
    )
    table = {folder: set(may.replace("`", "").split(", ")) for folder, may in rows}
    assert table == {
        folder: OURS[folder] | ALSO.get(folder, set()) or {"nothing of ours"} for folder in OURS
    }


def test_imports_are_absolute(package_sources: list[Source]) -> None:
    relative = [
        f"{source.path}:{node.lineno}"
        for source in package_sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert relative == []


def test_the_rule_itself_refuses_what_it_should() -> None:
    assert not allowed("ledgers", "fencelog.bookie.engine.bookie")
    assert not allowed("bookie", "fencelog.broker.broker")
    assert not allowed("broker", "fencelog.api.server.app")
    assert not allowed("broker", "ledgers.run")
    assert not allowed("spark_connector", "fencelog.api.server.app")
    assert not allowed("ledgers", "fastapi")
    assert allowed("spark_connector", "fencelog.api.client")
    assert allowed("api", "fencelog.broker.broker")


def test_the_service_loads_no_package_twice_and_no_spark(root: Path) -> None:
    """From the root, ``import ledgers`` would find the folder and make a second copy of it."""
    program = "import sys, fencelog.api.cli.main\nprint(*sorted({name.split('.')[0] for name in sys.modules}))"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "fencelog" in loaded
    assert loaded.isdisjoint({*PACKAGES, "pyspark", "pyarrow", "pandas"})
