"""The CPU time of processes, their children included."""

from __future__ import annotations

import os
import subprocess
import sys
from time import process_time

import pytest

from fencelog.api.bench.harness.cpu import process_cpu_s

BUSY = "sum(range(2_000_000)); print(flush=True); input()"


def test_short_work_counts() -> None:
    before_s, began_s = process_cpu_s(os.getpid()), process_time()
    sum(range(10_000))
    used_s = process_time() - began_s
    assert process_cpu_s(os.getpid()) - before_s >= used_s > 0


def test_the_work_of_a_child_counts() -> None:
    before_s = process_cpu_s(os.getpid())
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        of_child_s = process_cpu_s(child.pid)
        assert process_cpu_s(os.getpid()) - before_s >= of_child_s > 0
        child.communicate(b"\n")


def test_a_process_that_has_ended_is_an_error() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(ProcessLookupError, match=f"process {child.pid}"):
        process_cpu_s(child.pid)
