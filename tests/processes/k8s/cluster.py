"""Commands against a cluster: kubectl, faults of nodes, and what operators type."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.processes.k8s.target import Target

NAMESPACE = "fencelog"
POLL_S = 2.0


class CommandFailed(Exception):
    """A command that ended with another exit code than 0; its text is what it said."""


class Cluster:
    """A cluster that can be reached. ``place``: the folder in which commands of the document run;
    ``kubectl``, ``fencelog`` and ``helm`` are programs in it."""

    def __init__(self, target: Target, place: Path) -> None:
        self.target = target
        self.place = place
        programs = place / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        self._kubectl = [*target.kubectl]
        if target.lab is not None:
            self._kubectl = _in_lab(target.lab, place, "kubectl")
        kubectl = shlex.join(self._kubectl)
        # The policies let pods of brokers reach everything that these commands talk to.
        fencelog = f"{kubectl} -n {NAMESPACE} exec deployment/broker -- fencelog"
        commands = {"kubectl": kubectl, "fencelog": fencelog}
        if target.lab is not None and (helm := shutil.which("helm")) is not None:
            commands["helm"] = shlex.join(_in_lab(target.lab, place, helm))
        for name, command in commands.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
            (programs / name).chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "M": "zk://zookeeper:2181/fencelog",
        }

    def use_metadata(self, url: str) -> None:
        """Have commands of the document use another URL as ``$M``."""
        self._environment["M"] = url

    def run(self, command: Sequence[str], *, timeout_s: float = 120, text: str = "") -> str:
        """Run a command and return what it printed. Raises CommandFailed."""
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
                cwd=self.place,
                env=self._environment,
            )
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"{shlex.join(command)}: not done in {timeout_s:.0f} s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-2000:]
            raise CommandFailed(f"{shlex.join(command)[:300]}: {said}")
        return done.stdout

    def kubectl(self, *arguments: str, timeout_s: float = 120, text: str = "") -> str:
        return self.run([*self._kubectl, *arguments], timeout_s=timeout_s, text=text)

    def in_namespace(self, *arguments: str, timeout_s: float = 120) -> str:
        return self.kubectl("-n", NAMESPACE, *arguments, timeout_s=timeout_s)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects that ``kubectl get`` finds."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "-o", "json"))[
            "items"
        ]
        return found

    def type(self, commands: str, *, timeout_s: float = 900) -> str:
        """Run commands of the document in a shell, as written. Raises CommandFailed."""
        say("  $ " + commands.strip().replace("\n", "\n  $ "))
        return self.run(["bash", "-euo", "pipefail", "-c", commands], timeout_s=timeout_s)

    def fencelog(self, *arguments: str, timeout_s: float = 120) -> str:
        """Run ``fencelog`` in a pod of a broker. Raises CommandFailed."""
        return self.run(["fencelog", *arguments], timeout_s=timeout_s)

    def fault(self, verb: str, *nodes: str) -> None:
        """Cut, heal, pause or resume nodes. Raises CommandFailed, NoCluster."""
        for node in nodes:
            say(f"  {verb} {node}")
            self.run(self.target.fault_command(verb, node))


def _in_lab(lab: str, place: Path, program: str) -> list[str]:
    """Return a program of the lab, whose mounts are its own, and so the folder in which it runs."""
    command = f'cd {shlex.quote(str(place))} && exec {shlex.quote(program)} "$@"'
    return [lab, "sh", "sh", "-c", command, program]


def say(line: str) -> None:
    """Print progress."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def wait_until(
    holds: Callable[[], bool], what: str, *, timeout_s: float, poll_s: float = POLL_S
) -> float:
    """Wait until something holds; return for how long, in seconds. A command that fails counts as
    no. Raises CommandFailed if it does not in time."""
    began = time.monotonic()
    error = ""
    while time.monotonic() - began < timeout_s:
        try:
            if holds():
                return time.monotonic() - began
        except CommandFailed as failed:
            error = f": {failed}"
        time.sleep(poll_s)
    raise CommandFailed(f"not within {timeout_s:.0f} s: {what}{error}")
