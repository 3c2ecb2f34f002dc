"""Scenes on a simulated disk, played with many seeds: the stage of its tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.sim.disk.disk import SimDisk
from tests.sim.engine.engine import Engine

DATA = Path("/b1/data")
FILE = DATA / "1.journal"
SEEDS = range(1, 201)

Scene = Callable[[SimDisk, Callable[[], None]], object]


def outcomes(scene: Scene, seeds: range = SEEDS) -> list[object]:
    """Return what a scene returns for each seed. It gets an attached disk with a directory, and a
    way to kill the process, lose power and boot again."""
    return [play(scene, seed) for seed in seeds]


def play(scene: Scene, seed: int) -> object:
    engine = Engine(seed)

    async def main() -> object:
        disk = SimDisk(engine, "b1")
        disk.attach(engine.start_process("b1"))
        disk.make_directory(DATA)

        def crash() -> None:
            disk.process.kill()
            disk.power_loss()
            disk.attach(engine.start_process("b1"))

        return scene(disk, crash)

    return engine.run(main(), budget_s=60)


def content(disk: SimDisk, path: Path = FILE) -> bytes | None:
    return disk.read_file(path)


def synced_file(disk: SimDisk, data: bytes) -> None:
    file = disk.create(FILE)
    file.write([data], 0)
    file.sync()
    disk.sync_directory(DATA)
    file.close()
