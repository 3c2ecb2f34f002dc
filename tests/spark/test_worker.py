"""``spark_connector.worker``: what a worker's process keeps."""

from __future__ import annotations

import subprocess
import sys

STORY = """
import gc
from fencelog.spark_connector.worker import prepare_worker

before = gc.get_freeze_count()
prepare_worker()
frozen = gc.get_freeze_count()
later = [[] for _ in range(1000)]
prepare_worker()
print(before, frozen > 10_000, gc.get_freeze_count() <= frozen)
"""


def test_what_is_there_at_the_first_task_is_left_out_of_collections_and_nothing_later() -> None:
    process = subprocess.run(
        [sys.executable, "-c", STORY], capture_output=True, check=True, text=True
    )
    assert process.stdout.split() == ["0", "True", "True"]
