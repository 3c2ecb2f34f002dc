"""The archive of an image: what an engine reads from it, and what its bytes depend on."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from k8s.image import ROOT, ZOOKEEPER_PACKAGES, Image, ImageError, main, run, write_archive

NAME = "registry.example.org/thing:1"


@pytest.fixture
def image(tmp_path: Path) -> Image:
    root = tmp_path / "root"
    for folder in ("usr/bin", "data", "tmp"):
        (root / folder).mkdir(parents=True, mode=0o700)
    (root / "bin").symlink_to("usr/bin")
    program, text = root / "usr/bin/thing", root / "usr/text"
    program.write_text("#!/usr/bin/python3")
    program.chmod(0o700)
    text.write_text("text")
    text.chmod(0o600)
    return Image(root, 10_000, ["thing"], ["run"], {"PATH": "/usr/bin"}, frozenset({"data"}))


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        files = {info.name: opened.extractfile(info) for info in opened}
        return {name: file.read() for name, file in files.items() if file is not None}


def archived(image: Image, place: Path) -> Path:
    place.mkdir()
    write_archive(image, NAME, place / "image.tar", place)
    return place / "image.tar"


def test_an_engine_finds_config_and_layer(image: Image, tmp_path: Path) -> None:
    files = contents(archived(image, tmp_path / "a"))
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == [NAME]
    raw = files[manifest["Config"]]
    assert manifest["Config"] == f"{hashlib.sha256(raw).hexdigest()}.json"
    config: dict[str, Any] = json.loads(raw)
    layer = files[manifest["Layers"][0]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"]["User"] == "10000:10000"
    assert config["config"]["Entrypoint"] == ["thing"]
    assert config["config"]["Env"] == ["PATH=/usr/bin"]


def test_any_user_may_read_it_and_one_owns_its_data(image: Image, tmp_path: Path) -> None:
    files = contents(archived(image, tmp_path / "a"))
    with tarfile.open(fileobj=io.BytesIO(files["layer.tar"])) as layer:
        found = {info.name: info for info in layer}
    modes = {name: oct(info.mode) for name, info in found.items()}
    assert modes == {
        "bin": "0o777",
        "data": "0o755",
        "tmp": "0o1777",
        "usr": "0o755",
        "usr/bin": "0o755",
        "usr/bin/thing": "0o755",
        "usr/text": "0o644",
    }
    assert {name: info.uid for name, info in found.items() if info.uid} == {"data": 10_000}
    assert found["bin"].linkname == "usr/bin"
    assert {info.mtime for info in found.values()} == {0}


def test_the_same_contents_make_the_same_bytes(image: Image, tmp_path: Path) -> None:
    first = archived(image, tmp_path / "a").read_bytes()
    for path in image.root.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert archived(image, tmp_path / "b").read_bytes() == first
    (image.root / "usr/text").write_text("other")
    assert archived(image, tmp_path / "c").read_bytes() != first


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(ImageError, match="no-such-command: No such file"):
        run(["no-such-command"])
    with pytest.raises(ImageError, match="nothing to read"):
        run(["sh", "-c", "echo nothing to read >&2; exit 3"])


def test_there_are_two_images(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["third", str(tmp_path / "out.tar")])
    assert "fencelog" in capsys.readouterr().err


SCRIPTS = ("k8s/components/backup/back_up.sh", "k8s/restore_zookeeper.sh")
"""What runs in the image of ZooKeeper, or has parts that do."""

_COMMAND = re.compile(r"(?:^|[|;&{('\"]|\b(?:do|exec|then|until)\b)\s*([a-z][a-z0-9]+)\b")
_FUNCTION = re.compile(r"^(\w+)\(\)", re.MULTILINE)
_BESIDE_THE_IMAGE = {"kubectl", "sed"}
"""What the script that restores runs itself, and not in a pod."""


def commands(script: str) -> set[str]:
    """The words of a script that stand where commands do, and are programs here."""
    known = {*_BESIDE_THE_IMAGE, *_FUNCTION.findall(script)}
    lines = [line.split("#")[0].strip() for line in script.splitlines()]
    words = {word for line in lines for word in _COMMAND.findall(line)}
    shell = subprocess.run(
        ["bash", "-c", "compgen -bk"], capture_output=True, text=True, check=True
    )
    return {word for word in words - set(shell.stdout.split()) - known if shutil.which(word)}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_image_of_zookeeper_has_what_its_scripts_run(script: str) -> None:
    found = commands((ROOT / script).read_text("utf-8"))
    assert found
    for command in found:
        owner = subprocess.run(
            ["dpkg", "-S", f"*/bin/{command}"], capture_output=True, text=True, check=True
        )
        packages = {line.split(":")[0] for line in owner.stdout.splitlines()}
        assert packages & set(ZOOKEEPER_PACKAGES), f"{script} runs {command}"
