"""The command line itself: help, versions, and errors in one line."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from fencelog.api.cli import main as cli
from fencelog.api.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    EXIT_UNKNOWN,
    EXIT_USAGE,
)
from fencelog.api.processes.bookie_main import BookieProcessConfig
from fencelog.api.processes.lifecycle import Running
from fencelog.ledgers.errors import ErrorCode, FencelogError, copy_of
from tests.support.fencelog_cli import complaint, fencelog

NOBODY = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""
BOOKIE = ["bookie", "--metadata", "memory:", "--data", "/dev/null/nowhere"]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"fencelog {version('fencelog')}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 0
    words = capsys.readouterr().out.split()
    for command in (
        *("standalone", "bookie", "broker", "zookeeper", "cluster", "topic"),
        *("append", "read", "drill", "demo", "bench"),
    ):
        assert command in words


@pytest.mark.parametrize(
    "command",
    ["standalone", "bookie", "broker", "zookeeper", "cluster", "append", "read", "demo", "bench"],
)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "--help"]) == 0
    assert f"fencelog {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["append"], "Missing argument 'TOPIC'"),
        (["read", "t", "--limit", "none"], "'--limit': Input should be a valid integer"),
        (["standalone", "--bookies", "0"], "'--bookies': Input should be greater"),
        (["drill"], "Missing command"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == EXIT_USAGE
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


def _of_read(error: FencelogError) -> FencelogError:
    error.is_read = True
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FencelogError(ErrorCode.TOPIC_NOT_FOUND, "there is no topic\na/b"), EXIT_ERROR),
        (FencelogError(ErrorCode.APPEND_UNKNOWN, "there is no\ntopic a/b"), EXIT_UNKNOWN),
        (_of_read(FencelogError(ErrorCode.REQUEST_TIMEOUT, "there is no\ntopic")), EXIT_ERROR),
        (copy_of(_of_read(FencelogError(ErrorCode.INTERNAL, "no topic"))), EXIT_ERROR),
        (FencelogError(ErrorCode.REQUEST_TIMEOUT, "there is no\ntopic"), EXIT_UNKNOWN),
        (OSError(2, "there is no topic a/b"), EXIT_ERROR),
        (TimeoutError(), EXIT_ERROR),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "not allowed"), EXIT_ERROR),
    ],
)
def test_the_exit_code_says_what_may_be_concluded(
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_first_word: str) -> None:
        raise error

    monkeypatch.setattr(cli, "application", fail)
    assert cli.run([]) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.removeprefix("fencelog:").strip()


def test_a_mistake_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_first_word: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "application", fail)
    with pytest.raises(ZeroDivisionError):
        cli.run([])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topic", "list", "--server", NOBODY], f"cannot reach {NOBODY}"),
        (["append", "orders", "--server", NOBODY], f"cannot reach {NOBODY}"),
        (["read", "orders", "--server", NOBODY], f"cannot reach {NOBODY}"),
        (["topic", "show", "ns/\udcff", "--server", NOBODY], r"'\udcff' is not UTF-8"),
        (["subscription", "show", "orders", "..", "--server", NOBODY], "no name is . or .."),
        (["read", "orders", "--from", "yesterday"], "--from is earliest, latest or an offset"),
        (["append", "orders", "/no/such/file"], "/no/such/file: No such file or directory"),
        (["standalone", "--http", "8080"], "'8080' is no HOST:PORT"),
        (["broker", "--metadata", "zk://x", "--http", "0.0.0.0:0"], "name one with --advertise"),
        (["bookie", "--metadata", "ftp://x", "--data", "d"], "ftp://x"),
        (["standalone", "--http", "0.0.0.0:0"], "say --insecure"),
        ([*BOOKIE, "--listen", "10.0.0.1:0"], "without --secret-file it asks nobody"),
        ([*BOOKIE, "--listen", "10.0.0.1:0"], "say --insecure"),
        (["standalone", "--allow-origin", "evil"], "'evil' is no origin"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == EXIT_ERROR
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_a_bookie_that_can_no_longer_store_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.asynccontextmanager
    async def broken(_config: BookieProcessConfig) -> AsyncIterator[Running]:
        failure: asyncio.Future[FencelogError] = asyncio.get_running_loop().create_future()
        failure.set_result(FencelogError(ErrorCode.STORAGE_FAILED, "fdatasync failed: disk gone"))
        yield Running({"role": "bookie"}, (failure,))

    monkeypatch.setattr("fencelog.api.processes.bookie_main.bookie_process", broken)
    assert cli.run(["bookie", "--metadata", "zk://x", "--data", str(tmp_path)]) == EXIT_ERROR
    assert capsys.readouterr().err == "fencelog: fdatasync failed: disk gone\n"


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command line has loaded when it knows what it is asked for."""
    script = "import sys, fencelog.api.cli.main as m; m.run(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_command_line_needs_little_to_start() -> None:
    heavy = {"fastapi", "uvicorn", "httpx", "rocksdict", "uvloop", "rich.progress"}
    assert heavy.isdisjoint(loaded_by())
    assert "importlib.metadata" not in loaded_by()


ALSO_LOADED = {"cookie": {"metadata"}, "subscription": {"read"}}
"""The modules whose parts another one uses."""


@pytest.mark.parametrize("module", cli.MODULES)
def test_a_command_loads_the_module_that_has_it_and_no_other(module: str) -> None:
    others = cli.MODULES.keys() - {module} - ALSO_LOADED.get(module, set())
    loaded = loaded_by(cli.MODULES[module][0])
    assert {name for name in others if f"fencelog.api.cli.{name}" in loaded} == set()


def test_every_command_is_found_by_its_name() -> None:
    commands: Any = get_command(cli.application())
    assert set(commands.commands) == {name for names in cli.MODULES.values() for name in names}


def test_the_environment_names_the_server() -> None:
    done = fencelog("topic", "list", env={"FENCELOG_SERVER": NOBODY})
    assert done.returncode == EXIT_ERROR
    assert f"cannot reach {NOBODY}" in complaint(done)


class Terminal(io.StringIO):
    """A terminal at which somebody has typed something."""

    def isatty(self) -> bool:
        return True


DESTRUCTIVE = [
    ["topic", "delete", "t"],
    ["topic", "terminate", "t"],
    ["topic", "trim", "t", "0", "--before", "1"],
    ["namespace", "delete", "n"],
    ["subscription", "delete", "t", "s"],
]


@pytest.mark.parametrize("arguments", DESTRUCTIVE)
def test_what_destroys_asks_at_a_terminal(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service cannot be reached: who gets that far was not asked, or has agreed."""
    command = [*arguments, "--server", NOBODY]
    for typed, options, goes_on in (
        ("n\n", [], False),
        ("\n", [], False),
        ("y\n", [], True),
        ("", ["--yes"], True),
    ):
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        assert cli.run([*command, *options]) == EXIT_ERROR
        err = capsys.readouterr().err
        assert (f"cannot reach {NOBODY}" in err) is goes_on
        assert ("fencelog: nothing is done" in err) is not goes_on
        assert ("Go on? [y/N]" in err) is not bool(options)
    monkeypatch.setattr("sys.stdin", Terminal(""))  # Ctrl-D
    assert cli.run(command) == EXIT_INTERRUPTED
    assert capsys.readouterr().err.endswith("Go on? [y/N]:\nfencelog: nothing is done\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert cli.run(command) == EXIT_ERROR
    assert f"cannot reach {NOBODY}" in capsys.readouterr().err


@pytest.mark.parametrize("error", [typer.Abort(), KeyboardInterrupt()])
def test_a_bench_that_is_interrupted_has_not_succeeded(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_given: object) -> None:
        raise error

    monkeypatch.setattr("fencelog.api.bench.main.measure_limits", interrupted)
    assert cli.run(["bench", "http", "--data", str(tmp_path)]) == EXIT_INTERRUPTED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("interrupt", [signal.default_int_handler, signal.SIG_IGN])
def test_sigterm_ends_a_bench_that_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, interrupt: signal.Handlers
) -> None:
    """Shells without job control have what runs in the background ignore SIGINT."""

    async def told_to_stop(*_given: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(30)

    previous = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("fencelog.api.bench.main.measure_limits", lambda *_given: None)
    monkeypatch.setattr("fencelog.api.bench.http.measure_http", told_to_stop)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        assert cli.run(["bench", "http", "--data", str(tmp_path)]) == EXIT_TERMINATED
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is previous
