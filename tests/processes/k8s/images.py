"""The images of a test: made without a container engine, named, and put on every node."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tarfile
from pathlib import Path

from tests.processes.k8s.cluster import Cluster, CommandFailed, say
from tests.support.house import ROOT

IMAGES = ("fencelog", "zookeeper")

_GIT = ("git", "-C", str(ROOT))


def make_archives(cluster: Cluster, folder: Path) -> None:
    """Make the archives that are not in the folder. Raises CommandFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        archive = folder / f"{image}.tar"
        if archive.exists():
            say(f"{archive} is there; it is taken as it is")
            continue
        say(f"making {archive}")
        command = [sys.executable, str(ROOT / "k8s/image.py"), image, str(archive)]
        cluster.run(command, timeout_s=1200)


def find_earlier(cluster: Cluster, given: str | None, folder: Path) -> Path | None:
    """Return the archive of the version before this one: a file that is given, or made in a folder
    from a commit that is given, or of the last release; None: there is no release. Raises
    CommandFailed."""
    if given is not None and Path(given).is_file():
        return Path(given).resolve()
    commit = given or last_release(cluster)
    return make_earlier(cluster, commit, folder) if commit else None


def last_release(cluster: Cluster) -> str:
    """Return the last tag before this commit; empty: there is none, or no repository."""
    if shutil.which("git") is None:
        return ""
    try:
        return cluster.run([*_GIT, "describe", "--tags", "--abbrev=0", "HEAD^"]).strip()
    except CommandFailed:
        return ""


def make_earlier(cluster: Cluster, commit: str, folder: Path) -> Path:
    """Make the archive of fencelog as it was at a commit. Raises CommandFailed."""
    revision = cluster.run([*_GIT, "rev-parse", "--short", f"{commit}^{{commit}}"]).strip()
    archive = folder / f"fencelog-{revision}.tar"
    if archive.exists():
        return archive
    say(f"making {archive}")
    folder.mkdir(parents=True, exist_ok=True)
    tree = str(folder / f"source-{revision}")
    cluster.run([*_GIT, "worktree", "add", "--detach", tree, revision])
    try:
        command = [sys.executable, f"{tree}/k8s/image.py", "fencelog", str(archive)]
        cluster.run(command, timeout_s=1200)
    finally:
        cluster.run([*_GIT, "worktree", "remove", "--force", tree])
    return archive


def load_image(cluster: Cluster, archive: Path, name: str, scratch: Path) -> None:
    """Put an image on every node under a name. Raises CommandFailed."""
    target = cluster.target
    if target.load_image is None and target.lab is None:
        return  # The nodes get it from a registry.
    say(f"loading {name}")
    if target.load_image is not None:
        renamed = scratch / "renamed.tar"
        rename(archive, name, renamed)
        cluster.run([*target.load_image, str(renamed)], timeout_s=600)
        renamed.unlink()
        return
    root = scratch / re.sub(r"\W+", "-", str(archive.resolve().with_suffix("")))
    config = root.with_name(f"{root.name}.json")
    if not config.exists() or config.stat().st_mtime < archive.stat().st_mtime:
        unpack(archive, root)
    cluster.run([str(target.lab), "image", str(root), name], timeout_s=600)


def rename(archive: Path, name: str, out: Path) -> None:
    """Write a docker-archive anew, with one image that has this name."""
    with tarfile.open(archive) as opened, tarfile.open(out, "w") as written:
        for member in opened:
            content = opened.extractfile(member)
            if content is not None and member.name == "manifest.json":
                (manifest,) = json.load(content)
                data = json.dumps([manifest | {"RepoTags": [name]}]).encode()
                member.size = len(data)
                content = io.BytesIO(data)
            written.addfile(member, content)


def unpack(archive: Path, root: Path) -> None:
    """Unpack the image of a docker-archive into a folder, and its config into ``folder.json``, as
    the lab takes it. Raises CommandFailed if it has more than one layer."""
    with tarfile.open(archive) as opened:
        (manifest,) = json.loads(_content(opened, "manifest.json"))
        config = json.loads(_content(opened, manifest["Config"]))
        if len(manifest["Layers"]) != 1:
            raise CommandFailed(f"{archive} has {len(manifest['Layers'])} layers, not one")
        layer = opened.extractfile(manifest["Layers"][0])
        with tarfile.open(fileobj=layer) as files:
            shutil.rmtree(root, ignore_errors=True)
            files.extractall(root, numeric_owner=True, filter="fully_trusted")
    root.with_name(f"{root.name}.json").write_text(json.dumps(config["config"]), "utf-8")


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, name
    return file.read()
