"""Clock, chance and threads stay in the real ports, so that the rest can be simulated."""

from __future__ import annotations

import ast

from hypothesis import settings

from tests.support.house import Source

SIMULATED = {"ledgers", "bookie", "broker"}

CLOCK_AND_CHANCE = {
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.now",
    "os.urandom",
    "random",
    "secrets",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.sleep",
    "time.time",
    "time.time_ns",
    "uuid",
}
THREADS = {"asyncio.to_thread", "concurrent.futures", "threading"}

HOST_PORT = {"ledgers/host.py"}
"""The only module that asks the machine for a date or for chance."""

THREAD_PORTS = {
    "bookie/disk/posix.py",
    "ledgers/metastore/sqlite.py",
}
"""The modules that own a thread: disk and metadata block, the event loop must not."""


def uses(source: Source) -> set[tuple[int, str]]:
    """(line, dotted name) of everything named in a module, imports spelled out."""
    found = set[tuple[int, str]]()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            found.add((node.lineno, ast.unparse(node)))
        elif isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add((node.lineno, node.module))
            found |= {(node.lineno, f"{node.module}.{alias.name}") for alias in node.names}
    return found


def offenders(sources: list[Source], banned: set[str]) -> dict[str, list[str]]:
    """Module -> "LINE NAME" of every use of a banned name in the simulated packages."""
    found = {
        source.path: [f"{line} {name}" for line, name in sorted(uses(source)) if name in banned]
        for source in sources
        if source.folder in SIMULATED
    }
    return {path: lines for path, lines in found.items() if lines}


def test_clock_and_chance_come_from_the_host_port(package_sources: list[Source]) -> None:
    assert offenders(package_sources, CLOCK_AND_CHANCE).keys() == HOST_PORT


def test_threads_belong_to_the_blocking_ports(package_sources: list[Source]) -> None:
    assert offenders(package_sources, THREADS).keys() == THREAD_PORTS


def test_no_property_has_to_be_quick(all_sources: list[Source]) -> None:
    """Bare times fail on a busy machine. The profile has none, and nobody sets his own."""
    assert settings().deadline is None
    own = [
        f"{source.path}:{call.lineno}"
        for source in all_sources
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call)
        if any(keyword.arg == "deadline" for keyword in call.keywords)
        if ast.unparse(call.func).endswith("settings")
    ]
    assert own == []


def test_the_rule_itself_sees_every_spelling() -> None:
    text = "import time\nfrom time import monotonic\nimport uuid\nx = time.time()\n"
    source = Source.parse("broker/example.py", text)
    assert offenders([source], CLOCK_AND_CHANCE) == {
        "broker/example.py": ["2 time.monotonic", "3 uuid", "4 time.time"]
    }
