"""Size and order. The table of exceptions may only shrink: it has to name each one exactly."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.house import Source

MAX_MODULE_LINES = 300
MAX_TEST_MODULE_LINES = 400
"""The limit of code lines: comments, docstrings and blank lines do not count."""

MAX_FUNCTION_LINES = 60
"""The limit of all lines: a function fits a screen."""

EXCEPTIONS = Path(__file__).with_name("tidy_exceptions.json")

UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")

UNEXPLAINED = re.compile(
    r"# type: (?:ignore)(?!\[[\w, -]+\]  # \S)|# (?:noqa)(?!: [A-Z]+\d+(, [A-Z]+\d+)* - \S)"
)
"""A silenced complaint of mypy or ruff without its name, or without the reason behind it."""


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """(qualified name, lines) of every function, nested ones too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield name, (node.end_lineno or node.lineno) - node.lineno + 1
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, prefix)


def code_lines(source: Source) -> int:
    """Return how many lines hold code."""
    silent = {
        line
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(source.text.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in silent
        for number, line in lines
    )


def oversize(sources: list[Source]) -> dict[str, int]:
    """Return the lines of every module and function over its limit."""
    found = {}
    for source in sources:
        limit = MAX_TEST_MODULE_LINES if source.folder == "tests" else MAX_MODULE_LINES
        if (lines := code_lines(source)) > limit:
            found[source.path] = lines
        for name, length in functions(source.tree):
            if length > MAX_FUNCTION_LINES:
                found[f"{source.path}:{name}"] = length
    return found


def test_modules_and_functions_keep_their_size(all_sources: list[Source]) -> None:
    """One that grew is cut up; one that shrank is taken out of the table, or lowered in it."""
    assert oversize(all_sources) == json.loads(EXCEPTIONS.read_text(encoding="utf-8"))


def test_every_module_says_what_it_is_for(all_sources: list[Source]) -> None:
    assert [source.path for source in all_sources if not ast.get_docstring(source.tree)] == []


def only_narrows(condition: ast.expr) -> bool:
    """``isinstance(…)`` and ``… is not None``: said for the type checker, true by construction."""
    match condition:
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
    return False


def test_packages_check_invariants_in_production_too(package_sources: list[Source]) -> None:
    """``python -O`` drops ``assert``; ``ledgers.errors.check`` stays."""
    bare = [
        f"{source.path}:{node.lineno}"
        for source in package_sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assert) and not only_narrows(node.test)
    ]
    assert bare == []


def test_nothing_is_left_for_later(
    all_sources: list[Source], documents: list[Path], root: Path
) -> None:
    manifests = [*(root / "k8s").rglob("*.yaml"), root / "Makefile", root / "Dockerfile"]
    texts = {
        str(path.relative_to(root)): path.read_text("utf-8") for path in [*documents, *manifests]
    }
    texts |= {source.path: source.text for source in all_sources}
    assert [path for path, text in texts.items() if UNFINISHED.search(text)] == []


def unexplained(sources: list[Source]) -> list[str]:
    return [
        f"{source.path}:{number}"
        for source in sources
        for number, line in enumerate(source.text.splitlines(), 1)
        if UNEXPLAINED.search(line)
    ]


def test_what_mypy_and_ruff_are_told_to_ignore_has_a_reason(all_sources: list[Source]) -> None:
    assert unexplained(all_sources) == []


def test_a_reason_is_asked_for() -> None:
    silenced = "ignore".join(("# type: ", ""))
    lines = [silenced, f"{silenced}[misc]", f"{silenced}[misc]  # a double", f"{silenced}  # why"]
    source = Source.parse("broker/example.py", "".join(f"x = 1  {line}\n" for line in lines))
    assert unexplained([source]) == [f"broker/example.py:{number}" for number in (1, 2, 4)]
    silenced = "noqa".join(("# ", ""))
    lines = [silenced, f"{silenced}: B023", f"{silenced}: B023 - called at once"]
    source = Source.parse("broker/example.py", "".join(f"x = 1  {line}\n" for line in lines))
    assert unexplained([source]) == [f"broker/example.py:{number}" for number in (1, 2)]


def test_the_rule_itself_counts_lines() -> None:
    text = "class A:\n    def long(self):\n" + "        pass\n" * 60 + "def short():\n    pass\n"
    source = Source.parse("broker/example.py", text)
    assert oversize([source]) == {"broker/example.py:A.long": 61}
    silent = '"""A docstring.\n\nof three lines."""\n\n# a comment\n'
    source = Source.parse("broker/example.py", silent + "a = 1\n" * 301)
    assert oversize([source]) == {"broker/example.py": 301}
