"""The way to the load within its pod: ``python3.11 -m tests.processes.k8s.ask begin``, ``end``,
``verify`` or ``ping``."""

from __future__ import annotations

import socket
import sys

ADDRESS = "/tmp/load.sock"


def main() -> None:
    """Send one request, and print the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(ADDRESS)
        connection.sendall(sys.argv[1].encode() + b"\n")
        with connection.makefile("rb") as answer:
            sys.stdout.write(answer.read().decode())


if __name__ == "__main__":
    main()
