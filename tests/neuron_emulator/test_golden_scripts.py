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


@pytest.mark.parametrize("name", MODELS)
def test_a_published_script_runs_and_its_numbers_are_the_cpus(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    model = MODELS[name](tmp_path / "model")
    (tmp_path / "run.py").write_text(published(name, model))
    done = subprocess.run(
        [sys.executable, "run.py", "--report", "report"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "report" / "result.json").read_text())
    plan = dataclasses.replace(PLANS[name], source=str(model), model_id="local/model")
    assert len(result["ranks"]) == plan.cores
    assert result["tokens"] == result["warm_tokens"]
    assert all(rank["tokens"] == result["tokens"] for rank in result["ranks"])
    assert (result["compiled"], result["fallbacks"]) == (True, [])
    assert result["graphs"] == (1 if "image" in name else 2), "a graph for a token and, for text, one for the prompt"
    assert list((tmp_path / "neff").rglob("*.neff"))
    found = ratio(plan, result, tmp_path / "reference")
    assert found is not None
    assert found < verify.THRESHOLDS.ratio
