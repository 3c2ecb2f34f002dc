"""The whole suite on two cores, in three parts that run side by side.

    python tests/run_suite.py [ARGUMENTS OF PYTEST]

With arguments it is pytest. The played part (simulator, crash images, house rules, protocol
stories) computes without waiting for anything; it runs at low priority, so that the others, with
their processes and time-outs, get a core whenever they ask for one. The part of whole processes
(clusters, drills) mostly waits. Each part lists its slowest tests. Batch reads from Spark are
tested a second time, on the oldest Spark that is supported (``make oldest-spark``).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PLAYED = (
    "tests/sim",
    "tests/explore",
    "tests/crash",
    "tests/house",
    "tests/scripts",
    "tests/properties",
)
PROCESSES = ("tests/processes",)
PYTEST = (sys.executable, "-m", "pytest")
WHOLE = (*PYTEST, "--durations=20")
OLDEST_SPARK = Path(sys.prefix) / "oldest-spark/bin/python"
ON_SPARK = (
    *("-m", "pytest", "-m", "spark"),
    *("tests/spark/test_source.py", "tests/spark/test_filters.py"),
)


def run_whole() -> int:
    """Exit code: 0 if all parts passed. The output of parts in the background comes last."""
    with (
        background(("nice", "-n", "10", *WHOLE, *PLAYED)) as played,
        background((*WHOLE, *PROCESSES)) as processes,
    ):
        ignored = (f"--ignore={path}" for path in (*PLAYED, *PROCESSES))
        others = subprocess.run((*WHOLE, *ignored), check=False).returncode
        oldest = run_oldest_spark()
        failed = finish(*processes), finish(*played)
        return others or oldest or max(map(abs, failed))


@contextmanager
def background(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Run a command; yields its process and its output."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process, output
        finally:
            process.kill()
            process.wait()


def finish(process: subprocess.Popen[bytes], output: IO[bytes]) -> int:
    """Exit code of a part, when it has ended and its output is shown."""
    failed = process.wait()
    output.seek(0)
    sys.stdout.flush()
    sys.stdout.buffer.write(output.read())
    sys.stdout.flush()
    return failed


def run_oldest_spark() -> int:
    """Exit code of the batch reads on the oldest Spark, which ``make pytest`` installs."""
    if not OLDEST_SPARK.exists():
        sys.stdout.write(f"NOT RUN on the oldest Spark, there is no {OLDEST_SPARK}: make pytest\n")
        return 1
    return subprocess.run((OLDEST_SPARK, *ON_SPARK), check=False).returncode


def main() -> int:
    arguments = sys.argv[1:]
    if not arguments:
        return run_whole()
    return subprocess.run((*PYTEST, *arguments), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
