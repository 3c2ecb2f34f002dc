"""``fencelog check``: whether every entry of every closed ledger has its copies."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.cli.healing.admin_access import OptionalMetadata, RemoteAdmin, with_admin
from fencelog.api.console import (
    EXIT_ERROR,
    EXIT_USAGE,
    SERVER,
    JsonOption,
    SecretOption,
    ServerOption,
    complain,
)
from fencelog.ledgers.errors import FencelogError

if TYPE_CHECKING:
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin
    from fencelog.api.local_cluster.cluster_access import ClusterAccess
    from fencelog.bookie.auditor.check_core import Violation
    from fencelog.bookie.auditor.check_report import CheckProgress, CheckReport

_MEANINGS = {
    "no_copy": "entries are lost: their whole write set lacks them",
    "below_ack_quorum": "entries have fewer than Qa copies",
    "below_write_quorum": "entries have fewer than Qw copies",
    "placement": "write sets lie within too few racks",
    "under_replicated_too_long": "ledgers have lacked copies for too long",
    "registered_but_unreachable": "bookies are registered and do not answer",
    "unreadable_metadata": "metadata cannot be read",
}
"""The categories of violations, the worst first, in words."""

_UNVERIFIED = {
    "in_limbo": "a bookie may have lost entries, and is finding out",
    "unavailable": "a bookie does not answer",
    "changing": "the metadata changed each time that it was compared",
}


def add_to(app: typer.Typer) -> None:
    app.command()(check)


def check(
    metadata: OptionalMetadata = None,
    server: ServerOption = SERVER,
    repeats: Annotated[
        int | None,
        typer.Option(min=0, max=100, help="Looks at what lacks something, after the 1st."),
    ] = None,
    repeat_delay_ms: Annotated[
        int | None, typer.Option(min=0, max=3_600_000, help="Before each of them.")
    ] = None,
    as_json: JsonOption = False,
    secret_file: SecretOption = None,
) -> None:
    """Check that every entry of every closed ledger has its copies.

    Metadata is compared with the bookies' lists of entries: no entry is read, nothing is repaired.
    What lacks something is looked at again before it is reported. Without --metadata the auditor of
    a running service checks. Exit code 1 for a violation, 2 if the cluster could not be checked.
    """
    if metadata is None and (repeats is not None or repeat_delay_ms is not None):
        raise typer.BadParameter(
            "the auditor checks by its own settings: it needs --metadata",
            param_hint="'--repeats' / '--repeat-delay-ms'",
        )
    try:
        if metadata is None:
            shown = with_admin(None, server, _check_by_auditor)
        else:
            shown = _check_here(metadata, secret_file, repeats, repeat_delay_ms)
    except FencelogError as error:
        complain(f"the cluster could not be checked: {error.detail}")
        raise typer.Exit(EXIT_USAGE) from None
    typer.echo(json.dumps(shown, indent=2) if as_json else "\n".join(_lines(shown)))
    if shown["violation_count"]:
        raise typer.Exit(EXIT_ERROR)


async def _check_by_auditor(admin: AutorecoveryAdmin | RemoteAdmin) -> dict[str, Any]:
    """Have the auditor check; its result names the first violations. Raises FencelogError:
    NOT_FOUND (nobody checks), INTERNAL (the check has failed)."""
    from fencelog.api.cli.healing.under_replicated import made_checks
    from fencelog.ledgers.errors import ErrorCode

    if (await admin.auditor())["auditor"] is None:
        raise FencelogError(ErrorCode.NOT_FOUND, "there is no auditor: no autorecovery runs")
    checks = await made_checks(admin, ["cluster"])
    result = checks["results"].get("cluster", {"error": "its result cannot be read"})
    if "error" in result:
        raise FencelogError(ErrorCode.INTERNAL, result["error"])
    return dict(result)


def _check_here(
    metadata: str, secret_file: Path | None, repeats: int | None, repeat_delay_ms: int | None
) -> dict[str, Any]:
    """Check in this process, and return all violations."""

    async def ask(cluster: ClusterAccess) -> CheckReport:
        from fencelog.api.cli.healing.progress import progress_line
        from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
        from fencelog.ledgers.host import SystemHost

        given = {"repeats": repeats, "repeat_delay_ms": repeat_delay_ms}
        config = CheckConfig(**{name: value for name, value in given.items() if value is not None})
        running = ClusterCheck(
            cluster.store,
            cluster.bookies,
            host=SystemHost(),
            config=config,
            on_violation=found.append,
        )
        async with progress_line(lambda: _progress(running.progress)):
            return await running.run()

    from fencelog.api.local_cluster.cluster_access import with_cluster

    found: list[Violation] = []
    # The violations are this command's output already.
    logging.getLogger("fencelog.bookie.auditor").addHandler(logging.NullHandler())
    logging.getLogger("fencelog.bookie.auditor").propagate = False
    report = with_cluster(metadata, secret_file, ask)
    return report.summary() | {"violations": [violation.to_json() for violation in found]}


def _progress(progress: CheckProgress) -> str:
    """Return the progress of a check for a person."""
    from fencelog.api.cli.healing.progress import duration

    state = progress.to_json()
    done = f"{state['phase']}: {state['done']:,} of {state['total']:,} ledgers"
    left = "" if state["seconds_left"] is None else f", {duration(state['seconds_left'])} left"
    return f"{done}, {state['ledgers_per_s']:,.0f}/s{left}"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report for a person: violations by category, then what was checked."""
    from fencelog.api.cli.healing.progress import duration

    for kind, meaning in _MEANINGS.items():
        if count := report["counts"][kind]:
            yield f"{kind}: {count:,} ({meaning})"
        for violation in report["violations"]:
            if violation["kind"] == kind:
                fragment = violation.get("fragment")
                where = "" if fragment is None else f", fragment from entry {fragment}"
                yield f"  ledger {violation['ledger_id']}{where}: {violation['detail']}"
    if (unnamed := report["violation_count"] - len(report["violations"])) > 0:
        yield f"{unnamed:,} more are in the log of the auditor"
    yield (
        f"{report['checked']:,} of {report['ledgers']:,} ledgers were checked in "
        f"{duration(report['duration_s'])}; {report['not_closed']:,} are not closed, "
        f"{report['marked']:,} are marked as under-replicated, {report['deleted']:,} were deleted "
        "meanwhile"
    )
    for why, meaning in _UNVERIFIED.items():
        if count := report["unverified"][why]:
            yield f"not verified: {count:,} ledgers ({meaning})"
    found = report["violation_count"]
    yield f"{found:,} violation{'s' * (found != 1)}" if found else "no violation"
