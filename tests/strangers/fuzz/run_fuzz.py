"""``make fuzz``: broken input for every parser that a stranger can reach.

Four fifths go to the parsers themselves, the rest over connections to a real service. Only errors
of the client's may come of it (4xx); no exception, nothing that hangs, no memory or connection that
is kept; and what was acknowledged in between is in the log once. The same seed makes the same
inputs.

    python -m tests.strangers.fuzz.run_fuzz [--inputs N] [--seed S]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.strangers.fuzz.parsers import fuzz_parsers
from tests.strangers.fuzz.strangers import fuzz_service

INPUTS = 50_000
SERVICE_PART = 5


def run(inputs: int, seed: int, place: Path) -> tuple[list[str], str]:
    """Return the failures, and a summary."""
    streams = inputs // SERVICE_PART
    failures = fuzz_parsers(inputs - streams, seed)
    found, summary = asyncio.run(fuzz_service(streams, seed, place))
    return [*failures, *found], f"seed {seed}: {inputs - streams} inputs to parsers; {summary}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        failures, summary = run(asked.inputs, asked.seed, Path(place))
    sys.stdout.write("\n".join((*failures[:40], summary, f"{len(failures)} failures\n")))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
