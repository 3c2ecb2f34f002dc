"""``spark_connector.worker``: what a worker's process keeps from one task to the next."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark

GARBAGE = """
import gc
from fencelog.spark_connector.worker import prepare_worker

before = gc.get_freeze_count()
prepare_worker()
frozen = gc.get_freeze_count()
later = [[] for _ in range(1000)]
prepare_worker()
print(before, frozen > 10_000, gc.get_freeze_count() <= frozen)
"""

ARCHIVES = """
import importlib, sys, zipfile
import pyspark, py4j, users_module
from fencelog.spark_connector.worker import prepare_worker

assert "pyspark.zip" in pyspark.__file__, pyspark.__file__
prepare_worker()
import pyspark.resource, pyspark.sql.streaming
prepare_worker()
packages = [path for path in sys.path_importer_cache if "pyspark.zip/" in path]
assert len(packages) > 1, packages
importers = {path: sys.path_importer_cache[path] for path in [*packages, *sys.argv[1:]]}
known = {path: importer._files for path, importer in importers.items()}
with zipfile.ZipFile(sys.argv[-1], "a") as archive:
    archive.writestr("added_later.py", "number = 5")
importlib.invalidate_caches()
import added_later, pyspark.errors
kept = [importers[path]._files is known[path] for path in known]
print(added_later.number, all(kept[:-1]), kept[-1])
"""


def _output(story: str, *arguments: str, path: tuple[str, ...] = ()) -> list[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-c", story, *arguments]
    return subprocess.check_output(command, text=True, env=environment).split()


def test_what_is_there_at_the_first_task_is_left_out_of_collections_and_nothing_later() -> None:
    assert _output(GARBAGE) == ["0", "True", "True"]


def test_sparks_own_archives_are_read_once_and_those_of_users_again(tmp_path: Path) -> None:
    library = Path(pyspark.__file__).parent / "python" / "lib"
    archives = [str(archive) for archive in sorted(library.glob("*.zip"))]
    assert len(archives) == 2
    own = tmp_path / "own.zip"
    with zipfile.ZipFile(own, "w") as archive:
        archive.writestr("users_module.py", "")
    paths = (*archives, str(own))
    assert _output(ARCHIVES, *paths, path=paths) == ["5", "True", "False"]
