"""The archive of an image is named anew, or unpacked as the lab takes it."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from k8s.image import Image, write_archive
from tests.processes.k8s.cluster import Cluster, CommandFailed
from tests.processes.k8s.images import find_earlier, rename, unpack


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/thing").write_text("text", "utf-8")
    (root / "bin").symlink_to("usr/bin")
    image = Image(root, 10_000, ["thing"], ["run"], {"PATH": "/usr/bin"})
    write_archive(image, "registry.example.org/thing:1", tmp_path / "image.tar", tmp_path)
    return tmp_path / "image.tar"


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        files = {info.name: opened.extractfile(info) for info in opened}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_another_name_changes_nothing_else(archive: Path, tmp_path: Path) -> None:
    rename(archive, "registry.example.org/thing:2", tmp_path / "renamed.tar")
    before, after = contents(archive), contents(tmp_path / "renamed.tar")
    (manifest,) = json.loads(after.pop("manifest.json"))
    assert manifest.pop("RepoTags") == ["registry.example.org/thing:2"]
    (expected,) = json.loads(before.pop("manifest.json"))
    assert manifest.items() <= expected.items()
    assert after == before


def test_an_image_is_unpacked_with_its_config(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path / "out")
    assert (tmp_path / "out/bin/thing").read_text("utf-8") == "text"
    config = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert (config["Entrypoint"], config["User"]) == (["thing"], "10000:10000")


def test_an_image_of_several_layers_is_refused(tmp_path: Path) -> None:
    manifest = json.dumps([{"Config": "c.json", "RepoTags": [], "Layers": ["a", "b"]}])
    (tmp_path / "manifest.json").write_text(manifest, "utf-8")
    (tmp_path / "c.json").write_text("{}", "utf-8")
    with tarfile.open(tmp_path / "two.tar", "w") as written:
        for name in ("manifest.json", "c.json"):
            written.add(tmp_path / name, name)
    with pytest.raises(CommandFailed, match="has 2 layers"):
        unpack(tmp_path / "two.tar", tmp_path / "out")


class Repository:
    """A cluster that is asked about a repository: its last release, if any, is 0.0.9."""

    def __init__(self, *, has_release: bool) -> None:
        self._has_release = has_release
        self.made: list[str] = []

    def run(self, command: Sequence[str], *, timeout_s: float = 120) -> str:
        if "describe" in command:
            if not self._has_release:
                raise CommandFailed("No names found")
            return "v0.0.9\n"
        if "rev-parse" in command:
            return {"v0.0.9^{commit}": "aaa\n", "main~3^{commit}": "bbb\n"}[command[-1]]
        if command[1].endswith("image.py"):
            self.made.append(command[1].split("/")[-3])
            Path(command[-1]).write_text("archive", "utf-8")
        return ""


def earlier(place: Path, given: str | None, *, has_release: bool) -> tuple[str | None, list[str]]:
    """The name of the earlier archive, and the folders of source that an image was made from."""
    asked = Repository(has_release=has_release)
    found = find_earlier(cast("Cluster", asked), given, place)
    return found.name if found else None, asked.made


def test_the_version_before_is_a_file_a_commit_or_the_last_release(
    tmp_path: Path, archive: Path
) -> None:
    assert earlier(tmp_path, str(archive), has_release=True) == ("image.tar", [])
    made = ("fencelog-bbb.tar", ["source-bbb"])
    assert earlier(tmp_path, "main~3", has_release=True) == made
    assert earlier(tmp_path, None, has_release=True) == ("fencelog-aaa.tar", ["source-aaa"])
    # It is made once.
    assert earlier(tmp_path, None, has_release=True) == ("fencelog-aaa.tar", [])
    assert earlier(tmp_path, None, has_release=False) == (None, [])
