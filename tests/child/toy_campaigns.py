"""Campaigns of toys as processes that tests can kill."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from bench.toys import Toy
from tests.child.ray_nodes import CORES, RESOURCE
from tests.conftest import REPOSITORY
from tests.processes import processes_in

from doesitrun.outcomes import Result
from doesitrun.records import Row
from doesitrun.store.workspace import Workspace


def some_toys(count: int, seed: int, longest_s: float = 1.0) -> list[Toy]:
    chance = random.Random(seed)
    return [Toy(f"toy{number}", chance.choice((1, 2, 4, 8)), round(chance.uniform(0.2, longest_s), 2)) for number in range(count)]


@dataclass
class Campaign:
    """`python -m bench.toys` on one workspace; it can be started again."""

    folder: Path
    toys: list[Toy]
    pool: str = "local"
    process: subprocess.Popen[str] | None = None

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.folder / "results")

    def start(self) -> subprocess.Popen[str]:
        told = {"root": str(self.workspace.root), "toys": [asdict(toy) for toy in self.toys], "pool": self.pool}
        (self.folder / "told.json").write_text(json.dumps({**told, "cores": CORES, "resource": RESOURCE}))
        argv = [sys.executable, "-m", "bench.toys", str(self.folder / "told.json")]
        with (self.folder / "harness.log").open("a") as log:
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True, cwd=REPOSITORY)
        return self.process

    def rows(self) -> tuple[Row, ...]:
        return self.workspace.rows().rows

    def log(self) -> str:
        return (self.folder / "harness.log").read_text()[-3000:]


@contextmanager
def ray_nodes(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The cluster's process; its address is in `address`."""
    environment = {**os.environ, "TMPDIR": str(folder), "RAY_TMPDIR": "/tmp", "RAY_DEDUP_LOGS": "0"}
    argv = [sys.executable, "-m", "tests.child.ray_nodes"]
    with (folder / "ray.log").open("w") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=REPOSITORY, env=environment
        )
    try:
        assert process.stdout is not None
        process.address = process.stdout.readline().strip()  # type: ignore[attr-defined]
        assert process.address, (folder / "ray.log").read_text()[-3000:]  # type: ignore[attr-defined]
        yield process
    finally:
        started = descendants(process.pid)
        assert process.stdin is not None
        try:
            process.communicate(timeout=40)
        finally:
            for left in [process, *started]:
                if left.is_running() if isinstance(left, psutil.Process) else left.poll() is None:
                    left.kill()


def tell(nodes: subprocess.Popen[str], word: str) -> None:
    assert nodes.stdin is not None
    assert nodes.stdout is not None
    nodes.stdin.write(f"{word}\n")
    nodes.stdin.flush()
    assert nodes.stdout.readline() == "done\n"


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_until_gone(folder: Path, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while left := processes_in(folder):
        assert time.monotonic() < deadline, [process.cmdline() for process in left if process.is_running()]
        time.sleep(0.1)


def check_all_there_once(campaign: Campaign) -> None:
    """Every toy has one settled attempt, and one row in the dataset."""
    import pyarrow.parquet as pq

    names = sorted(toy.name for toy in campaign.toys)
    assert sorted(str(row.plan_id) for row in campaign.rows() if row.result is Result.PASS) == names
    files = list(campaign.workspace.root.glob("data/*/*/*.parquet"))
    assert sorted(name for path in files for name in pq.read_table(path).column("plan_id").to_pylist()) == names
