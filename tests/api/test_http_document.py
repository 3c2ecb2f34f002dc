"""``api/HTTP.md`` against the service: its examples run, its tables are the code's."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from fencelog.api.admin.doctor.findings import FindingKind
from fencelog.api.http.problems import problem, problem_body
from fencelog.api.http.request_ids import CurrentRequest, serving
from fencelog.api.processes.standalone import StandaloneConfig, standalone
from fencelog.broker import limits
from fencelog.broker.cluster.events_core import EventKind, OwnerEnd
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MAX_BATCH_MESSAGES, MAX_MESSAGE_BYTES, MAX_READ_BYTES, MIB

DOCUMENT = (Path(__file__).parents[2] / "api" / "HTTP.md").read_text()
EXAMPLES = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_error_table_is_the_enum() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| (yes|no) \| (none|maybe) \|$", DOCUMENT, re.MULTILINE
    )
    assert rows == [
        (code.slug, str(code.status), "yes" if code.retryable else "no", code.effects.value)
        for code in ErrorCode
    ]


def test_the_table_of_findings_is_the_enum() -> None:
    _, _, section = DOCUMENT.partition("### What is wrong")
    section, _, _ = section.partition("\n### ")
    rows = re.findall(r"^\| `(\w+)` \| [a-z, ]+ \| .* \|$", section, re.MULTILINE)
    assert rows == [kind.value for kind in FindingKind]


def test_the_table_of_events_is_the_enum() -> None:
    _, _, section = DOCUMENT.partition("### What has happened")
    section, _, _ = section.partition("\n## ")
    rows = re.findall(r"^\| `(\w+)` \| [`\w, ]* ?\| .* \|$", section, re.MULTILINE)
    assert rows == [kind.value for kind in EventKind]
    assert all(f"`{end.value}`" in section for end in OwnerEnd)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_makes_a_problem(code: ErrorCode) -> None:
    document = problem(FencelogError(code, "why", line=3, status="mine"), "/path")
    assert (document["status"], document["code"], document["line"]) == (code.status, code.slug, 3)
    assert document["type"] == f"urn:fencelog:problem:{code.slug}"
    assert document["retryable"] is code.retryable
    assert document["side_effects"] == code.effects.value


def test_the_example_of_a_problem_is_one() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    shown = json.loads(text)
    error = FencelogError(ErrorCode.OFFSET_BEYOND_TAIL, shown["detail"], tail_offset=3)
    with serving(CurrentRequest(shown["request_id"])):
        assert json.loads(problem_body(error, shown["instance"])) == shown


def test_the_limits_are_the_codes() -> None:
    for figure in (
        f"at most {MAX_MESSAGE_BYTES // MIB} MiB",
        f"at most {limits.MAX_BODY_BYTES // MIB} MiB and {MAX_BATCH_MESSAGES:,}",
        f"messages, 1 to {limits.MAX_READ_MESSAGES:,}",
        f"stored bytes, to {MAX_READ_BYTES // MIB} MiB",
        f"seconds to wait for a message, to {limits.MAX_WAIT_MS // 1000}",
        f"1 to\n{limits.MAX_NAME_BYTES} of",
    ):
        assert figure in DOCUMENT


async def test_the_examples_run(tmp_path: Path) -> None:
    """Each as it stands, in order; a problem among the answers fails."""
    async with standalone(StandaloneConfig(tmp_path, "127.0.0.1:0")) as service:
        for example in EXAMPLES:
            script = example.replace("curl -sS", "curl -sS --fail-with-body --max-time 10")
            process = await asyncio.create_subprocess_exec(
                *("bash", "-euo", "pipefail", "-c", script),
                env={"PATH": "/usr/bin:/bin", "SERVER": service.announcement["http"]},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await process.communicate()
            assert process.returncode == 0, f"{example}\n{output.decode()}"
    assert len(EXAMPLES) >= 7
