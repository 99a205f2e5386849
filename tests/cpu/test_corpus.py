"""Every real config ends as a plan or as an exclusion with the right reason: the table beside the pure tests says which.

`python -m tests.cpu.test_corpus` writes the table anew; a person reads the difference before it is kept.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench.exact_sizes import exact_parameters, is_within

from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.hub.repository import open_checkpoint
from doesitrun.outcomes import Reason
from doesitrun.plan.explanation import explanation
from doesitrun.plan.outlines import Outline, Problem, outline_request, read_outlines
from doesitrun.plan.planner import PlanOptions, make_plan
from doesitrun.records import Plan, Refusal
from doesitrun.targets import DEVICES
from doesitrun.tasks import TASKS
from tests.conftest import shared_data
from tests.cpu.test_outline import OUTLINE

EXPECTED = Path(__file__).parents[1] / "pure" / "corpus_expected.tsv"
COLUMNS = ("model", "plan or reason", "cores", "tp", "ep", "weights_gb")
Opened = tuple[str, Checkpoint | Refusal, Outline | Problem | None]


@cache
def opened() -> list[Opened]:
    """(model, checkpoint, outline) of every config, the outlines from one process."""
    paths = sorted((shared_data() / "configs").glob("*.json"))
    found = [open_checkpoint(str(path)) for path in paths]
    request = outline_request([one for one in found if isinstance(one, Checkpoint)], TASKS.values())
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "answer.json")
        asked.write_text(json.dumps(request))
        subprocess.run([sys.executable, OUTLINE, asked, answered], check=True, capture_output=True, timeout=600)
        outlines = iter(read_outlines(json.loads(answered.read_text())))
    names = [path.stem.replace("__", "/", 1) for path in paths]
    return [(name, one, next(outlines) if isinstance(one, Checkpoint) else None) for name, one in zip(names, found, strict=True)]


def planned(checkpoint: Checkpoint | Refusal, outline: Outline | Problem | None, device: str) -> Plan | Refusal:
    if isinstance(checkpoint, Refusal):
        return checkpoint
    assert outline is not None
    task = TASKS[outline.task] if isinstance(outline, Outline) else TASKS["text-generation"]
    return make_plan(checkpoint, outline, DEVICES[device], task, PlanOptions())


def line(name: str, result: Plan | Refusal) -> dict[str, str]:
    gb = f"{result.weights_bytes / 1e9:.2f}" if result.weights_bytes else ""
    if isinstance(result, Refusal):
        return dict(zip(COLUMNS, (name, result.reason.value, "", "", "", gb), strict=True))
    sizes = (str(result.cores), str(result.tp), str(result.ep))
    return dict(zip(COLUMNS, (name, f"plan {result.task}", *sizes, gb), strict=True))


def expected() -> list[dict[str, str]]:
    with EXPECTED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_every_config_is_planned_or_excluded_as_the_table_says() -> None:
    lines = [line(name, planned(checkpoint, outline, "trn2")) for name, checkpoint, outline in opened()]
    assert {one["model"]: one for one in lines} == {one["model"]: one for one in expected()}


@pytest.mark.parametrize("device", ["trn2.3xlarge", "h200", "t4", "cpu"])
def test_every_config_ends_with_a_plan_or_a_sentence_on_every_device(device: str) -> None:
    for name, checkpoint, outline in opened():
        result = planned(checkpoint, outline, device)
        if isinstance(result, Refusal):
            assert result.detail.endswith("."), name
            assert "\n" not in result.detail, name
            assert result.reason is not Reason.HARNESS_ERROR
        elif result.capacity_bytes:
            assert 0 < result.rank_bytes.total <= result.capacity_bytes, name


def test_every_outline_can_be_explained() -> None:
    for name, checkpoint, outline in opened():
        if isinstance(checkpoint, Checkpoint) and isinstance(outline, Outline):
            told = explanation(checkpoint, outline, DEVICES["trn2"], TASKS[outline.task], PlanOptions())
            assert sum(module.total_bytes for module in told.modules) == told.weights_bytes, name
            assert len(told.fits) == len(DEVICES["trn2"].sizes)


def test_sizes_are_exact_on_models_whose_size_is_known() -> None:
    built: dict[str, Outline] = {}
    configs: dict[str, Any] = {}
    for name, checkpoint, outline in opened():
        plain = isinstance(checkpoint, Checkpoint) and (checkpoint.quantization or {}).get("quant_method", "fp8") == "fp8"
        if plain and isinstance(checkpoint, Checkpoint) and isinstance(outline, Outline):
            built[name], configs[name] = outline, dict(checkpoint.config)
    exact = exact_parameters(shared_data() / "sizes.tsv", configs)
    off = [name for name in exact if not is_within(built[name].elements, exact[name], built[name].unloaded)]
    assert len(exact) > 60
    assert len(off) <= len(exact) * 0.05, off


def test_heads_and_experts_agree_with_what_others_say_of_the_same_models() -> None:
    oracle = json.loads((shared_data() / "hub" / "vllm_base_model_arch_groundtruth.json").read_text())
    built = {name: outline for name, _, outline in opened() if isinstance(outline, Outline)}
    both = oracle.keys() & built.keys()
    assert both
    for name in both:
        assert built[name].layers == oracle[name]["total_num_hidden_layers"], name
        assert built[name].experts == oracle[name]["num_experts"], name
        assert built[name].vocab == oracle[name]["vocab_size"], name


def write() -> None:
    with EXPECTED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(line(name, planned(checkpoint, outline, "trn2")) for name, checkpoint, outline in opened())


if __name__ == "__main__":
    write()
