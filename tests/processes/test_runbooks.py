"""The runbooks of self-healing: every command of them, as written, on a real cluster.

What the runbook says in words happens before the command that follows it: a bookie is killed, or
started again. Placeholders are replaced: the metadata store, the id of a ledger, a directory.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from fencelog.api.drills.bookie.bookie import BookieDrill, bookie_drill
from fencelog.api.local_cluster.child_process import ChildProcess, fencelog_command
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.ledgers.client import Replication
from fencelog.ledgers.writer.writer import LedgerWriter
from tests.support.house import ROOT
from tests.support.until import until

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

DOCUMENT = ROOT / "k8s" / "OPERATIONS.md"
RUNBOOKS = (
    "Self-healing",
    "A lost bookie",
    "A lost zone",
    "A stuck repair",
    "Adding bookies",
    "Decommissioning a bookie",
    "Garbage and compaction",
    "Scrubbing",
    "Full disks, and read-only bookies",
)
HEADING = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)

OPTIONS = ("--look-ms", "500", "--recent-check-ms", "2000", "--open-ledger-grace-ms", "2000")
COMMAND_S = 120.0


def commands_of(runbook: str) -> list[str]:
    """The commands of a section, without comments, up to the next heading."""
    text = DOCUMENT.read_text("utf-8")
    sections = HEADING.split(text)
    section = sections[sections.index(runbook) + 1]
    lines = (line for block in BLOCK.findall(section) for line in block.splitlines())
    return [" ".join(line.partition(" #")[0].split()) for line in lines if line.strip()]


def _are_confirmed(writer: LedgerWriter, entries: int) -> bool:
    return writer.last_add_confirmed >= entries - 1


class Operator:
    """A person at a cluster, with what the runbooks call by name."""

    def __init__(self, drill: BookieDrill) -> None:
        self.drill = drill
        self.names = {"$M": drill.cluster.metadata}

    def bookie(self, name: str) -> ChildProcess:
        return next(bookie for bookie in self.drill.cluster.bookies if bookie.name == name)

    async def kill_bookie(self, name: str) -> None:
        """Let a bookie die, and its session end."""
        await self.bookie(name).kill()
        await self._until(lambda: self._is_registered(name), is_so=False)

    async def restart_bookie(self, name: str) -> None:
        await self.drill.restart(self.bookie(name))
        await self._until(lambda: self._is_registered(name))

    async def stop_bookie_for_good(self, name: str) -> None:
        """Stop a bookie that is leaving: its cookie goes."""
        self.names["DATA"] = str(self.drill.cluster.config.data_dir / name)
        await self.bookie(name).stop()
        await self._until(lambda: self._has_cookie(name), is_so=False)

    async def write_ledger(self, bookie: str) -> None:
        """Write a closed ledger that names a bookie: it is ledger 4711 of the runbook."""
        for _ in range(50):
            writer = await self.drill.ledgers.create(
                Replication(), on_ack=lambda entry_id: None, on_failure=lambda error: None
            )
            for number in range(10):
                writer.append(b"entry %d" % number)
            await until(partial(_are_confirmed, writer, 10))
            metadata = await writer.close()
            if bookie in metadata.last_fragment.bookies:
                self.names["4711"] = str(metadata.ledger_id)
                return
        raise AssertionError(f"no ledger names {bookie}")

    async def run(self, command: str) -> tuple[int, str]:
        """Run a command of the document; return its exit code and output."""
        program, *words = [self.names.get(word, word) for word in shlex.split(command)]
        assert program == "fencelog"
        process = await asyncio.create_subprocess_exec(
            *fencelog_command(*words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        if words[0] == "autorecovery" and words[1].startswith("--"):
            return await self._run_service(process)
        async with asyncio.timeout(COMMAND_S):
            output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    async def _run_service(self, process: asyncio.subprocess.Process) -> tuple[int, str]:
        """Wait until a process says that it serves, which is no line of its log, and end it."""
        assert process.stdout is not None
        async with asyncio.timeout(COMMAND_S):
            while b" INFO " in (line := await process.stdout.readline()):
                pass
            process.terminate()
            return await process.wait(), line.decode()

    async def _is_registered(self, name: str) -> bool:
        known = (*self.drill.bookies.available(), *self.drill.bookies.read_only())
        return name in known

    async def _has_cookie(self, name: str) -> bool:
        return name in await CookieRegistry(self.drill.store).names()

    async def _until(self, holds: Callable[[], Awaitable[bool]], *, is_so: bool = True) -> None:
        async with asyncio.timeout(COMMAND_S):
            while await holds() is not is_so:  # noqa: ASYNC110 - a condition without an event
                await asyncio.sleep(0.1)


@dataclass(frozen=True)
class Step:
    """A command of a runbook, what its output has to match, and what happens before it."""

    command: str
    output: str = ""
    before: Callable[[Operator], Awaitable[None]] | None = None
    code: int = 0


STEPS: dict[str, tuple[Step, ...]] = {
    "Self-healing": (
        Step("fencelog autorecovery --metadata $M", "autorecovery"),
        Step("fencelog autorecovery status --metadata $M", "recent check: 0 ledgers lacked"),
        Step("fencelog autorecovery off --metadata $M", "self-healing is off"),
        Step("fencelog autorecovery on --metadata $M", "self-healing is on"),
        Step(
            "fencelog autorecovery set --copy-bytes-per-s 67108864 --metadata $M",
            "copy_bytes_per_s of all processes: 67,108,864",
        ),
    ),
    "A lost bookie": (
        Step(
            "fencelog bookies list --metadata $M",
            r"^(?!.*bookie-1\b).*bookie-2",
            lambda operator: operator.kill_bookie("bookie-1"),
        ),
        Step(
            "fencelog bookie recover bookie-1 --metadata $M",
            "ledgers named bookie bookie-1, and none does any more",
        ),
        Step("fencelog ledger underreplicated --metadata $M", r"\A\Z"),
        Step("fencelog check --metadata $M"),
    ),
    "A lost zone": (
        Step("fencelog autorecovery off --metadata $M", "self-healing is off"),
        Step(
            "fencelog bookies list --metadata $M",
            "bookie-3",
            lambda operator: operator.kill_bookie("bookie-2"),
        ),
        Step(
            "fencelog autorecovery on --metadata $M",
            "self-healing is on",
            lambda operator: operator.restart_bookie("bookie-2"),
        ),
        Step("fencelog autorecovery status --metadata $M", "self-healing is on"),
        Step("fencelog ledger audit bookies ledgers --metadata $M", "marked 0"),
        Step("fencelog check --metadata $M"),
        Step("fencelog ledger audit placement --metadata $M", "violating 0"),
    ),
    "A stuck repair": (
        Step("fencelog autorecovery status --metadata $M", "ledgers to repair"),
        Step("fencelog ledger underreplicated --metadata $M"),
        Step("fencelog ledger who-is-auditor --metadata $M", "autorecovery-1"),
        Step(
            "fencelog ledger check 4711 --metadata $M",
            "",
            lambda operator: restart_and_write(operator, "bookie-1"),
        ),
        Step(
            "fencelog ledger replace-bookie 4711 bookie-1 --metadata $M",
            "has no copies on bookie bookie-1 any more",
        ),
    ),
    "Adding bookies": (
        Step("fencelog bookies list --metadata $M", "bookie-2"),
        Step(
            "fencelog autorecovery set --balance-bytes-per-s 8388608 --metadata $M",
            "balance_bytes_per_s of all processes: 8,388,608",
        ),
        Step("fencelog autorecovery status --metadata $M", "balance_bytes_per_s"),
        Step(
            "fencelog autorecovery set --balance-bytes-per-s 0 --metadata $M",
            r"\A(?!.*balance_bytes_per_s)",
        ),
    ),
    "Decommissioning a bookie": (
        Step(
            "fencelog bookie decommission bookie-3 --no-wait --metadata $M",
            "bookie-3",
            lambda operator: operator.write_ledger("bookie-3"),
        ),
        Step("fencelog bookie decommission bookie-3 --status --metadata $M", "bookie-3"),
        Step("fencelog bookie decommission bookie-3 --cancel --metadata $M", "bookie-3 stays"),
        Step(
            "fencelog bookie decommission bookie-3 --metadata $M",
            "no ledger names bookie bookie-3 any more: stop it",
        ),
        Step(
            "fencelog cookie list --metadata $M",
            r"^(?!.*bookie-3\b).*bookie-2",
            lambda operator: operator.stop_bookie_for_good("bookie-3"),
        ),
        Step("fencelog bookie format --data DATA --yes"),
    ),
    "Garbage and compaction": (
        Step("fencelog bookies gc bookie-1 --metadata $M"),
        Step("fencelog bookies gc bookie-1 --threshold 0.9 --metadata $M"),
        Step("fencelog bookies gc bookie-1 --no-grace --metadata $M"),
        Step("fencelog bookies compaction bookie-1 suspend --metadata $M"),
        Step("fencelog bookies compaction bookie-1 resume --metadata $M"),
    ),
    "Scrubbing": (
        Step("fencelog bookies scrub bookie-1 --metadata $M"),
        Step(
            "fencelog bookies scrub bookie-1 --ledger 4711 --metadata $M",
            "",
            lambda operator: operator.write_ledger("bookie-1"),
        ),
    ),
    "Full disks, and read-only bookies": (
        Step(
            "fencelog bookies read-only bookie-1 on --metadata $M",
            r"bookie-1 is read-only \(reason: operator\)",
        ),
    ),
}


async def restart_and_write(operator: Operator, name: str) -> None:
    await operator.restart_bookie(name)
    await operator.write_ledger(name)


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with bookie_drill(tmp_path, session_ms=2000, bookies=5, autorecovery=OPTIONS) as drill:
        yield Operator(drill)


@pytest.mark.parametrize("runbook", RUNBOOKS)
def test_no_command_of_a_runbook_is_left_out(runbook: str) -> None:
    assert STEPS.keys() == set(RUNBOOKS), "each of them is run"
    assert [step.command for step in STEPS[runbook]] == commands_of(runbook)


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_every_command_of_the_runbooks_does_what_it_says(operator: Operator) -> None:
    await operator.write_ledger("bookie-1")
    for runbook in RUNBOOKS:
        for step in STEPS[runbook]:
            if step.before is not None:
                await step.before(operator)
            code, output = await operator.run(step.command)
            assert code == step.code, f"{step.command}: {output}"
            assert re.search(step.output, output, re.DOTALL), f"{step.command}: {output}"
