"""The whole suite on two cores: what is played in virtual time beside what runs for real.

    python tests/run_suite.py [ARGUMENTS OF PYTEST]

With arguments it is pytest. The played half (simulator, crash images, house rules, protocol
stories) computes without waiting for anything; it runs at low priority, so that the other half,
with its processes and time-outs, gets a core whenever it asks for one. Batch reads from Spark are
tested a second time, on the oldest Spark that is supported (``make oldest-spark``).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PLAYED = (
    "tests/sim",
    "tests/explore",
    "tests/crash",
    "tests/house",
    "tests/scripts",
    "tests/properties",
)
PYTEST = (sys.executable, "-m", "pytest")
OLDEST_SPARK = Path(sys.prefix) / "oldest-spark/bin/python"
ON_SPARK = (
    *("-m", "pytest", "-m", "spark"),
    *("tests/spark/test_source.py", "tests/spark/test_filters.py"),
)


def run_whole() -> int:
    """Exit code: 0 if all parts passed."""
    with tempfile.TemporaryFile() as output:
        played = subprocess.Popen(
            ("nice", "-n", "10", *PYTEST, *PLAYED), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            others = subprocess.run(
                (*PYTEST, *(f"--ignore={path}" for path in PLAYED)), check=False
            )
            oldest = run_oldest_spark()
            failed = played.wait()
        finally:
            played.kill()
            played.wait()
        output.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return others.returncode or oldest or failed


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
