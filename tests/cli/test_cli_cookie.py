"""``fencelog metadata`` and ``fencelog cookie``, over a store in a file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from fencelog.api.cli import main as cli
from fencelog.api.console import EXIT_ERROR, EXIT_USAGE
from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.bookie.config import BookieConfig
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.ledger_metadata.ids import BLOCK, LedgerIds
from fencelog.ledgers.metastore.open import open_metadata_store
from tests.support.metadata_nodes import remove

INSTANCE = "the instance id is "


class Cluster:
    """A store, and a bookie b1 with two ledger directories."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.metadata = ["--metadata", f"sqlite:{path / 'metadata'}"]
        self.data, self.ledgers = path / "data", (path / "l0", path / "l1")
        self._capsys = capsys

    def run(self, *arguments: str) -> str:
        """Return what a command says; what it complains of begins with its exit code."""
        code = cli.run([*arguments, *self.metadata])
        said = self._capsys.readouterr()
        return said.out.strip() if code == 0 else f"{code} {said.err.strip()}"

    def repair(self, *options: str, data: Path | None = None) -> str:
        directories = [word for path in self.ledgers for word in ("--ledger-dir", str(path))]
        where = ("--data", str(data or self.data), *directories)
        return self.run("cookie", "repair", "--id", "b1", *where, *options)

    def start(self, **settings: Any) -> str | None:
        """Return why the bookie does not start, if it does not."""

        async def main() -> None:
            host = SystemHost()
            store = open_metadata_store(self.metadata[1], host=host)
            await store.start()
            config = BookieConfig(self.data, (), self.ledgers, bookie_id="b1", **settings)
            try:
                async with serving_bookie(store, config, host=host, listen="127.0.0.1:0"):
                    pass
            finally:
                await store.close()

        try:
            asyncio.run(main())
        except FencelogError as error:
            return error.detail
        return None


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cluster:
    return Cluster(tmp_path, capsys)


def test_the_metadata_is_initialised_once(cluster: Cluster) -> None:
    assert "run `fencelog metadata init` once" in (cluster.start() or "")
    said = cluster.run("metadata", "init")
    assert said.startswith(INSTANCE)
    again = said.replace(INSTANCE, f"{INSTANCE}already ")
    assert cluster.run("metadata", "init") == again
    assert cluster.run("metadata", "init", "--surely-a-new-cluster") == again
    assert cluster.start() is None


def test_a_bookie_that_holds_data_begins_no_cluster(cluster: Cluster) -> None:
    unless = ("--unless-holds", str(cluster.data))
    (cluster.data / "lost+found").mkdir(parents=True)  # a new file system
    assert cluster.run("metadata", "init", *unless).startswith(INSTANCE)
    (cluster.data / "lost+found").rmdir()
    assert cluster.start() is None
    assert "nothing was changed" in cluster.run("metadata", "init", *unless)


def test_a_store_that_lost_its_id_is_not_blessed(cluster: Cluster) -> None:
    cluster.run("metadata", "init")
    assert cluster.start() is None

    async def lose() -> None:
        store = open_metadata_store(cluster.metadata[1], host=SystemHost())
        await store.start()
        await remove(store, "/instance")
        await store.close()

    asyncio.run(lose())
    assert "the cookies of 1 bookies, b1 first" in cluster.run("metadata", "init")
    assert cluster.run("metadata", "init", "--surely-a-new-cluster").startswith(INSTANCE)
    assert "`fencelog cookie delete b1` and give empty directories" in (cluster.start() or "")
    cluster.run("cookie", "delete", "b1")
    assert "is of another cluster" in (cluster.start() or "")
    for path in (cluster.data, *cluster.ledgers):
        rmtree(path)
    assert cluster.start() is None


def test_a_restored_store_gives_no_id_again(cluster: Cluster) -> None:
    cluster.run("metadata", "init")
    assert "greater than or equal to 1" in cluster.run(
        "metadata", "skip-ledger-ids", "--count", "0"
    )

    async def take() -> int:
        store = open_metadata_store(cluster.metadata[1], host=SystemHost())
        await store.start()
        taken = await LedgerIds(store).next()
        await store.close()
        return taken

    assert asyncio.run(take()) == 1
    said = cluster.run("metadata", "skip-ledger-ids", "--count", "1000")
    assert said == f"ledger ids up to {BLOCK + 1000} are skipped"
    assert asyncio.run(take()) == BLOCK + 1001


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("metadata skip-ledger-ids", EXIT_ERROR),
        ("check", EXIT_USAGE),  # neither "no violation" nor one
        ("autorecovery off", EXIT_ERROR),
        ("autorecovery status", EXIT_ERROR),
        ("bookies list", EXIT_ERROR),
        ("ledger list", EXIT_ERROR),
        ("ledger underreplicated", EXIT_ERROR),
        ("cookie list", EXIT_ERROR),
    ],
)
def test_a_store_that_belongs_to_no_cluster_is_refused(
    cluster: Cluster, line: str, code: int
) -> None:
    async def make_file() -> None:
        store = open_metadata_store(cluster.metadata[1], host=SystemHost())
        await store.start()
        await store.close()

    asyncio.run(make_file())
    said = cluster.run(*line.split())
    assert said.startswith(f"{code} fencelog: ")
    assert f"{cluster.metadata[1]} belongs to no cluster yet" in said
    cluster.run("metadata", "init")
    assert "belongs to no cluster" not in cluster.run(*line.split())


def test_a_lost_directory_is_repaired_from_the_command_line(cluster: Cluster) -> None:
    cluster.run("metadata", "init")
    assert "1 fencelog: bookie b1 has no cookie" in cluster.repair()
    assert cluster.start() is None
    assert cluster.run("cookie", "list") == "b1"
    before = json.loads(cluster.run("cookie", "show", "b1"))
    assert cluster.repair() == "bookie b1 has lost nothing"
    rmtree(cluster.ledgers[1])
    assert str(cluster.ledgers[1]) in (cluster.start() or "")
    lost, said = cluster.repair().splitlines()
    assert lost == f"lost: {cluster.ledgers[1]}"
    assert said.startswith("bookie b1 is incarnation ")
    assert cluster.start() is None
    now = json.loads(cluster.run("cookie", "show", "b1"))
    assert now["directory"] == before["directory"]
    assert now["ledgers"] == [before["ledgers"][0], now["incarnation"]]


@pytest.fixture
def whole(cluster: Cluster) -> Cluster:
    """A bookie that has lost nothing."""
    cluster.run("metadata", "init")
    assert cluster.start() is None
    return cluster


def test_a_mistyped_data_directory_is_not_taken_for_a_lost_one(whole: Cluster) -> None:
    before = whole.run("cookie", "show", "b1")
    typo = whole.data.with_name("dataa")
    assert f"there is no directory {typo}: name the one that the bookie had" in whole.repair(
        data=typo
    )
    assert not typo.exists()
    whole.ledgers = (whole.ledgers[0], whole.data.with_name("lost") / "l1")
    assert f"there is no directory {whole.ledgers[1].parent}: " in whole.repair("--yes")
    assert whole.run("cookie", "show", "b1") == before


def test_a_data_directory_that_is_lost_is_made_where_one_is_mounted_or_that_is_meant(
    whole: Cluster,
) -> None:
    rmtree(whole.data)
    assert "there is no directory" in whole.repair()
    said = whole.repair("--surely-lost")
    assert f"lost: {whole.data}\n" in said
    assert "bookie b1 is incarnation " in said
    rmtree(whole.data)
    whole.data.mkdir()
    assert "bookie b1 is incarnation " in whole.repair()


@pytest.mark.parametrize("answer", [True, False])
def test_nobody_s_data_is_void_before_a_person_has_said_so(
    whole: Cluster, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    assert whole.repair() == "bookie b1 has lost nothing"
    before = json.loads(whole.run("cookie", "show", "b1"))
    rmtree(whole.ledgers[1])
    said = whole.repair()
    assert len(asked) == 1
    assert "b1 had there is void for good" in asked[0]
    assert ("nothing is done" in said) is not answer
    assert (json.loads(whole.run("cookie", "show", "b1")) == before) is not answer
    rmtree(whole.ledgers[0])
    assert "is incarnation" in whole.repair("--yes")
    assert len(asked) == 1


def test_a_cookie_is_deleted(cluster: Cluster) -> None:
    cluster.run("metadata", "init")
    assert cluster.start() is None
    assert cluster.run("cookie", "delete", "b1") == "the cookie of bookie b1 is deleted"
    assert cluster.run("cookie", "list") == ""
    assert cluster.run("cookie", "show", "b1").startswith("1 fencelog: bookie b1 has no cookie")
    assert "empty its directories" in (cluster.start() or "")


def test_only_nodes_in_zookeeper_are_protected(cluster: Cluster) -> None:
    cluster.run("metadata", "init")
    assert "only nodes in ZooKeeper have access lists" in cluster.run("metadata", "protect")
