"""The view of an editor: every module of the project is found in a fresh clone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.house import Source

CONFIGURATION = "pyrightconfig.json"


def unresolved(root: Path, folder: Path, modules: list[str]) -> list[str]:
    """Return what Pyright says of a module that imports all of ``modules``, with the project's own
    settings. Types are mypy's business: it looks at this one module alone."""
    (folder / "imports.py").write_text("".join(f"import {name}\n" for name in modules), "utf-8")
    settings = {"extends": str(root / "pyproject.toml"), "include": [str(folder)]}
    (folder / CONFIGURATION).write_text(json.dumps(settings), "utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(folder)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    return [found["message"] for found in report["generalDiagnostics"]]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_pyright_finds_every_module(
    root: Path, package_sources: list[Source], tmp_path: Path
) -> None:
    """The links below ``.typecheck`` are part of the repository: nothing has to be made first."""
    links = sorted((root / ".typecheck" / "fencelog").iterdir())
    assert all(link.is_symlink() and link.resolve() == root / link.name for link in links)
    modules = [source.module for source in package_sources if "pyspark" not in source.path]
    assert len(modules) > 400
    found = unresolved(root, tmp_path, [*modules, "fencelog.nowhere"])
    assert found == ['Import "fencelog.nowhere" could not be resolved']
