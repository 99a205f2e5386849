"""Probes on small random models: faults that one short prompt cannot show, put into the device's side only.

Eager scripts stand for the device, which saves the time to compile; one test compiles. They run in float32, where a
right run has an R of almost 0.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doesitrun import campaign, isolate, script, stacks, verify
from doesitrun.campaign import Ask, Context
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Dtype, Plan, Row
from doesitrun.settings import Settings
from doesitrun.store.workspace import Workspace
from doesitrun.tasks import TASKS
from doesitrun.verify import decide, requests, rules
from doesitrun.verify.thresholds import THRESHOLDS
from tests.conftest import CACHE

torch = pytest.importorskip("torch", reason="the stack is not installed")
transformers = pytest.importorskip("transformers", reason="the stack is not installed")

from doesitrun.instack import reference  # noqa: E402  torch may be absent
from tests.cpu import small_models  # noqa: E402  torch may be absent

PROBES = {"second_prompt", "padded_batch", "long_position", "long_text"}
Edit = Callable[[str], str]

STUCK = '''
from transformers.cache_utils import Cache

FIRST, RIGHT = {}, Cache.update

def update(cache, keys, values, layer, *rest, **more):
    """Keys and values of the first prompt in place of those of any later one."""
    if keys.shape[0] == 1 and keys.shape[2] > 1:
        first = FIRST.setdefault(layer, (keys.clone(), values.clone()))
        length = min(first[0].shape[2], keys.shape[2])
        for now, then in zip((keys, values), first):
            now[:, :, :length] = then[:, :, :length]
    return RIGHT(cache, keys, values, layer, *rest, **more)

Cache.update = update

'''


def stuck_on_the_first_prompt(text: str) -> str:
    return text.replace("\ndef load()", f"{STUCK}\ndef load()", 1)


def padding_is_seen(text: str) -> str:
    """All tokens of the padded batch count, as if the mask were ignored."""
    return text.replace("[0] * (length - len(prompt)) + [1] * len(prompt)", "[1] * length", 1)


def window_is_ignored(text: str) -> str:
    return text.replace("output_loading_info=True,\n", "output_loading_info=True,\n        sliding_window=4096,\n", 1)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    workspace = Workspace(tmp_path_factory.mktemp("workspace"))
    (CACHE / "graphs").mkdir(parents=True, exist_ok=True)
    (workspace.root / "graphs").symlink_to(CACHE / "graphs")
    return Context(stacks.choose(Settings(), None, "cpu"), Settings(), workspace, watch=lambda _: None, warn=lambda _: None)


@pytest.fixture(scope="module")
def plans(context: Context, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    made = {"llama": small_models.llama, "sliding": small_models.sliding}
    folders = {name: make(tmp_path_factory.mktemp(name)) for name, make in made.items()}
    small_models.edit_config(folders["sliding"], sliding_window=160)  # longer than the first prompt and its answer
    prepared = campaign.prepare([Ask(str(f), cores=1, dtype=Dtype.FLOAT32, thorough=True) for f in folders.values()], context)
    return {name: each.plan for name, each in zip(folders, prepared, strict=True) if isinstance(each.plan, Plan)}


@pytest.fixture
def verdict_of(tmp_path: Path) -> Callable[[Plan, Edit], verify.Verdict]:
    """The verdict on a plan's script, run eagerly after an edit of its text."""

    def call(plan: Plan, edit: Edit) -> verify.Verdict:
        text = script.render(plan, TASKS[plan.task], {}, eager=True)
        (tmp_path / "run.py").write_text(edit(text))
        assert edit is str or edit(text) != text
        environment = isolate.child_environment(os.environ, {}, keep_token=False)
        isolate.run([sys.executable, "run.py", "--report", "."], tmp_path, environment, isolate.Limits())
        result = isolate.read_result(tmp_path)
        assert result is not None, isolate.read_log(tmp_path)
        with torch.inference_mode():
            answer = reference.answer_to(verify.reference_request(plan, result))
        return verify.verdict(plan, result, answer, None)

    return call


def figures(seen: verify.Verdict) -> dict[str, list[float]]:
    """R of every sequence, by probe."""
    return {name: [float(r) for r in said.split(" at ")[0].split(", ")] for name, _, said in (p.partition(" R ") for p in seen.probes)}


def test_a_right_run_passes_every_probe(plans: dict[str, Plan], verdict_of: Callable[..., Any]) -> None:
    seen = verdict_of(plans["sliding"], str)
    assert set(seen.rungs) >= PROBES
    assert max(ratio for ratios in figures(seen).values() for ratio in ratios) < 0.01


@pytest.mark.parametrize(
    ("name", "edit", "wrong"),
    [
        ("llama", stuck_on_the_first_prompt, {"second_prompt", "long_position"}),
        ("llama", padding_is_seen, {"padded_batch"}),
        ("sliding", window_is_ignored, {"second_prompt", "padded_batch", "long_position", "long_text"}),
    ],
)
def test_a_fault_that_one_short_prompt_cannot_show_is_caught(
    name: str, edit: Edit, wrong: set[str], plans: dict[str, Plan], verdict_of: Callable[..., Any]
) -> None:
    seen = verdict_of(plans[name], edit)
    assert "numbers" in seen.rungs, "the run itself is right"
    assert PROBES - set(seen.rungs) == wrong
    assert {probe for probe, ratios in figures(seen).items() if max(ratios) > 0.5} == wrong


def test_a_thorough_test_ends_with_a_rung_for_each_probe_and_can_be_replayed(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled. Random weights speak no English, so the limit for that is lifted; all the rest is as users have it."""
    lifted = dataclasses.replace(THRESHOLDS, passage_loss=math.inf)
    for module in (rules, decide, requests):
        monkeypatch.setattr(module, "THRESHOLDS", lifted)
    folder = small_models.llama(tmp_path / "model", num_hidden_layers=1)
    row = campaign.test(Ask(str(folder), cores=1, dtype=Dtype.FLOAT32, thorough=True), context)
    assert isinstance(row, Row)
    assert (row.result, row.reason) == (Result.PASS, None), row.error
    assert set((row.rungs or "").split(",")) == PROBES | {"reference", "executed", "numbers"}
    attempt = context.workspace.folder(row)
    result = isolate.read_result(attempt) or {}
    assert {probe["name"]: probe["graphs"] for probe in result["probes"]}["second_prompt"] == 0, "it runs in a graph that is there"
    assert campaign.replay(attempt).agrees is True
    (attempt / "row.json").write_text((attempt / "row.json").read_text().replace('"wrong_numbers"', "null"))
    (attempt / "reference.json").write_text("{}")
    again = campaign.replay(attempt)
    assert (again.agrees, again.outcome and again.outcome.reason) == (False, Reason.REFERENCE_FAILED)
