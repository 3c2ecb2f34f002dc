"""The project's own files, as its tests read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "bookie", "broker", "ledgers", "spark_connector")


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root of the repository, its text and its tree."""

    path: str
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)

    @classmethod
    def parse(cls, path: str, text: str) -> Source:
        return cls(path=path, text=text, tree=ast.parse(text, filename=path))

    @property
    def module(self) -> str:
        """Return the name by which it is imported, if it is part of a package."""
        path = self.path.removesuffix(".py").removesuffix("/__init__")
        return "fencelog." + path.replace("/", ".")

    @property
    def folder(self) -> str:
        """Return the top-level folder that contains it."""
        return self.path.split("/", 1)[0]


def read_sources(*folders: str) -> Iterator[Source]:
    """Yield every Python file below the folders."""
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            yield Source.parse(path, file.read_text(encoding="utf-8"))


def read_documents() -> list[Path]:
    """Return every Markdown document: those at the root, and those beside the code that they
    describe."""
    folders = (*PACKAGES, "k8s", "tests")
    beside = (file for folder in folders for file in (ROOT / folder).rglob("*.md"))
    return sorted([*ROOT.glob("*.md"), *beside])
