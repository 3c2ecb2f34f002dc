"""``make k8s-test``: install fencelog in a Kubernetes cluster, break it in every way, and account.

The cluster is the one that KUBECONFIG names, or a lab that K8S_LAB names, a program with the
commands ``up``, ``down``, ``status``, ``sh COMMAND``, ``image FOLDER NAME`` and
``cut|heal|pause|resume NUMBER``. The namespaces ``fencelog`` and ``fencelog-test`` have to be free,
and are removed at the end. Each scenario ends when all pods are ready, every message was accounted
for and every entry has all its copies. Exits with 1 if a promise was broken, with 2 if nothing
could be tested.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.processes.k8s.cluster import Cluster, CommandFailed, say
from tests.processes.k8s.images import find_earlier
from tests.processes.k8s.installation import BASE, DEV, HELM, PROD, Installation
from tests.processes.k8s.scenarios.every import choose_scenarios
from tests.processes.k8s.scenarios.scenario import Scenario
from tests.processes.k8s.table import Result, broken_promises, errors_text, table
from tests.processes.k8s.target import NoCluster, Target, choose_target
from tests.support.house import ROOT

EXIT_BROKEN, EXIT_NOTHING_TESTED = 1, 2

SETTLE_S = 10.0
"""The time for what the last command of a scenario has begun, such as the drain of the last broker.
It belongs to what clients see, and no command of this program competes with it for the machine."""


def play(scenario: Scenario, installed: Installation) -> Result:
    """Play a scenario, and hold what clients saw against its limits."""
    result = Result(scenario.name)
    if scenario.breaks_nodes and not can_break_nodes(installed.cluster.target):
        result.skipped = "no command breaks nodes (K8S_FAULT)"
        return result
    if scenario.updates and installed.before is None:
        result.notes.append("the same image before and after")
    say(f"{scenario.name}")
    began = time.monotonic()
    limits, has_load = scenario.limits, scenario.limits is not None
    installed.leader_was_lost = False
    try:
        if has_load:
            installed.ask_load("begin")
        scenario.play(installed)
        if has_load:
            time.sleep(SETTLE_S)
        installed.wait_ready()
    except CommandFailed as failed:
        result.broken.append(str(failed))
    result.seconds = time.monotonic() - began
    try:
        if not has_load:
            installed.start_load()
        else:
            result.window = installed.ask_load("end")
        result.whole_s = installed.wait_whole()
        if has_load:
            result.account = installed.ask_load("verify")
    except CommandFailed as failed:
        result.broken.append(str(failed))
    if installed.leader_was_lost and limits is not None:
        result.notes.append("with ZooKeeper's leader")
        limits = replace(limits, gap_s=limits.gap_s + limits.leader_s)
    result.broken += broken_promises(result, limits)
    if result.window is not None:
        longest = result.window["gaps"][0]
        say(
            f"  {result.window['acknowledged']:,} appends, errors "
            f"{errors_text(result.window['errors'])}, longest gap {longest['seconds']:.2f} s "
            f"({longest['client']}, {longest['after_s']:.0f} s after the beginning)"
        )
    say(f"  {'; '.join(result.broken) or 'as promised'}")
    return result


def can_break_nodes(target: Target) -> bool:
    return target.fault is not None or target.lab is not None


@contextmanager
def lab_up(cluster: Cluster) -> Iterator[None]:
    """Start the lab, if there is one and it does not run; end what was started."""
    lab = cluster.target.lab
    if lab is None or cluster.run([lab, "status"]).strip() != "down":
        yield
        return
    say("starting the lab")
    cluster.run([lab, "up"], timeout_s=600)
    try:
        yield
    finally:
        say("ending the lab")
        cluster.run([lab, "down"], timeout_s=120)


def play_all(
    scenarios: Sequence[Scenario], installed: Installation, *, keep: bool
) -> Iterator[Result]:
    """Install, play, and remove; yield each result. Raises CommandFailed."""
    installed.check_that_it_is_free()
    installed.prepare()
    try:
        for scenario in scenarios:
            result = play(scenario, installed)
            yield result
            if scenario.limits is None and result.broken:
                break
    finally:
        say(f"logs are in {installed.save_logs()}")
        if not keep:
            installed.remove()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make k8s-test", description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", help="all by default")
    parser.add_argument("--list", action="store_true", help="name the scenarios, play none")
    parser.add_argument("--keep", action="store_true", help="leave everything as it is at the end")
    parser.add_argument("--place", type=Path, default=ROOT / "build/k8s-test", help="for its files")
    parser.add_argument("--images", type=Path, help="a folder with archives of `make image`")
    parser.add_argument(
        "--before",
        metavar="FILE|COMMIT",
        help="the version before this one: its archive, or a commit that it is made from; "
        "by default the last release",
    )
    parser.add_argument(
        "--of",
        choices=(DEV, PROD, HELM),
        default=BASE,
        help="what the installation is made from, an overlay or the chart: by default the overlay "
        "of OPERATIONS.md",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    if given.list:
        every = choose_scenarios((), given.of)
        sys.stdout.writelines(f"{scenario.name}\n" for scenario in every)
        return 0
    results: list[Result] = []
    try:
        scenarios = choose_scenarios(given.scenarios, given.of)
        target = choose_target(
            os.environ,
            is_root=os.geteuid() == 0,
            which=shutil.which,
            is_program=lambda path: os.access(path, os.X_OK),
        )
        if given.of == HELM and shutil.which("helm") is None:
            raise NoCluster("helm is not installed")
        cluster = Cluster(target, given.place.resolve())
        images = (given.images or given.place / "images").resolve()
        with lab_up(cluster):
            before = find_earlier(cluster, given.before, images)
            installed = Installation(cluster, images, before, given.of)
            for result in play_all(scenarios, installed, keep=given.keep):
                results.append(result)
                write_results(results, given.place)
    except (NoCluster, LookupError) as nothing:
        sys.stderr.write(f"k8s-test: {nothing.args[0]}\n")
        return EXIT_NOTHING_TESTED
    except CommandFailed as failed:
        sys.stderr.write(f"k8s-test: {failed}\n")
        return EXIT_BROKEN if results else EXIT_NOTHING_TESTED
    finally:
        if results:
            sys.stdout.write("\n".join(table(results)) + "\n")
    return EXIT_BROKEN if any(result.broken for result in results) else 0


def write_results(results: Sequence[Result], place: Path) -> None:
    """Write what is known so far, with every gap: a run that is interrupted has told something."""
    found = [vars(result) for result in results]
    (place / "results.json").write_text(json.dumps(found, indent=2), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
