"""The cuda target on a real GPU; skipped, saying so, where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from doesitrun.settings import Settings
from doesitrun.stacks import survey
from tests.cpu.conftest import checkpoint

__all__ = ["checkpoint"]


@pytest.fixture
def gpu() -> None:
    targets = [stack.target for each in survey(Settings()) for stack in each.stacks]
    if "cuda" not in targets:
        pytest.skip("SKIPPED: there is no GPU with a CUDA build of torch here")


def test_the_real_model_passes_on_a_gpu(gpu: None, checkpoint: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "doesitrun", "test", str(checkpoint), "--target", "cuda", "--cores", "1", "--json"]
    done = subprocess.run([*argv, "-w", str(tmp_path)], capture_output=True, text=True, check=False)
    row = json.loads(done.stdout)
    assert (row["result"], row["rungs"]) == ("PASS", "reference,executed,numbers"), row
