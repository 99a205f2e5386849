"""The published neuron scripts, as they are checked in, on emulated cores: they run, and their numbers are the CPU's.

Only the model's name, its revision and its planned bytes are exchanged for those of a small local one.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doesitrun import isolate, verify
from doesitrun.explain import explain_log
from doesitrun.outcomes import Reason, Stage
from doesitrun.records import Plan
from doesitrun.script import literal
from doesitrun.stacks import INSTACK
from tests.cpu import small_models
from tests.pure.golden_plans import FOLDER, PLANS

MODELS = {
    "neuron_1_core": small_models.llama,
    "neuron_4_cores_tp": small_models.llama,
    "neuron_moe_tp_ep": lambda folder: small_models.qwen3_moe(folder, num_key_value_heads=4),
    "neuron_image_text_to_text": lambda folder: small_models.vision_language(folder, small_models.llama(folder.with_name("text"))),
}


def published(name: str, model: Path) -> str:
    """The checked-in script, for another model."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    for constant, value in (("MODEL", literal(str(model))), ("REVISION", "None"), ("RANK_WEIGHTS_BYTES", str(10**9))):
        text, found = re.subn(rf"^{constant} = .*$", lambda _, line=f"{constant} = {value}": line, text, flags=re.MULTILINE)
        assert found == 1
    return text


def ratio(plan: Plan, result: dict[str, Any], folder: Path) -> float | None:
    """R of the run against the CPU. Small random models speak no English, so the verdict itself is not of interest."""
    request = verify.reference_request(plan, result)
    if request["picture"]:
        request["picture"] = str(INSTACK.parent / "tasks" / request["picture"])
    answer = isolate.run_script(INSTACK / "reference.py", sys.executable, request, folder)
    return verify.verdict(plan, result, answer, {"nll": [1.0], "tokens": [32]}).logit_ratio


def run(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """run.py in the folder, with its report below it."""
    argv = [sys.executable, "run.py", "--report", "report"]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", MODELS)
def test_a_published_script_runs_and_its_numbers_are_the_cpus(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    model = MODELS[name](tmp_path / "model")
    (tmp_path / "run.py").write_text(published(name, model))
    done = run(tmp_path, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "report" / "result.json").read_text())
    plan = dataclasses.replace(PLANS[name], source=str(model), model_id="local/model")
    assert len(result["ranks"]) == plan.cores
    assert result["tokens"] == result["warm_tokens"]
    assert all(rank["tokens"] == result["tokens"] for rank in result["ranks"])
    assert (result["compiled"], result["fallbacks"]) == (True, [])
    stored = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    assert plan.cores == 1 or max(rank["weights_bytes"] for rank in result["ranks"]) < 0.6 * stored, "each core holds its share"
    assert result["graphs"] == (1 if "image" in name else 2), "a graph for a token and, for text, one for the prompt"
    assert list((tmp_path / "neff").rglob("*.neff"))
    found = ratio(plan, result, tmp_path / "reference")
    assert found is not None
    assert found < verify.THRESHOLDS.ratio


def test_a_model_that_is_compiled_anew_at_every_token_is_reported_as_such(environment: dict[str, str], tmp_path: Path) -> None:
    model = small_models.sliding(tmp_path / "model")
    (tmp_path / "run.py").write_text(published("neuron_1_core", model))
    done = run(tmp_path, environment)
    assert done.returncode == 1
    outcome = explain_log(done.stderr, "neuron", Stage((tmp_path / "report" / "stage").read_text()))
    assert (outcome.stage, outcome.reason) == (Stage.COMPILE, Reason.RECOMPILES)
    assert "sliding-window" in Reason.RECOMPILES.advice


def test_too_few_visible_cores_are_one_sentence(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(published("neuron_4_cores_tp", tmp_path))
    done = run(tmp_path, environment | {"NEURON_RT_VISIBLE_CORES": "0-1"})
    assert done.returncode == 1
    assert "NEURON_RT_VISIBLE_CORES=0-1 names 2 cores where 4 are needed" in done.stderr


def test_a_row_of_the_emulated_device_is_never_published(environment: dict[str, str], tmp_path: Path) -> None:
    model = small_models.llama(tmp_path / "model")
    argv = [sys.executable, "-m", "doesitrun", "test", str(model), "--target", "neuron", "--json", "-w"]

    def call(workspace: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*argv, workspace], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    row = json.loads(call(str(tmp_path / "results")).stdout)
    assert (row["device"], row["cores"], row["compiled"], row["graphs"]) == ("trn2.3xlarge", 1, True, 2)
    assert row["reason"] == "reference_broken", "random weights speak no English"
    assert "emulated" in row["torch_neuronx"]
    assert not list((tmp_path / "results").glob("data/**/*.parquet"))
    refused = call("/var/lib/doesitrun-results")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "emulated" in refused.stderr
