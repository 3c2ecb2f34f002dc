"""A development ZooKeeper: one real server process on loopback, for trying things and for tests.

The ``pyspark`` wheel carries ZooKeeper's jars, so an installation with the Spark extra has a server
too; Debian's package and ``$ZOOKEEPER_HOME`` are the fall-backs. Five of the wheel's jars are
enough: ready in 0.3 s, with less than 100 MB. Not for production: one server, no replicas.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import importlib.util
import os
import re
import shutil
import socket
from pathlib import Path

import anyio

from fencelog.ledgers.errors import ErrorCode, FencelogError

MIN_JAVA = 17
JAVA_PACKAGE = "openjdk-17-jre-headless"

READY_TIMEOUT_S = 30.0
"""The time from the start of the JVM to its first answer; 0.3 s when idle, more on a busy
machine."""

TICK_MS = 500
"""The server's unit of time; sessions expire at a multiple of it."""

STOP_TIMEOUT_S = 10.0
"""The time from SIGTERM to the end of the process; after it SIGKILL."""

_PORT_ATTEMPTS = 5
_POLL_S = 0.05
_PROBE_TIMEOUT_S = 0.5  # a connection taken in the middle of its start may never be answered
_WHEEL_JARS = (
    "zookeeper-3*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
)
_JVM_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dzookeeper.preAllocSize=4096",  # KiB; the default allocates 64 MiB at every start
)
_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"


class DevelopmentZooKeeper:
    """A running server. ``start`` it with a data directory, ``stop`` it when done.

    The directory outlives the process: a server started on it again has its nodes back.
    """

    def __init__(self, process: asyncio.subprocess.Process, host: str, port: int) -> None:
        self._process = process
        self.host = host
        self.port = port

    @property
    def address(self) -> str:
        """Return ``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(
        cls, data_dir: Path, *, host: str = "127.0.0.1", port: int = 0, tick_ms: int = TICK_MS
    ) -> DevelopmentZooKeeper:
        """Start a server and wait until it answers; port 0 takes a free one.

        Raises FencelogError: METADATA_UNAVAILABLE (no Java, no jars, port in use, it did not
        start), DATA_DIRECTORY_IN_USE (a server runs on the directory, also one left by a
        killed parent).
        """
        java = await find_java()
        class_path = find_class_path()
        lock = _make_and_lock(data_dir)
        try:
            for _ in range(1 if port else _PORT_ATTEMPTS):
                chosen = _free_port(host, port)
                config = _write_config(data_dir, host, chosen, tick_ms)
                command = [java, *_JVM_OPTIONS, "-cp", class_path, _MAIN_CLASS, str(config)]
                server = cls(await _spawn(command, data_dir, lock=lock), host, chosen)
                if await server._wait_until_ready():
                    return server
        finally:
            os.close(lock)  # the server inherited it and holds the lock as long as it lives
        raise FencelogError(
            ErrorCode.METADATA_UNAVAILABLE,
            f"ZooKeeper did not start on {host}:{chosen}: {_last_words(data_dir)}",
        )

    async def stop(self) -> None:
        """End the process that ``start`` started, and wait for its end."""
        if self._process.returncode is None:
            self._process.terminate()
        with anyio.move_on_after(STOP_TIMEOUT_S, shield=True):
            await self._process.wait()
            return
        await self.kill()

    async def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        if self._process.returncode is None:
            self._process.kill()
        with anyio.CancelScope(shield=True):
            await self._process.wait()

    async def _wait_until_ready(self) -> bool:
        """Tell whether the server answers; when it does not, the process has been ended."""
        try:
            with anyio.move_on_after(READY_TIMEOUT_S):
                while self._process.returncode is None:
                    if await _answers(self.host, self.port):
                        return True
                    await anyio.sleep(_POLL_S)
        except BaseException:
            await self.kill()
            raise
        await self.kill()
        return False


async def find_java() -> str:
    """Return the path of a Java that is new enough: ``$JAVA_HOME``'s, else the one on the path.

    Raises FencelogError(METADATA_UNAVAILABLE) naming the package to install.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if java is None:
        raise _needs_java("none was found")
    words = (await anyio.run_process([java, "-version"], check=False)).stderr
    version = re.search(rb'version "(\d+)', words)
    if version is None or int(version[1]) < MIN_JAVA:
        first_line = words.decode(errors="replace").partition("\n")[0]
        raise _needs_java(f"{java} is {first_line!r}")
    return java


def find_class_path() -> str:
    """Return ZooKeeper's class path, from the first place that has it.

    Raises FencelogError(METADATA_UNAVAILABLE) saying where it was looked for.
    """
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        found = [sorted(Path(place, "jars").glob(pattern)) for pattern in _WHEEL_JARS]
        if all(found):
            return os.pathsep.join(str(jars[-1]) for jars in found)
    debian = Path("/usr/share/java/zookeeper.jar")  # its manifest names the other jars
    if debian.exists():
        return str(debian)
    home = os.environ.get("ZOOKEEPER_HOME")
    if home and any(Path(home, "lib").glob("zookeeper-*.jar")):
        return os.pathsep.join((f"{home}/lib/*", f"{home}/*"))
    raise FencelogError(
        ErrorCode.METADATA_UNAVAILABLE,
        "ZooKeeper's jars were not found: install fencelog[spark] (the pyspark wheel has them), "
        "Debian's package zookeeper, or set ZOOKEEPER_HOME",
    )


def _needs_java(found: str) -> FencelogError:
    return FencelogError(
        ErrorCode.METADATA_UNAVAILABLE,
        f"ZooKeeper needs Java {MIN_JAVA} or newer and {found}: apt-get install {JAVA_PACKAGE}",
    )


async def until_ended(data_dir: Path) -> None:
    """Return when no server holds the directory any more. Raises FencelogError
    (DATA_DIRECTORY_IN_USE) after STOP_TIMEOUT_S."""
    give_up = anyio.current_time() + STOP_TIMEOUT_S
    while True:
        try:
            os.close(_make_and_lock(data_dir))
            return
        except FencelogError:
            if anyio.current_time() > give_up:
                raise
        await anyio.sleep(_POLL_S)


def _make_and_lock(data_dir: Path) -> int:
    data_dir.mkdir(parents=True, exist_ok=True)
    lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FencelogError(
            ErrorCode.DATA_DIRECTORY_IN_USE, f"a ZooKeeper server runs on {data_dir}"
        ) from None
    return lock


def _free_port(host: str, wanted: int) -> int:
    """Return the port, or a free one for 0: ZooKeeper cannot report the port that it took by
    itself."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            raise FencelogError(
                ErrorCode.METADATA_UNAVAILABLE,
                f"port {host}:{wanted} cannot be used: {error.strerror}",
            ) from error
        return int(probe.getsockname()[1])


def _write_config(data_dir: Path, host: str, port: int, tick_ms: int) -> Path:
    config = data_dir / "zookeeper.cfg"
    config.write_text(
        f"dataDir={(data_dir / 'data').absolute()}\n"
        f"clientPort={port}\n"
        f"clientPortAddress={host}\n"
        "admin.enableServer=false\n"
        "4lw.commands.whitelist=srvr,ruok,mntr,cons\n"
        "maxClientCnxns=0\n"
        f"tickTime={tick_ms}\n"
        "minSessionTimeout=1000\n"
        "maxSessionTimeout=60000\n"
    )
    return config


async def _spawn(command: list[str], data_dir: Path, *, lock: int) -> asyncio.subprocess.Process:
    with open(data_dir / "zookeeper.out", "wb") as output:  # noqa: ASYNC230 - opens one local file, at the start
        return await asyncio.create_subprocess_exec(
            *_ending_with_us(),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(lock,),
            start_new_session=True,  # Ctrl-C in a terminal is for the owner of this object
        )


def _ending_with_us() -> tuple[str, ...]:
    """Return the prefix of a command that lets the kernel end it when this process is killed: a
    server left behind would hold its directory against the next start."""
    setpriv = shutil.which("setpriv")  # util-linux, on every Debian
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


async def _answers(host: str, port: int) -> bool:
    """Tell whether a server answers ``srvr`` (its four-letter status command) as one that
    serves."""
    try:
        with anyio.fail_after(_PROBE_TIMEOUT_S):
            async with await anyio.connect_tcp(host, port) as connection:
                await connection.send(b"srvr")
                answer = b"".join([part async for part in connection])
    except (OSError, anyio.BrokenResourceError):  # TimeoutError is an OSError
        return False
    return b"Mode:" in answer


def _last_words(data_dir: Path) -> str:
    lines = (data_dir / "zookeeper.out").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
