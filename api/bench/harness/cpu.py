"""The CPU time of processes that a bench runs."""

from __future__ import annotations

import os
from pathlib import Path


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its children: ZooKeeper is the child of ours."""
    process = Path(f"/proc/{pid}")
    # The fields after the name, which is in parentheses: utime and stime are the 14th and 15th.
    fields = (process / "stat").read_text("ascii").rpartition(")")[2].split()
    children = (process / "task" / str(pid) / "children").read_text("ascii").split()
    own_s = sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(process_cpu_s(int(child)) for child in children)
