"""Each toy subject fails in exactly one way, and its row says which."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from doesitrun import isolate
from doesitrun.explain import explain

ZOO = Path(__file__).parents[1] / "zoo"
NAMES = sorted(path.parent.name for path in ZOO.glob("*/expected.json"))


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def marked(mark: str) -> list[psutil.Process]:
    """Processes with the variable ZOO=mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("ZOO") == mark:
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_toy_ends_as_expected_and_leaves_nothing(name, tmp_path):
    expected = json.loads((ZOO / name / "expected.json").read_text())
    toys_before, mark, home = tree(ZOO), uuid.uuid4().hex, tmp_path / "home"
    home.mkdir()
    extra = {"ZOO": mark, "HOME": str(home), "TMPDIR": str(home)}
    env = isolate.child_environment(os.environ, extra, keep_token=False)
    folder = tmp_path / "attempt"

    ended = isolate.run([sys.executable, str(ZOO / name / "run.py")], folder, env, isolate.Limits(**expected.get("limits", {})))
    outcome = explain(ended, isolate.read_result(folder), isolate.read_log(folder), "cpu")

    if expected["stage"] is None:
        assert outcome is None
    else:
        assert (expected["stage"], expected["reason"], expected["result"]) == (outcome.stage, outcome.reason, outcome.result)
        assert re.search(expected.get("detail", "."), outcome.detail)
    for field in ("exit_status", "signal", "timed_out", "memory_exceeded", "leftovers"):
        if field in expected:
            assert getattr(ended, field) == expected[field], field
    assert ended.wall_s < 10
    assert marked(mark) == []
    assert tree(ZOO) == toys_before
    assert tree(home) == set()
    assert tree(folder) <= {"stage", "result.json", "stdout.log", "stderr.log"}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2 * isolate.Limits().log_bytes


def test_the_zoo_is_not_empty():
    assert len(NAMES) >= 15
