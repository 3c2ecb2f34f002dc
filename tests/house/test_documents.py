"""Documents point at what exists: files, commands and targets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fencelog.api.cli.main import application
from tests.support.house import ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TARGET = re.compile(r"^([a-z0-9-]+):", re.MULTILINE)
MODULE = re.compile(r"`(?!/)([\w/]+\.(?:py|md|json|toml))`")
FENCE = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)

EXPECTED = (
    "README.md",
    "ARCHITECTURE.md",
    "api/HTTP.md",
    "bookie/MAINTENANCE.md",
    "bookie/STORAGE.md",
    "broker/SEMANTICS.md",
    "k8s/OPERATIONS.md",
    "ledgers/PROTOCOL.md",
    "tests/TESTING.md",
)


def command_lines(document: Path) -> Iterator[str]:
    """The lines of every shell example, continued lines joined, comments cut off."""
    for block in FENCE.findall(document.read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if words := line.partition(" #")[0].strip():
                yield words


@pytest.mark.parametrize("name", EXPECTED)
def test_each_package_has_its_document(name: str) -> None:
    assert len((ROOT / name).read_text("utf-8")) > 500


def test_links_lead_somewhere(documents: list[Path]) -> None:
    dead = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in LINK.findall(document.read_text("utf-8"))
        if "://" not in target
        and not target.startswith("#")
        and not (document.parent / target.partition("#")[0]).exists()
    ]
    assert dead == []


def test_modules_that_are_named_exist(documents: list[Path]) -> None:
    """`folder/module.py` from the root, or `module.py` beside the document."""
    missing = [
        f"{document.relative_to(ROOT)}: {name}"
        for document in documents
        for name in MODULE.findall(document.read_text("utf-8"))
        if not (ROOT / name).exists() and not (document.parent / name).exists()
    ]
    assert missing == []


def test_make_targets_in_examples_exist(documents: list[Path]) -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text("utf-8")))
    used = {
        word
        for document in documents
        for line in command_lines(document)
        if line.startswith("make ")
        for word in shlex.split(line)[1:]
        if "=" not in word
    }
    assert used >= {"run", "test", "demo"}
    assert used <= targets


@cache
def command_line() -> Any:
    return get_command(application())


def unknown_words(line: str) -> list[str]:
    """The commands and options in a line of ``fencelog …`` that the command line does not have."""
    _, *words = shlex.split(re.split(r" [|>&]", line)[0])
    command = command_line()
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in command.commands:
            return [name]
        command = command.commands[name]
    known = {"--help"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    return [word for word in words if word.startswith("--") and word.split("=")[0] not in known]


def test_commands_and_options_in_examples_exist(documents: list[Path]) -> None:
    unknown = [
        f"{document.relative_to(ROOT)}: {word} in {line}"
        for document in documents
        for line in command_lines(document)
        if line.split()[0].endswith("fencelog")
        for word in unknown_words(line)
    ]
    assert unknown == []


def test_the_rule_itself_refuses_what_it_should() -> None:
    assert unknown_words("fencelog topic create default/a --partitions 3") == []
    assert unknown_words("fencelog bookie decommission bookie-1 --no-wait") == []
    assert unknown_words("fencelog topic invent default/a") == ["invent"]
    assert unknown_words(".venv/bin/fencelog standalone --htpp 1 | cat") == ["--htpp"]
