"""doctor on this machine, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doesitrun.doctor import gather
from doesitrun.doctor.examination import Room, ask
from doesitrun.targets import TARGETS
from doesitrun.targets.checks import Observed, Program, Question, Step

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON", "TORCH", "PYTHON"))}


def doctor(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "doesitrun", "doctor", "--workspace", str(tmp_path / "w"), *arguments]
    return subprocess.run(command, env=CLEAN | variables, capture_output=True, text=True, cwd=tmp_path, timeout=300)


def room(tmp_path: Path, cores: int = 1) -> Room:
    return Room(sys.executable, tuple(range(cores)), tmp_path, dict(CLEAN), emulated=False, memory_bytes=4 * 10**9)


def test_this_machine_can_run_models_and_nothing_is_left_in_the_workspace(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    done = doctor(tmp_path, "--target", "cpu", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    status = {check["name"]: check["status"] for check in report["checks"]}
    assert (report["target"], report["emulated"], report["answers"]) == ("cpu", False, [])
    assert {status[name] for name in ("packages", "imports", "C++ compiler", "folder of compiled graphs")} == {"ok"}
    assert not (tmp_path / "w").exists()


def test_a_problem_is_shown_with_its_way_out_and_ends_with_5(tmp_path: Path) -> None:
    (tmp_path / "doesitrun.toml").write_text(f'[stacks.here]\npython = "{sys.executable}"\n[stacks.gone]\npython = "/nowhere/python"\n')
    done = doctor(tmp_path, "--target", "neuron", COLUMNS="200", NEURON_RT_VISIBLE_CORES="7-4")
    assert done.returncode == 5, done.stderr
    for said in ("there is no /dev/neuron*", "--device=/dev/neuron0", "a range (4-7)", "There is no Python at /nowhere/python"):
        assert said in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_unknown_question_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--target", "cpu", "--question", "why")
    assert done.returncode == 2
    assert "There is no question 'why' about cpu: choose from compile." in done.stderr


def test_an_import_that_crashes_is_a_fact_and_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = gather.gather(sys.executable, "cpu", gather.probe(sys.executable), tmp_path, lambda _: None)
    assert "ended by signal 11" in facts.import_failure


def test_a_program_is_found_on_path_or_beside_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "some-tool"
    tool.write_text("#!/bin/sh\necho out; echo why >&2; exit 3\n")
    tool.chmod(0o755)
    ran = gather.run_program(Program("some-tool"), str(tmp_path / "python"))
    assert (ran.path, ran.on_path, ran.status, ran.output, ran.last_words) == (str(tool), False, 3, "out\n", "why")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gather.run_program(Program("some-tool"), "/python").on_path
    assert gather.run_program(Program("no-such-tool"), "/python").path is None


def test_the_holder_of_a_device_is_named(tmp_path: Path) -> None:
    device = tmp_path / "neuron0"
    device.touch()
    with device.open():
        (holder,) = gather.holders([str(device)])
    assert (holder.pid, holder.device) == (os.getpid(), str(device))


def test_a_folder_that_cannot_be_made_is_told_and_one_that_can_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert gather.writing_failure(tmp_path / "file" / "graphs")
    assert gather.writing_failure(tmp_path / "new" / "graphs") == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_question_that_fails_or_lacks_cores_stops_no_other(tmp_path: Path) -> None:
    def conclude(observed: object, printed: str) -> str | None:
        (one,) = observed
        return None if one.answer is None else "told"

    pattern = {"distribution": "pytest", "pattern": "fixture"}
    questions = [
        Question("crash", "?", (Step("no such task"),), conclude),
        Question("cores", "?", (Step("package_words", pattern, cores=9),), conclude),
        Question("good", "?", (Step("package_words", pattern),), conclude),
    ]
    crash, cores, good = ask(questions, room(tmp_path), lambda _: None)
    assert (crash.answer, "KeyError" in crash.why_not) == (None, True)
    assert (cores.answer, cores.why_not) == (None, "it needs 9 free cores, and there are 1")
    assert (good.answer, good.why_not) == ("told", "")


def test_a_step_that_hangs_is_ended_at_its_limit(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(600)\n")
    slow = Question("slow", "?", (Step("names", environment={"PYTHONPATH": str(tmp_path)}),), lambda *_: None, limit_s=1)
    (answer,) = ask([slow], room(tmp_path / "w"), lambda _: None)
    assert "took longer than 1 s" in answer.why_not
    assert answer.observed[0] == Observed(None, answer.observed[0].failure)


def test_a_program_beside_the_steps_is_heard_and_ended(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; while true; do echo heard; sleep 0.1; done"
    heard = []
    question = Question(
        "beside",
        "?",
        (Step("package_words", {"distribution": "pytest", "pattern": "fixture"}),),
        lambda _, printed: heard.append(printed) or "told",
        beside=Program("sh", ("-c", script)),
    )
    list(ask([question], room(tmp_path / "w"), lambda _: None))
    assert "heard" in heard[0]
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_the_cpu_compiles_with_the_right_numbers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (answer,) = ask(TARGETS["cpu"].CHECKUP.questions, room(tmp_path), lambda _: None)
    assert "as close to float32 as rounding allows" in (answer.answer or ""), answer
