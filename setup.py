"""The build with compiled modules, which ``make compiled`` asks for; all others are Python alone.

``tool.fencelog.compiled`` in ``pyproject.toml`` lists the modules. mypyc compiles them into one
library, in which they call each other as C does; their text stays beside them.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup


def extensions() -> list[Any]:
    """Return the extensions of this build. A run that only asks for metadata compiles nothing: it
    would take as long as the build that follows."""
    if os.environ.get("FENCELOG_COMPILED") != "1" or "bdist_wheel" not in sys.argv:
        return []
    from mypyc.build import mypycify
    from mypyc.ir.rtypes import object_rprimitive
    from mypyc.primitives.registry import builtin_names

    # mypyc looks a type in the annotation of a field up among the globals, unless it knows it.
    builtin_names.setdefault("builtins.memoryview", (object_rprimitive, "PyMemoryView_Type"))
    settings = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    modules = settings["tool"]["fencelog"]["compiled"]
    paths = [f".typecheck/fencelog/{name.replace('.', '/')}.py" for name in modules]
    return list(mypycify(["--cache-dir=/dev/null", *paths], opt_level="2", debug_level="0"))


setup(ext_modules=extensions())
