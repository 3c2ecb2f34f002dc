"""What a process asks of its machine."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

FAULTS = """
import resource
from fencelog.ledgers.host import keep_freed_memory
{call}
sizes = [4 << 20, 3 << 20, 2 << 20] * 20
[bytes(size) for size in sizes[:3]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in sizes:
    bytearray(size)[-1] = bytearray(b"x" * size)[-1]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    program = FAULTS.format(call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    assert faults("keep_freed_memory(64 << 20)") * 5 < faults("")
