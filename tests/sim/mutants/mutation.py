"""Mutants: small wrong edits of the real code, in force while a ``with`` block lasts.

The whole edited module is compiled, so that decorators, closures, class cells and ``__future__``
stay what they are; then the code of each edited function is put into the live function, where every
reference to it, wherever it was imported to, sees it. Nothing else of the module changes, so
constants, defaults and decorators cannot be edited, and an edit that reaches no running code is
refused like one whose text is not there: a mutant that does nothing would look like one that no
check catches.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import importlib
import inspect
import linecache
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


class MutationError(Exception):
    """A mutant does not fit the code as it is now; says which edit and why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit: in ``function`` of ``module`` the text ``old``, found exactly once in it, becomes
    ``new``.

    ``function`` is a qualified name without ``<locals>``: ``write_set``, ``Journal.append``,
    ``Fences.fence.report``. The text is that of the file: indentation and line ends count.
    """

    module: str
    function: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong version of the code. ``rule`` is what it breaks, ``what`` says how, in a sentence."""

    name: str
    rule: str
    what: str
    edits: tuple[Edit, ...]


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The code is the mutant's within the block, and what it was after it, whatever happens.

    Functions that run already, and closures made before, stay as they are: apply it first. Raises
    MutationError before anything is changed.
    """
    modules = [
        _edited_module(mutant.name, name, [edit for edit in mutant.edits if edit.module == name])
        for name in dict.fromkeys(edit.module for edit in mutant.edits)
    ]
    changes = [change for module in modules for change in module.changes]
    before = [(function, function.__code__) for function, _ in changes]
    try:
        for module in modules:
            # A traceback shows the mutant's own lines. (None: never compared with a file.)
            lines = module.text.splitlines(keepends=True)
            linecache.cache[module.filename] = (len(module.text), None, lines, module.filename)
        for function, code in changes:
            function.__code__ = code
        yield
    finally:
        for function, code in before:
            function.__code__ = code
        for module in modules:
            linecache.cache.pop(module.filename, None)


@dataclass(frozen=True, slots=True)
class _EditedModule:
    filename: str
    """The one that it was compiled under: not the real one, whose lines are others."""
    text: str
    changes: list[tuple[FunctionType, CodeType]]
    """Live functions and what they are to run."""


def _edited_module(name: str, module_name: str, edits: list[Edit]) -> _EditedModule:
    module = importlib.import_module(module_name)
    path = module.__file__
    if path is None:
        raise MutationError(f"{module_name} has no source")
    original = Path(path).read_text(encoding="utf-8")
    text = original
    for edit in edits:
        text = _replaced(text, edit)
    filename = f"{path} <{name}>"
    try:
        after = _codes(text, filename)
    except SyntaxError as error:
        raise MutationError(f"mutant {name} of {module_name} does not compile: {error}") from error
    before = _codes(original, path)
    changes: dict[str, tuple[FunctionType, CodeType]] = {}
    for edit in edits:
        # A nested function is made anew by each call of the outermost one, out of its code.
        outermost = _outermost(edit)
        live = _live_function(module, outermost, edit)
        if _meaning(live.__code__) != _meaning(before[outermost]):
            raise MutationError(f"{edit}: the code in memory is not that of {path}")
        changes[outermost] = live, _checked(live, after[outermost], edit)
    return _EditedModule(filename, text, list(changes.values()))


def _replaced(text: str, edit: Edit) -> str:
    start, end = _extent(text, edit)
    body = text[start:end]
    count = body.count(edit.old)
    if count != 1:
        raise MutationError(f"{edit}: found {count} times, not once: {edit.old!r}")
    return text[:start] + body.replace(edit.old, edit.new) + text[end:]


def _extent(text: str, edit: Edit) -> tuple[int, int]:
    """Return where the function's text begins and ends, its decorators left out."""
    extents = _extents(text).get(edit.function, ())
    if len(extents) != 1:
        raise MutationError(f"{edit}: there are {len(extents)} such functions")
    return extents[0]


@functools.cache
def _extents(text: str) -> Mapping[str, Sequence[tuple[int, int]]]:
    """Return where the functions of each name begin and end."""
    ends = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    found: dict[str, list[tuple[int, int]]] = {}
    for name, node in _definitions(ast.parse(text)):
        extent = ends[node.lineno - 1], ends[node.end_lineno or node.lineno]
        found.setdefault(name, []).append(extent)
    return found


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield prefix + child.name, child
        if isinstance(child, _Function | ast.ClassDef):
            yield from _definitions(child, f"{prefix}{child.name}.")
        else:
            yield from _definitions(child, prefix)


@functools.cache
def _codes(text: str, filename: str) -> Mapping[str, CodeType]:
    """Every function's code of a module by qualified name; of those that are defined twice, the
    last. Kept: most modules have many mutants, and most mutants are applied more than once."""
    codes: dict[str, CodeType] = {}
    waiting = [compile(text, filename, "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        codes[code.co_qualname] = code
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return codes


def _outermost(edit: Edit) -> str:
    """The function that an edit's one lies in, or is: as far as classes and one function go."""
    path: list[str] = []
    found: Any = importlib.import_module(edit.module)
    for name in edit.function.split("."):
        path.append(name)
        found = inspect.getattr_static(found, name, None)
        if not inspect.isclass(found):
            break
    return ".".join(path)


def _live_function(module: object, name: str, edit: Edit) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    match found:
        case property():
            found = found.fget
        case classmethod() | staticmethod():
            found = found.__func__
        case functools.cached_property():
            found = found.func
    if callable(found):
        found = inspect.unwrap(found)
    if not isinstance(found, FunctionType) or found.__qualname__ != name:
        raise MutationError(f"{edit}: no function of that name is in use")
    return found


def _checked(live: FunctionType, code: CodeType, edit: Edit) -> CodeType:
    before = live.__code__
    if code.co_freevars != before.co_freevars:
        raise MutationError(
            f"{edit}: uses {code.co_freevars} of what is around it, not {before.co_freevars}"
        )
    if _meaning(code) == _meaning(before):
        raise MutationError(f"{edit}: the edit changes nothing that runs")
    unknown = sorted(_globals(code) - live.__globals__.keys() - vars(builtins).keys())
    if unknown:  # it would end with a NameError instead of breaking its rule
        raise MutationError(f"{edit}: {', '.join(unknown)} is no name of {edit.module}")
    return code


def _globals(code: CodeType) -> set[str]:
    """Return the global names that a function, or one within it, reads."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return own.union(*(_globals(c) for c in code.co_consts if isinstance(c, CodeType)))


def _meaning(code: CodeType) -> tuple[object, ...]:
    """Return what the code does, wherever it stands in its file."""
    names = (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars)
    constants = [
        _meaning(constant) if isinstance(constant, CodeType) else (type(constant), constant)
        for constant in code.co_consts
    ]
    return code.co_code, names, constants, code.co_flags, code.co_exceptiontable
