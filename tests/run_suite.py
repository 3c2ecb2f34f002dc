"""The whole suite on two cores, in parts that run side by side.

    python tests/run_suite.py [--thorough | ARGUMENTS OF PYTEST]

Without arguments it runs what ``make test`` runs. With ``--thorough`` it runs what is left out
there: the tests that are marked as ``thorough``, which are longer runs and costly variants of
others. With other arguments it is pytest.

What waits for processes, timeouts and disks, and needs a core whenever it asks for one, runs in
``WAITING`` lanes: three parts at a time, the longest first. The one beside Spark and the browser is
that of unit tests, which start few processes: Spark gives up a Python worker that takes more than
10 s to begin. What only computes (simulator, crash images, house rules, stories of the protocol,
types) runs beside them in ``COMPUTING`` lanes, at low priority, and takes what they leave. Each
part lists its slowest tests, and shows its output, and the CPU time of all its processes, when it
has ended.
Some batch reads from Spark are tested a second time, on the oldest Spark that is supported
(``make oldest-spark``); what is thorough tests all of them, streams and writes on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pytest
from _pytest.mark import ParameterSet

PYTEST = (sys.executable, "-m", "pytest")
TYPES = (sys.executable, "-m", "mypy")
WHOLE = (*PYTEST, "--durations=20")
LOW_PRIORITY = ("nice", "-n", "10")
OLDEST_SPARK = Path(sys.prefix) / "oldest-spark/bin/python"
ON_OLDEST = (
    *("-m", "spark"),
    *(
        f"tests/spark/test_source.py::test_{name}"
        for name in (
            "the_format_is_found_without_registration",
            "workers_run_this_python",
            "rows_are_what_was_appended",
            "offsets_bound_what_is_read",
            "several_topics_are_one_table",
            "errors_say_what_is_wrong",
            "a_table_of_the_catalog_keeps_its_options",
        )
    ),
)
THOROUGH_ON_OLDEST = (
    *("-m", "spark or thorough"),
    "tests/spark/test_source.py",
    "tests/spark/test_filters.py",
    "tests/spark/stream",
    "tests/spark/write/test_writing.py",
    "tests/spark/failures/test_reads_of_a_cluster.py",
)

SIMULATED = ("tests/sim",)
COMPUTED = (
    "tests/explore",
    "tests/crash",
    "tests/house",
    "tests/scripts",
    "tests/properties",
)
PROCESSES = ("tests/processes",)
SERVICES = ("tests/api",)
SPARK = ("tests/spark",)
TYPED = (
    "tests/house/scripts",
    "tests/house/test_readme.py",
    "tests/house/test_readme_cluster.py",
    "tests/house/test_readme_spark.py",
)
"""The README and the scripts for operators as they are typed, each within a time."""
CLI = ("tests/cli",)
COMMANDS = ("tests/bench", "tests/strangers")


def thorough_but(few: Collection[str], values: Sequence[str]) -> list[ParameterSet]:
    """Parameters of a test, marked as thorough unless they are among ``few``."""
    assert set(few) <= set(values)
    return [
        pytest.param(value, marks=() if value in few else pytest.mark.thorough) for value in values
    ]


def without(paths: Iterable[str]) -> tuple[str, ...]:
    """Options of pytest that leave these paths out."""
    return tuple(f"--ignore={path}" for path in paths)


OTHERS = without((*SIMULATED, *COMPUTED, *PROCESSES, *SERVICES, *SPARK, *CLI, *COMMANDS))
"""All tests that are not named above."""

WAITING, COMPUTING = 3, 2


@dataclass(slots=True)
class Suite:
    """The parts that run, of which one at a time shows its output."""

    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    is_over: bool = False
    showing: Lock = field(default_factory=Lock)

    def run(self, *command: str) -> int:
        """Exit code of a part, when it has ended and its output is shown."""
        if self.is_over:
            return 1
        began_s = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            self.running.append(process)
            _, status, used = os.wait4(process.pid, 0)
            code = process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            with self.showing:
                say(f"$ {' '.join(command)}\n")
                sys.stdout.buffer.write(output.read())
                cpu_s = used.ru_utime + used.ru_stime
                took_s = time.monotonic() - began_s
                say(f"exit code {code} after {took_s:.0f} s, {cpu_s:.0f} s of CPU\n\n")
        return code

    def run_spark(self, newest: tuple[str, ...], oldest: tuple[str, ...]) -> int:
        """Exit code of the tests on Spark, and of those on the oldest one."""
        code = self.run(*newest)
        if not OLDEST_SPARK.exists():
            say(f"NOT RUN on the oldest Spark, there is no {OLDEST_SPARK}: make pytest\n")
            return 1
        return self.run(str(OLDEST_SPARK), "-m", "pytest", *oldest) or code

    @contextmanager
    def pools(self) -> Iterator[tuple[ThreadPoolExecutor, ThreadPoolExecutor]]:
        """The lanes for parts that wait and for those that compute; an error ends what runs."""
        with (
            ThreadPoolExecutor(WAITING) as waiting,
            ThreadPoolExecutor(COMPUTING) as computing,
            closing(self),
        ):
            yield waiting, computing

    def close(self) -> None:
        """Begin no part any more, and end those that still run."""
        self.is_over = True
        for process in self.running:
            process.kill()


def run_whole() -> int:
    """Exit code of all parts without what is thorough: 0 if they passed."""
    suite = Suite()
    with suite.pools() as (waiting, computing):
        parts = [
            waiting.submit(suite.run_spark, (*WHOLE, *SPARK), ON_OLDEST),
            waiting.submit(suite.run, *WHOLE, *SERVICES),
            waiting.submit(suite.run, *WHOLE, *OTHERS),
            waiting.submit(suite.run, *WHOLE, *PROCESSES),
            waiting.submit(suite.run, *WHOLE, *CLI),
            waiting.submit(suite.run, *WHOLE, *COMMANDS, *TYPED),
            computing.submit(suite.run, *LOW_PRIORITY, *WHOLE, *SIMULATED),
            computing.submit(suite.run, *LOW_PRIORITY, *WHOLE, *COMPUTED, *without(TYPED)),
            computing.submit(suite.run, *LOW_PRIORITY, *TYPES),
        ]
        return max(abs(part.result()) for part in parts)


def run_thorough() -> int:
    """Exit code of all parts of what is thorough: 0 if they passed."""
    suite = Suite()
    thorough = (*WHOLE, "-m", "thorough")
    with suite.pools() as (waiting, computing):
        parts = [
            waiting.submit(suite.run_spark, (*thorough, *SPARK), THOROUGH_ON_OLDEST),
            waiting.submit(suite.run, *thorough, *PROCESSES),
            waiting.submit(suite.run, *thorough, *SERVICES),
            waiting.submit(suite.run, *thorough, *CLI, *COMMANDS, *TYPED),
            computing.submit(suite.run, *LOW_PRIORITY, *thorough, *SIMULATED),
            computing.submit(suite.run, *LOW_PRIORITY, *thorough, *COMPUTED, *without(TYPED)),
        ]
        return max(abs(part.result()) for part in parts)


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> int:
    arguments = sys.argv[1:]
    if not arguments:
        return run_whole()
    if arguments == ["--thorough"]:
        return run_thorough()
    return subprocess.run((*PYTEST, *arguments), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
