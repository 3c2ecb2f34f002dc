"""The installed package: every folder, at pinned versions, and nothing under a name of its own."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.house import PACKAGES, ROOT, Source


def constraints() -> dict[str, str]:
    """Name -> version of every pin."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): pinned for name, pinned in pins}


def requirements(pyproject: dict[str, Any]) -> list[Requirement]:
    """Return all requirements, extras and build tool included."""
    project = pyproject["project"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    texts = [*pyproject["build-system"]["requires"], *project["dependencies"], *extras]
    return [Requirement(text) for text in texts]


def test_every_requirement_is_pinned_within_its_bounds(pyproject: dict[str, Any]) -> None:
    pins = constraints()
    for requirement in requirements(pyproject):
        pinned = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(Version(pinned)), requirement


def libraries(sources: list[Source]) -> set[str]:
    """The distributions that modules import, those inside functions too."""
    names = {
        name.split(".")[0]
        for source in sources
        for node in ast.walk(source.tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    foreign = names - sys.stdlib_module_names - {"fencelog", "pyspark_fencelog"}
    providers = packages_distributions()
    return {canonicalize_name(providers[name][0]) for name in foreign}


def test_every_library_that_is_imported_is_required(
    package_sources: list[Source], pyproject: dict[str, Any]
) -> None:
    project = pyproject["project"]
    names = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    extras = {
        extra: {canonicalize_name(Requirement(text).name) for text in texts}
        for extra, texts in project["optional-dependencies"].items()
    }
    service = [source for source in package_sources if source.folder != "spark_connector"]
    connector = [source for source in package_sources if source.folder == "spark_connector"]
    # uvicorn[standard] brings uvloop and httptools; fastapi brings starlette and pydantic.
    brought = {"uvloop", "httptools", "starlette", "pydantic"}
    assert libraries(service) <= names | brought | extras["compression"] | extras["otel"]
    assert libraries(connector) <= names | brought | extras["spark"]


def test_pins_are_plain_versions() -> None:
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", pinned) for pinned in constraints().values())


def test_the_environment_holds_what_is_pinned(pyproject: dict[str, Any]) -> None:
    pins = constraints()
    for requirement in requirements(pyproject):
        assert version(requirement.name) == pins[canonicalize_name(requirement.name)]


def _package_name(folder: Path) -> str:
    if folder.name == "pyspark_fencelog":
        return folder.name
    return ".".join(("fencelog", *folder.parts))


def test_every_package_folder_is_listed(pyproject: dict[str, Any]) -> None:
    setuptools = pyproject["tool"]["setuptools"]
    found = {
        path.parent.relative_to(ROOT)
        for name in PACKAGES
        for path in (ROOT / name).rglob("__init__.py")
    }
    assert sorted(setuptools["packages"]) == sorted(map(_package_name, found))
    assert setuptools["package-dir"] == {
        _package_name(path): str(path)
        for path in found
        if len(path.parts) == 1 or path.name == "pyspark_fencelog"
    }
    assert all((ROOT / name / "py.typed").exists() for name in PACKAGES)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel built from a copy of the packages."""
    copy = tmp_path_factory.mktemp("source")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", "dist", "."], cwd=copy, check=True
    )
    (built,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


def test_a_wheel_holds_every_module(wheel: list[str], pyproject: dict[str, Any]) -> None:
    for package, folder in pyproject["tool"]["setuptools"]["package-dir"].items():
        for module in (ROOT / folder).glob("*.py"):
            assert f"{package.replace('.', '/')}/{module.name}" in wheel


def test_a_wheel_holds_the_console(wheel: list[str]) -> None:
    folder = "api/web_console/static"
    for file in (ROOT / folder).iterdir():
        assert f"fencelog/{folder}/{file.name}" in wheel


def test_a_wheel_holds_no_script_of_others(wheel: list[str]) -> None:
    """A module of the console begins with what it is for; what others publish has a banner."""
    folder = "api/web_console/static"
    own = {f"fencelog/{folder}/{file.name}": file for file in (ROOT / folder).glob("*.js")}
    scripts = (".js", ".mjs", ".cjs", ".map", ".wasm")
    assert {name for name in wheel if name.endswith(scripts)} == own.keys()
    for file in own.values():
        text = file.read_text("utf-8")
        assert text.startswith("// "), file.name
        assert not re.search("@license|@preserve|copyright|sourceMappingURL", text, re.IGNORECASE)


def test_a_wheel_claims_no_name_but_ours(wheel: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "fencelog",
        "pyspark_fencelog",
    }


def test_the_image_is_built_from_files_that_exist() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    copied = {
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert copied == {*PACKAGES, "constraints.txt", "pyproject.toml", "README.md", "LICENSE"}
    assert all((ROOT / source).exists() for source in copied)
    admitted = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {line[1:] for line in admitted if line.startswith("!")} == copied


def test_the_image_runs_as_the_user_of_the_manifests() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert "\nUSER 10000:10000\n" in dockerfile
    assert "runAsUser: 10000" in (ROOT / "k8s/base/bookie.yaml").read_text("utf-8")


def test_mypy_and_the_make_file_know_every_package(pyproject: dict[str, Any]) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"PACKAGES := {' '.join(PACKAGES)}\n" in makefile
    assert pyproject["tool"]["mypy"]["strict"] is True
    assert set(pyproject["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]) >= set(
        PACKAGES
    )


@pytest.fixture(scope="module")
def compiled(pyproject: dict[str, Any]) -> dict[str, str]:
    """The modules that ``make compiled`` compiles, and why."""
    modules: dict[str, str] = pyproject["tool"]["fencelog"]["compiled"]
    return modules


def test_each_module_that_is_compiled_exists_and_has_a_reason(compiled: dict[str, str]) -> None:
    for module, reason in compiled.items():
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
        assert reason, module
    assert list(compiled) == sorted(compiled)


def structs_of(sources: list[Source]) -> Iterator[type]:
    """Yield the classes of msgspec in these modules."""
    for source in sources:
        names = [
            node.name
            for node in source.tree.body
            if isinstance(node, ast.ClassDef)
            if not {"Struct", "msgspec.Struct"}.isdisjoint(map(ast.unparse, node.bases))
        ]
        if names:
            module = importlib.import_module(source.module)
            yield from (getattr(module, name) for name in names)


def classes_in(info: object) -> Iterator[type]:
    """Yield the classes of which msgspec makes objects, for a type that it reads."""
    if (cls := getattr(info, "cls", None)) is not None:
        yield cls
    for name in getattr(info, "__struct_fields__", ()):
        part = getattr(info, name)
        for each in part if isinstance(part, tuple) else (part,):
            yield from classes_in(each)


def test_msgspec_reads_no_class_that_is_compiled(
    package_sources: list[Source], compiled: dict[str, str]
) -> None:
    # Of annotations that mypyc cannot evaluate it leaves ``type``, and msgspec reads by them.
    read = msgspec.inspect.multi_type_info(list(structs_of(package_sources)))
    modules = {
        cls.__module__.removeprefix("fencelog.") for info in read for cls in classes_in(info)
    }
    assert "broker.append.conditions" in modules
    assert modules.isdisjoint(compiled)
