"""The whole suite on two cores: what is played in virtual time beside what runs for real.

    python tests/run_suite.py [ARGUMENTS OF PYTEST]

With arguments it is pytest. The played half (simulator, crash images, house rules, protocol
stories) computes without waiting for anything; it runs at low priority, so that the other half,
with its processes and time-outs, gets a core whenever it asks for one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

PLAYED = (
    "tests/sim",
    "tests/explore",
    "tests/crash",
    "tests/house",
    "tests/scripts",
    "tests/properties",
)
PYTEST = (sys.executable, "-m", "pytest")


def run_whole() -> int:
    """Exit code: 0 if both halves passed."""
    with tempfile.TemporaryFile() as output:
        played = subprocess.Popen(
            ("nice", "-n", "10", *PYTEST, *PLAYED), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            others = subprocess.run(
                (*PYTEST, *(f"--ignore={path}" for path in PLAYED)), check=False
            )
            failed = played.wait()
        finally:
            played.kill()
            played.wait()
        output.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return others.returncode or failed


def main() -> int:
    arguments = sys.argv[1:]
    if not arguments:
        return run_whole()
    return subprocess.run((*PYTEST, *arguments), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
