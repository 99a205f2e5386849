"""Stopping in the middle: nothing is left running, the row says so, and the next call starts clean."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doesitrun.outcomes import Reason, Result
from tests.cpu.conftest import Command, rows
from tests.processes import processes_in


@pytest.fixture
def running(checkpoint: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`doesitrun test` on three ranks, in its first pass."""
    argv = [sys.executable, "-m", "doesitrun", "test", str(checkpoint), "--cores", "3", "-w", str(tmp_path / "results")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not any(path.read_text() == "compile" for path in tmp_path.glob("results/attempts/*/1/stage")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield process, tmp_path / "results"
        if process.poll() is None:
            process.kill()


def gone(folder: Path) -> bool:
    """True once no process is left, within the second that a kill may take to be noticed."""
    for _ in range(50):
        if not processes_in(folder):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_stopping_leaves_a_row_and_no_process(running: tuple[subprocess.Popen[str], Path], stop: int) -> None:
    process, root = running
    assert len(processes_in(root)) >= 4
    process.send_signal(stop)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert gone(root)
    (row,) = rows(root)
    assert (row.result, row.reason, row.stage) == (Result.INCONCLUSIVE, Reason.INTERRUPTED, "compile")


def test_a_killed_harness_is_settled_by_the_next_call(
    running: tuple[subprocess.Popen[str], Path], command: Command, tmp_path: Path
) -> None:
    process, root = running
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert gone(root)
    (row,) = rows(root)
    assert row.result is None
    empty = tmp_path / "no-model"
    empty.mkdir()
    assert command("test", empty, root=root).code == 11
    assert [row.reason for row in rows(root)] == [Reason.INTERRUPTED, Reason.NOT_TRANSFORMERS]
