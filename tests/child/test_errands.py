"""A child that is sent elsewhere finds the same there, and what it leaves comes back."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path

import pytest
from tests.processes import processes_in

from doesitrun import isolate
from doesitrun.environment import child_environment
from doesitrun.errors import IsolationError
from doesitrun.isolate import Limits
from doesitrun.outcomes import Stage
from doesitrun.pool.errand import Errand, Returned, pack, perform, unpack

SCRIPT = """
import json, os, pathlib, sys
pathlib.Path("stage").write_text("run")
pathlib.Path("sub").mkdir()
pathlib.Path("sub/left").write_text("here")
os.symlink("/etc/passwd", "link")
print(pathlib.Path("given").read_text())
told = {"argv": sys.argv[1:], "cwd": os.getcwd(), "variables": {name: os.environ.get(name) for name in
    ("CACHE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "RAY_JOB_ID", "HF_TOKEN", "MY_SECRET", "TOY")}}
pathlib.Path("result.json").write_text(json.dumps(told))
"""


@pytest.fixture
def errand(tmp_path: Path) -> Errand:
    folder = tmp_path / "attempt"
    folder.mkdir()
    (folder / "given").write_text("hello")
    (folder / "run.py").write_text(SCRIPT)
    environment = child_environment(os.environ, {"CACHE": f"{tmp_path}/graphs/cpu", "TOY": "1"}, keep_token=False)
    argv = [sys.executable, "run.py", str(folder / "answer.json"), f"{Path(isolate.__file__).parent}/instack/judge.py"]
    return pack(argv, folder, environment, Limits(), tmp_path / "graphs")


def performed(errand: Errand) -> tuple[list[Stage], Returned]:
    *stages, returned = perform(errand)
    assert isinstance(returned, Returned)
    return [stage for stage in stages if isinstance(stage, Stage)], returned


def test_files_go_and_come_back_and_paths_are_those_of_the_place(errand: Errand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray sets them in a worker
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("RAY_JOB_ID", "1")
    monkeypatch.setenv("MY_SECRET", "sesame-open-yourself")
    monkeypatch.setenv("HF_TOKEN", "hf_the_nodes_own_token")
    stages, returned = performed(errand)
    assert stages == [Stage.RUN]
    assert (returned.ended.exit_status, returned.ended.stage) == (0, Stage.RUN)
    assert set(returned.files) == {"stdout.log", "stderr.log", "stage", "result.json", "sub/left"}
    back = tmp_path / "back"
    assert unpack(returned, back).exit_status == 0
    assert isolate.read_log(back) == "hello"
    told = isolate.read_result(back)
    assert told is not None
    answer, script = told["argv"]
    assert answer == f"{told['cwd']}/answer.json"
    assert Path(script).exists()
    cache = str(Path.home() / ".cache" / "doesitrun" / "graphs" / "cpu")
    nothing = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "RAY_JOB_ID", "HF_TOKEN", "MY_SECRET"))
    assert told["variables"] == {"CACHE": cache, "TOY": "1", **nothing}
    assert not Path(told["cwd"]).exists()


def test_the_nodes_own_token_is_used_where_one_is_asked_for(errand: Errand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_the_drivers_token")
    folder = tmp_path / "attempt"
    sent = pack(errand.argv, folder, child_environment(os.environ, {}, keep_token=True), Limits(), None)
    assert "hf_the_drivers_token" not in repr(sent)
    monkeypatch.setenv("HF_TOKEN", "hf_the_nodes_own_token")
    _, returned = performed(sent)
    unpack(returned, folder)
    told = isolate.read_result(folder)
    assert told is not None
    assert told["variables"]["HF_TOKEN"] == "hf_the_nodes_own_token"


def test_an_errand_that_is_left_early_kills_its_child(errand: Errand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    running = perform(dataclasses.replace(errand, argv=("sh", "-c", "printf run > stage; sleep 600")))
    assert next(running) is Stage.RUN
    deadline = time.monotonic() + 10
    while not processes_in(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.close()  # type: ignore[attr-defined]
    assert processes_in(tmp_path) == []


def test_a_node_with_another_version_says_so(errand: Errand) -> None:
    with pytest.raises(IsolationError, match=r"0\.0\.0: install the same on all nodes"):
        list(perform(dataclasses.replace(errand, version="0.0.0")))


def test_a_program_that_is_not_there_is_told(errand: Errand) -> None:
    with pytest.raises(IsolationError, match="cannot be started"):
        list(perform(dataclasses.replace(errand, argv=("/no/such/program",))))


def test_nothing_is_written_beside_the_folder(tmp_path: Path) -> None:
    ended = isolate.Ended(0, None, Stage.RUN)
    unpack(Returned(ended, {"../beside": b"x", "/tmp/beside-doesitrun": b"x", "in/it": b"x"}), tmp_path / "attempt")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == ["attempt/in/it"]
