"""The settings of a worker: a Python process of Spark's, which runs one task after the other."""

from __future__ import annotations

import gc
import sys
from functools import cache
from pathlib import Path
from zipimport import zipimporter

import pyspark

from fencelog.ledgers.host import keep_freed_memory
from fencelog.ledgers.limits import KEPT_FREE_BYTES


def prepare_worker() -> None:
    """Make this worker fit for tasks that move megabytes. To be called as each task begins."""
    _keep_directories_of_spark()
    _settle()


@cache
def _settle() -> None:
    """Keep freed memory, and leave what is there when the first task begins out of collections.

    Spark collects garbage in the whole process after each task. Most of what it looks at are the
    libraries, which stay anyway: 65,000 objects, 20 ms on an idle machine and 100 ms where batches
    have pushed them out of the caches.
    """
    keep_freed_memory(KEPT_FREE_BYTES)
    gc.freeze()


def _keep_directories_of_spark() -> None:
    """Have Python read the directories of Spark's own archives once: ``pyspark.zip``, and a jar
    that is on the path of modules.

    Before each task PySpark 4.0 to 4.2 tells all importers that files may have changed. Then Python
    3.11 reads an archive's directory anew for each package that was imported from it, 150 ms in
    all, and no task changes these archives. PySpark 4.3 says so only where a path was added. Later
    tasks import more packages, so this is done before each.
    """
    archive = Path(pyspark.__file__).parents[1]
    if archive.suffix != ".zip":
        return
    libraries = archive.parent
    own = {libraries, libraries.parents[1] / "jars"}
    for importer in list(sys.path_importer_cache.values()):  # other threads may import
        if isinstance(importer, zipimporter) and Path(importer.archive).parent in own:
            importer.invalidate_caches = _keep  # type: ignore[method-assign]  # on this object


def _keep() -> None:
    """Keep what the importer knows."""
