"""The CPU time of processes that a bench runs."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from time import clock_gettime

_libc = ctypes.CDLL(None)


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its children: ZooKeeper is the child of ours. Its clock
    is read, as what /proc tells moves by 10 ms. Raises OSError: there is no such process."""
    clock = ctypes.c_int()
    if error := _libc.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(error, os.strerror(error), f"process {pid}")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return clock_gettime(clock.value) + sum(process_cpu_s(int(child)) for child in children)
