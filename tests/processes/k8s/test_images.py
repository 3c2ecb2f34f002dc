"""The archive of an image is named anew, or unpacked as the lab takes it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from k8s.image import Image, write_archive
from tests.processes.k8s.cluster import CommandFailed
from tests.processes.k8s.images import rename, unpack


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
