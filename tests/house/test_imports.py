"""The imports that each package may make: the tables of ARCHITECTURE.md and of this module kept
true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.house import PACKAGES, ROOT, Source

OURS = {
    "ledgers": set[str](),
    "bookie": {"ledgers"},
    "broker": {"ledgers"},
    "api": {"ledgers", "bookie", "broker"},
    "spark_connector": {"ledgers"},
}
"""The packages that each package may import."""

ALSO = {"spark_connector": {"fencelog.api.client"}}
"""Sub-packages beyond that."""

LAYERS: dict[str, tuple[set[str], ...]] = {
    "ledgers": (
        {"errors", "host", "limits", "metrics", "spans"},
        {"format", "metastore", "quorum"},
        {"ledger_metadata", "record_batch", "rpc"},
        {"placement", "reader"},
        {"writer"},
        {"recovery"},
        {"client"},
    ),
    "bookie": (
        {"config", "metrics"},
        {"disk"},
        {"format"},
        {"journal"},
        {"storage"},
        {"identity"},
        {"engine", "offline"},
        {"gc", "repair", "server"},
        {"maintenance", "replication"},
        {"auditor"},
        {"balance", "recent"},
    ),
    "broker": (
        {"limits", "metrics"},
        {"ledger_list", "names", "policy"},
        {"config", "read", "registry"},
        {"append", "cluster", "dispatch"},
        {"compaction", "log", "subscriptions"},
        {"commits"},
        {"partition"},
        {"background", "partition.stats"},
        {"broker"},
    ),
    "api": (
        {"client", "console", "http"},
        {"metrics", "processes.logs", "processes.traces", "routing", "web_console"},
        {"admin.doctor", "streams", "subscriptions"},
        {"admin", "admin.events", "produce", "read"},
        {"server"},
        {"processes"},
        {"local_cluster"},
        {"bench.harness", "drills", "drills.harness"},
        {"bench", "bench.demo", "cli.healing", "drills.bookie", "drills.broker"},
        {"cli"},
    ),
    "spark_connector": (
        {"planning", "worker"},
        {"read"},
        {"stream", "write"},
        {"source"},
        {"bench", "demo", "pyspark_fencelog"},
    ),
}
"""The sub-packages, and the modules beside them, of each package, lowest layer first. Each imports
from lower layers only, so there is no cycle among them."""

DEVELOPMENT = {"fencelog.api.bench", "fencelog.api.drills", "fencelog.api.local_cluster"}
"""Sub-packages that serve development alone: the service never imports them."""

MAX_ENTRIES = 20

HTTP = {"fastapi", "httpx", "pydantic", "starlette", "typer", "uvicorn", "rich"}
SPARK = {"pandas", "pyarrow", "pyspark"}
FOREIGN = {
    "ledgers": HTTP | SPARK | {"rocksdict"},
    "bookie": HTTP | SPARK,
    "broker": HTTP | SPARK | {"rocksdict"},
    "api": SPARK,
    "spark_connector": {"fastapi", "rocksdict", "starlette", "uvicorn"},
}
"""Libraries that belong to another floor: the protocol knows no HTTP, the service no Spark."""

SHELLS = {
    "fencelog.api.bench",
    "fencelog.api.cli",
    "fencelog.api.client",
    "fencelog.api.drills",
    "fencelog.api.local_cluster",
    "fencelog.api.streams",
    "fencelog.spark_connector",
}
"""The modules that use anyio for tasks, time-outs and cancellation, and nothing of asyncio for
these. The rest is hot path or played on the simulator's event loop, and uses asyncio alone."""

BRIDGES = {"fencelog.spark_connector.read.read_ahead"}
"""Modules of the shells that use asyncio: they hand items from a loop to a thread, one by one."""

TASKS_OF_ASYNCIO = re.compile(
    r"asyncio\.(create_task|gather|wait|wait_for|timeout|shield|sleep|TaskGroup|Event|Queue|Lock"
    r"|Semaphore)\b|\bloop\.create_task\b"
)


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, also those inside functions.

    ``from fencelog.api.cli import topic`` counts as ``fencelog.api.cli.topic``.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield node.lineno, whole if is_module(whole) else node.module


def is_module(name: str) -> bool:
    """Tell whether ``name`` is a module or a package of ours."""
    path = ROOT.joinpath(*name.removeprefix("fencelog.").split("."))
    return name.startswith("fencelog.") and (path.is_dir() or path.with_suffix(".py").is_file())


def allowed(folder: str, module: str) -> bool:
    """Tell whether a module in ``folder`` may import ``module``."""
    parts = module.split(".")
    if parts[0] in FOREIGN[folder]:
        return False
    if parts[0] != "fencelog":
        return parts[0] not in PACKAGES
    return parts[1] in OURS[folder] | {folder} or ".".join(parts[:3]) in ALSO.get(folder, set())


def test_imports_go_one_way(package_sources: list[Source]) -> None:
    wrong = [
        f"{source.path}:{line} imports {module}"
        for source in package_sources
        for line, module in imported(source)
        if not allowed(source.folder, module)
    ]
    assert wrong == []


def test_shells_use_anyio_and_nothing_else_does(package_sources: list[Source]) -> None:
    shells = tuple(f"{name}." for name in SHELLS)
    wrong = []
    for source in package_sources:
        is_shell = f"{source.module}.".startswith(shells) and source.module not in BRIDGES
        libraries = {module.partition(".")[0] for _, module in imported(source)}
        if "anyio" in libraries and not is_shell:
            wrong.append(f"{source.path} imports anyio")
        if is_shell and TASKS_OF_ASYNCIO.search(source.text):
            wrong.append(f"{source.path} uses tasks of asyncio")
    assert wrong == []


def unit_of(module: str) -> tuple[str, str]:
    """Return (package, the sub-package in it, or the module that lies beside those)."""
    package, *rest = module.removeprefix("fencelog.").split(".")
    depth = len(rest)
    while depth > 1 and not (ROOT / package / Path(*rest[:depth])).is_dir():
        depth -= 1
    return package, ".".join(rest[:depth])


def inner_imports(sources: list[Source]) -> Iterator[tuple[str, str, str, str]]:
    """(where, package, unit that imports, unit that is imported) of all imports between units."""
    for source in sources:
        package, unit = unit_of(source.module)
        for line, module in imported(source):
            if module.startswith(f"fencelog.{package}."):
                other = unit_of(module)[1]
                if unit and other != unit:
                    yield f"{source.path}:{line}", package, unit, other


def layer_of(package: str, unit: str) -> int:
    """Return the layer's number, 0 for the lowest."""
    (layer,) = (n for n, units in enumerate(LAYERS[package]) if unit in units)
    return layer


def test_imports_inside_a_package_go_down(package_sources: list[Source]) -> None:
    flat = [source for source in package_sources if source.folder in LAYERS]
    wrong = [
        f"{where}: {unit} imports {other}"
        for where, package, unit, other in inner_imports(flat)
        if layer_of(package, other) >= layer_of(package, unit)
    ]
    assert wrong == []


def test_each_sub_package_says_what_it_imports(package_sources: list[Source]) -> None:
    used: dict[tuple[str, str], set[str]] = {}
    for _, package, unit, other in inner_imports(package_sources):
        used.setdefault((package, unit), set()).add(other)
    said = {}
    for source in package_sources:
        package, unit = unit_of(source.module)
        if unit and source.path.endswith("/__init__.py") and package in LAYERS:
            doc = " ".join((ast.get_docstring(source.tree) or "").split())
            _, _, names = doc.partition("Imports of its package: ")
            said[package, unit] = set(re.findall(r"``([\w.]+)``", names.partition(".\n")[0]))
    assert said == {key: used.get(key, set()) for key in said}
    units = {(package, unit) for package, layers in LAYERS.items() for unit in set().union(*layers)}
    assert said.keys() <= units


def test_modules_import_each_other_in_no_circle(package_sources: list[Source]) -> None:
    names = {source.module for source in package_sources}
    graph = {
        source.module: {module for _, module in imported(source) if module in names}
        for source in package_sources
    }
    TopologicalSorter(graph).prepare()


def test_the_service_never_imports_what_serves_development(package_sources: list[Source]) -> None:
    """Directly or not: from the processes of the service nothing of it can be reached."""
    graph = {source.module: {m for _, m in imported(source)} for source in package_sources}
    reached = {name for name in graph if name.startswith("fencelog.api.processes.")}
    assert len(reached) > 3
    ahead = list(reached)
    while ahead:
        for module in graph.get(ahead.pop(), set()) - reached:
            reached.add(module)
            ahead.append(module)
    assert {
        module
        for module in reached
        if any(f"{module}.".startswith(f"{package}.") for package in DEVELOPMENT)
    } == set()


def test_no_folder_is_crowded() -> None:
    """A folder of code fits one look at ``ls``."""
    folders = [
        folder
        for name in (*PACKAGES, "tests")
        for folder in ((ROOT / name), *(ROOT / name).rglob("*"))
        if folder.is_dir() and any(folder.glob("*.py"))
    ]
    counts = {
        str(folder.relative_to(ROOT)): len([x for x in folder.iterdir() if x.name[0] not in "_."])
        for folder in folders
    }
    assert {name: count for name, count in counts.items() if count > MAX_ENTRIES} == {}


def test_the_map_says_the_same(root: Path) -> None:
    rows = re.findall(
        r"^\| `(\w+)/` \| `fencelog\.\1` \| .* \| (.*) \|$",
        (root / "ARCHITECTURE.md").read_text("utf-8"),
        re.MULTILINE,
    )
    table = {folder: set(may.replace("`", "").split(", ")) for folder, may in rows}
    assert table == {
        folder: OURS[folder] | ALSO.get(folder, set()) or {"no other package"} for folder in OURS
    }


def test_the_map_lists_the_layers(root: Path) -> None:
    sections = re.findall(
        r"^### `(\w+)/`\n(.*?)(?=^#)",
        (root / "ARCHITECTURE.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert {package: layers_in(section) for package, section in sections} == LAYERS


def layers_in(section: str) -> tuple[set[str], ...]:
    """Return the layers of a table of ARCHITECTURE.md, lowest first."""
    layers: dict[int, set[str]] = {}
    for number, unit in re.findall(r"^\| (\d+) \| `([\w.]+)` \| .+ \|$", section, re.MULTILINE):
        layers.setdefault(int(number), set()).add(unit)
    assert list(layers) == list(range(1, len(layers) + 1))
    return tuple(layers.values())


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
    """A process started at the root could ``import ledgers`` from its folder, a second copy of
    it."""
    program = (
        "import sys, fencelog.api.cli.main\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "fencelog" in loaded
    assert loaded.isdisjoint({*PACKAGES, "pyspark", "pyarrow", "pandas"})


def test_a_command_loads_no_other_command_line(root: Path) -> None:
    """Nor what that one needs for colours; httpx has one."""
    program = (
        "import sys\n"
        "from fencelog.api.cli.main import run\n"
        "run(['topic', 'list', '--server', 'http://127.0.0.1:1'])\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "httpx" in loaded
    assert loaded.isdisjoint({"click", "pygments", "rich"})
