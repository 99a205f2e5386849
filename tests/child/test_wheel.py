"""The package as a user gets it: it builds, installs without torch, and carries its data."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder, REPOSITORY], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_its_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for data in ("script_parts/common.py.txt", "tasks/harbour.png", "targets/log_patterns.toml", "instack/reference.py"):
        assert f"doesitrun/{data}" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"doesitrun"}


def test_it_works_in_a_python_without_torch(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True, capture_output=True)
    program = [str(python.with_name("doesitrun"))]

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*program, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "doesitrun demo" in call("--help").stdout
    none = call("stacks")
    assert (none.returncode, "No stack" in none.stdout) == (5, True)
    (tmp_path / "log").write_text("RuntimeError: [NCC_EVRF001] operator not supported\n")
    assert json.loads(call("explain", "log", "--json").stdout)["reason"] == "unsupported_op"
    lost = call("test", "org/name")
    assert (lost.returncode, len(lost.stderr.splitlines())) == (5, 1)
    assert "pip install" in lost.stderr
