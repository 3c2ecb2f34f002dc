"""The images of a cluster as docker-archives, made without a container engine and without root.

    .venv/bin/python k8s/image.py fencelog OUT.tar --name registry.example.org/fencelog:0.1.0
    .venv/bin/python k8s/image.py zookeeper OUT.tar

The root file system consists of unpacked Debian packages (on Debian 12 or its like, by `apt-get`
and `dpkg`), and of this project's wheel with its pinned dependencies, or of ZooKeeper's jars, which
Maven (`mvn`) gets from its central repository. There is no shell in the image of fencelog. `docker
load`, `ctr images import` and `skopeo copy` read the archive.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import io
import json
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

USER = 10_000
PYTHON = "python3.11"

_PACKAGES = ("api", "bookie", "broker", "ledgers", "spark_connector")

_LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "base-files", "netbase", "tzdata")
_PYTHON_PACKAGES = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libexpat1"),
    *("libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1", "libcrypt1"),
    *("libncursesw6", "libtinfo6", "libreadline8", "libdb5.3", "libnsl2", "libtirpc3"),
    *("libgssapi-krb5-2", "libkrb5-3", "libk5crypto3", "libcom-err2", "libkrb5support0"),
    *("libkeyutils1", "media-types"),
)
ZOOKEEPER_PACKAGES = (
    *("openjdk-17-jre-headless", "java-common", "bash", "libtinfo6", "coreutils", "grep"),
    *("libselinux1", "libacl1", "libattr1", "libgmp10", "libpcre2-8-0", "libcrypt1"),
    "util-linux",
)

ZOOKEEPER = "3.9.3"
"""That of the tag in the base."""
_JARS = {
    "org.apache.zookeeper:zookeeper": ZOOKEEPER,
    "org.apache.zookeeper:zookeeper-prometheus-metrics": ZOOKEEPER,
    "org.eclipse.jetty:jetty-servlet": "9.4.56.v20240826",
    "io.dropwizard.metrics:metrics-core": "4.1.12.1",
    "org.xerial.snappy:snappy-java": "1.1.10.5",
    "ch.qos.logback:logback-classic": "1.2.13",
}
"""What runs a server, shows its metrics and writes its log; ZooKeeper's own list leaves the last
four to whoever packs it. What these need comes with them."""
_UNUSED_JARS = "netty-tcnative-*"
"""TLS in machine code, for six platforms."""

_UNUSED = tuple(f"./usr/share/{name}" for name in ("doc", "info", "lintian", "locale", "man"))

_ENTRY_POINT = """#!/bin/bash
# As in the official image: the id of the server, and then the command.
[ -f /data/myid ] || echo "${ZOO_MY_ID:-1}" > /data/myid
exec "$@"
"""
_ZK_SERVER = """#!/bin/bash
exec java $SERVER_JVMFLAGS -cp '/conf:/zookeeper/*' \\
  org.apache.zookeeper.server.quorum.QuorumPeerMain "${2:-/conf/zoo.cfg}"
"""

_LOGBACK = """<configuration>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="CONSOLE"/></root>
</configuration>
"""


class ImageError(Exception):
    """The reason why no image could be made."""


@dataclass(frozen=True)
class Image:
    """A root file system, and what its containers run. ``owned``: the directories that belong to
    the user."""

    root: Path
    user: int
    entry_point: Sequence[str]
    command: Sequence[str]
    environment: dict[str, str]
    owned: frozenset[str] = field(default_factory=frozenset)

    def config(self) -> dict[str, Any]:
        """Return the config of the image, as OCI calls it."""
        return {
            "User": f"{self.user}:{self.user}",
            "Entrypoint": list(self.entry_point),
            "Cmd": list(self.command),
            "Env": [f"{name}={value}" for name, value in self.environment.items()],
            "WorkingDir": "/",
        }


def make_fencelog(root: Path, scratch: Path) -> Image:
    """Make the file system of the image of all roles. Raises ImageError."""
    if f"python{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
        raise ImageError(f"the image has {PYTHON}: run this with {PYTHON}, not {sys.version}")
    unpack([*_LIBRARIES, *_PYTHON_PACKAGES], root, scratch)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    pinned = ["--constraint", str(ROOT / "constraints.txt")]
    wheels, source = scratch / "wheels", scratch / "source"
    copy_source(source)  # so that nothing of an earlier build is in it, and nothing is left behind
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(source)])
    (wheel,) = wheels.glob("fencelog-*.whl")
    target = root / "opt/fencelog"
    into = ["--only-binary=:all:", "--no-compile", "--target", str(target)]
    run([*pip, "install", *pinned, *into, f"{wheel}[compression]"])
    for folder in (target, root / "usr/lib" / PYTHON):
        compileall.compile_dir(
            folder,
            quiet=1,
            stripdir=str(root),
            prependdir="/",
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    write(
        root / "usr/bin/fencelog",
        f"#!/usr/bin/{PYTHON}\nfrom fencelog.api.cli.main import main\n\nmain()\n",
        executable=True,
    )
    add_user(root, "fencelog", USER)
    (root / "data").mkdir()
    return Image(
        root,
        USER,
        ["fencelog"],
        ["standalone", "--http", "0.0.0.0:8080", "--insecure", "--data", "/data"],
        {
            "PATH": "/usr/bin",
            "PYTHONPATH": "/opt/fencelog",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        frozenset({"data"}),
    )


def make_zookeeper(root: Path, scratch: Path) -> Image:
    """Make the file system of a ZooKeeper server, with the paths of the official image. Raises
    ImageError."""
    unpack([*_LIBRARIES, *ZOOKEEPER_PACKAGES], root, scratch)
    jars = root / "zookeeper"
    project = scratch / "jars" / "pom.xml"
    write(project, maven_project(_JARS))
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    run(["mvn", "--batch-mode", "--quiet", "--file", str(project), *copy])
    for unused in jars.glob(_UNUSED_JARS):
        unused.unlink()
    write(root / "docker-entrypoint.sh", _ENTRY_POINT, executable=True)
    write(root / "usr/bin/zkServer.sh", _ZK_SERVER, executable=True)
    add_user(root, "zookeeper", 1000)
    for name in ("data", "datalog", "logs", "conf"):
        (root / name).mkdir()
    write(root / "conf/logback.xml", _LOGBACK)
    (java,) = root.glob("usr/lib/jvm/java-17-openjdk-*/bin")
    return Image(
        root,
        1000,
        ["/docker-entrypoint.sh"],
        ["zkServer.sh", "start-foreground"],
        {"PATH": f"/usr/bin:/bin:/{java.relative_to(root)}", "LANG": "C.UTF-8"},
        frozenset({"data", "datalog", "logs"}),
    )


def maven_project(jars: Mapping[str, str]) -> str:
    """Return a project of Maven that depends on jars, GROUP:ARTIFACT to version."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for (group, artifact), version in ((name.split(":"), jars[name]) for name in jars)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>fencelog</groupId>"
        "<artifactId>image</artifactId><version>0</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


def copy_source(to: Path) -> None:
    """Copy what a wheel is made of."""
    for folder in _PACKAGES:
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to)


def unpack(packages: Sequence[str], root: Path, scratch: Path) -> None:
    """Download Debian packages and unpack them, without their scripts. Raises ImageError."""
    downloads = scratch / "packages"
    downloads.mkdir()
    run(["apt-get", "-q", "download", *packages], cwd=downloads)
    for link in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / link).mkdir(parents=True)
        (root / link).symlink_to(f"usr/{link}")
    for package in sorted(downloads.glob("*.deb")):
        contents = subprocess.Popen(["dpkg", "--fsys-tarfile", package], stdout=subprocess.PIPE)
        with tarfile.open(fileobj=contents.stdout, mode="r|") as archive:
            for member in archive:
                is_there = member.isdir() and (root / member.name).exists()
                if is_there or member.isdev() or member.name.startswith(_UNUSED):
                    continue
                archive.extract(member, root, set_attrs=False, filter="tar")
                if member.isreg():
                    (root / member.name).chmod(0o755 if member.mode & 0o100 else 0o644)
        if contents.wait():
            raise ImageError(f"dpkg cannot read {package.name}")


def add_user(root: Path, name: str, number: int) -> None:
    """Write the accounts of a system with root and one user."""
    write(
        root / "etc/passwd",
        f"root:x:0:0:root:/root:/sbin/nologin\n{name}:x:{number}:{number}::/:/sbin/nologin\n",
    )
    write(root / "etc/group", f"root:x:0:\n{name}:x:{number}:\n")
    (root / "tmp").mkdir(exist_ok=True)


def write(path: Path, text: str, *, executable: bool = False) -> None:
    """Write a file of the image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755 if executable else 0o644)


def run(command: Sequence[str], cwd: Path | None = None) -> None:
    """Run a command. Raises ImageError with what it said."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ImageError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise ImageError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


def members(image: Image) -> Iterator[tuple[tarfile.TarInfo, Path]]:
    """Yield what is in the layer, in order of its path, with owners and times that do not depend on
    the machine."""
    for path in sorted(image.root.rglob("*")):
        name = path.relative_to(image.root).as_posix()
        info = tarfile.TarInfo(name)
        if path.is_symlink():
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        elif path.is_dir():
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        else:
            info.size = path.stat().st_size
            info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        if name in image.owned:
            info.uid = info.gid = image.user
        yield info, path


def write_archive(image: Image, name: str, out: Path, scratch: Path) -> str:
    """Write the docker-archive; return the image's id."""
    layer = scratch / "layer.tar"
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as archive:
        for info, path in members(image):
            if info.isreg():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64")
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": image.config(),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "k8s/image.py"}],
    }
    encoded = json.dumps(config, sort_keys=True).encode()
    identity = hashlib.sha256(encoded).hexdigest()
    manifest = [{"Config": f"{identity}.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        for member, data in (
            (f"{identity}.json", encoded),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        info = tarfile.TarInfo("layer.tar")
        info.size = layer.stat().st_size
        with layer.open("rb") as content:
            archive.addfile(info, content)
    return f"sha256:{identity}"


_MAKERS = {
    "fencelog": (make_fencelog, "docker.io/library/fencelog:0.1.0"),
    "zookeeper": (make_zookeeper, f"docker.io/library/zookeeper:{ZOOKEEPER}"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make one image, and print its id."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("image", choices=_MAKERS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", help="its full name, REGISTRY/NAME:TAG")
    given = parser.parse_args(arguments)
    make, name = _MAKERS[given.image]
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        root = scratch / "root"
        root.mkdir()
        try:
            image = make(root, scratch)
        except ImageError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        identity = write_archive(image, given.name or name, given.out, scratch)
    sys.stdout.write(f"{given.out}: {given.name or name}, {identity}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
