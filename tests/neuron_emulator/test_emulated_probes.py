"""The probes of a thorough neuron script on an emulated core: they run there, too, and find a right run right."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from doesitrun import isolate, verify
from doesitrun.records import Dtype
from doesitrun.script import render
from doesitrun.stacks import INSTACK
from doesitrun.tasks import TASKS
from doesitrun.verify.probes import NAMES
from tests.cpu import small_models
from tests.neuron_emulator.test_golden_scripts import run
from tests.pure.golden_plans import PLANS, VERSIONS


def test_the_probes_of_a_neuron_script_run_and_are_right(environment: dict[str, str], tmp_path: Path) -> None:
    model = small_models.llama(tmp_path / "model", num_hidden_layers=1)
    own = {"model_id": "local/llama", "source": str(model), "weights_bytes": 10**9, "longest": 2048, "dtype": Dtype.FLOAT32}
    plan = dataclasses.replace(
        PLANS["neuron_1_core"], **own, rank_bytes=dataclasses.replace(PLANS["neuron_1_core"].rank_bytes, sharded=10**9)
    )
    (tmp_path / "run.py").write_text(render(plan, TASKS[plan.task], VERSIONS))
    done = run(tmp_path, environment)
    result = isolate.read_result(tmp_path / "report")
    assert result is not None, done.stdout + done.stderr
    assert [(probe["name"], probe.get("error")) for probe in result["probes"]] == [
        ("long_text", None),
        ("second_prompt", None),
        ("padded_batch", None),
        ("long_position", None),
    ]
    answer = isolate.run_script(INSTACK / "reference.py", sys.executable, verify.reference_request(plan, result), tmp_path / "reference")
    seen = verify.verdict(plan, result, answer, None)
    assert set(NAMES) <= set(seen.rungs), seen.probes
