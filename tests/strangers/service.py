"""The service that strangers talk to: one process, which logs nothing but what is wrong."""

from __future__ import annotations

from pathlib import Path

from fencelog.api.local_cluster.child_process import ChildProcess


async def quiet_service(place: Path, *options: str) -> tuple[ChildProcess, Path]:
    """Start a service with its data in ``place``; return it and the file of its log."""
    log = place / "log"
    command = ["standalone", "--log-level", "warning", "--http", "127.0.0.1:0"]
    command += ["--data", str(place / "data"), *options]
    return await ChildProcess.start("standalone", command, log=log), log
