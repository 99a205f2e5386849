"""Small random models on two ranks, compiled: sharded by every kind of plan, they compute what they do unsharded.

Random weights speak no English, so a test of them ends as EXCLUDED, rightly; everything but the language is checked
here by the same functions that a test uses. They run in float32, where a right run is a thousand times closer to the
reference than the rounding of bfloat16 that R is measured in, so that no near-tie of a router can excuse a fault.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from doesitrun import campaign, isolate, script, stacks, verify
from doesitrun.campaign import Ask, Context
from doesitrun.explain import explain
from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.records import Dtype, Plan, Row
from doesitrun.settings import Settings
from doesitrun.store.workspace import Workspace
from doesitrun.targets import TARGETS
from doesitrun.tasks import TASKS
from tests.cpu.conftest import Ran

torch = pytest.importorskip("torch", reason="the stack is not installed")
transformers = pytest.importorskip("transformers", reason="the stack is not installed")

from doesitrun.instack import reference  # noqa: E402  torch may be absent
from tests.cpu import small_models  # noqa: E402  torch may be absent

Json = dict[str, Any]
CORES = 2
OVERRIDE = "plan_override: "


@dataclass(frozen=True)
class Kind:
    """A small model and how it must be sharded."""

    make: small_models.Maker
    ep: int
    note: str = ""
    """How the plan's only note begins."""

    @property
    def name(self) -> str:
        return self.make.__name__


KINDS = (
    Kind(small_models.qwen3_moe, ep=2),
    Kind(small_models.mixtral, ep=1),
    Kind(small_models.gpt_oss, ep=2),
    Kind(small_models.experts_only, ep=2, note=f"{OVERRIDE}experts alone are shared out"),
)


@pytest.fixture(scope="module")
def context(workspace: Path) -> Context:
    settings = Settings()
    stack = stacks.choose(settings, None, "cpu")
    return Context(stack, settings, Workspace(workspace), watch=lambda _: None, warn=lambda _: None)


@pytest.fixture(scope="module")
def plans(context: Context, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """The plan of every kind on two cores, made in one process."""
    folders = [kind.make(tmp_path_factory.mktemp(kind.name)) for kind in KINDS]
    prepared = campaign.prepare([Ask(str(folder), cores=CORES, dtype=Dtype.FLOAT32) for folder in folders], context)
    found = {kind.name: each.plan for kind, each in zip(KINDS, prepared, strict=True)}
    return {name: plan for name, plan in found.items() if isinstance(plan, Plan)}


@dataclass(frozen=True)
class Tried:
    """A script that was run, and what it left."""

    ended: isolate.Ended
    result: Json | None
    log: str


Try = Callable[..., Tried]


@pytest.fixture(scope="module")
def run(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Try:
    """Run a plan's script as a test does; `edit` may change its text first."""

    def call(plan: Plan, edit: Callable[[str], str] = str) -> Tried:
        folder = tmp_path_factory.mktemp("attempt")
        (folder / "run.py").write_text(edit(script.render(plan, TASKS[plan.task], {})))
        kept = TARGETS["cpu"].environment(str(campaign.graphs_folder(context)))
        environment = isolate.child_environment(os.environ, kept, keep_token=False)
        ended = isolate.run([sys.executable, "run.py", "--report", "."], folder, environment, isolate.Limits())
        return Tried(ended, isolate.read_result(folder), isolate.read_log(folder))

    return call


@dataclass(frozen=True)
class Sharded:
    """A kind of model that ran on two ranks."""

    kind: Kind
    plan: Plan
    result: Json


@pytest.fixture(scope="module")
def ran(plans: dict[str, Plan], run: Try) -> Callable[[Kind], Sharded]:
    """What a kind of model left; each is run once for all tests."""

    @cache
    def call(kind: Kind) -> Sharded:
        tried = run(plans[kind.name])
        assert tried.result is not None, tried.log
        return Sharded(kind, plans[kind.name], tried.result)

    return call


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def sharded(request: pytest.FixtureRequest, ran: Callable[[Kind], Sharded]) -> Sharded:
    return ran(request.param)


def verdict_on(plan: Plan, result: Json, source: str | None = None) -> verify.Verdict:
    """The verdict, with the model itself, or another one, as the reference."""
    request = verify.reference_request(dataclasses.replace(plan, source=source or plan.source), result)
    with torch.inference_mode():
        answer = reference.answer_to(request)
    return verify.verdict(plan, result, answer, None)


def graphs_in(context: Context) -> set[str]:
    """The graphs that Inductor keeps."""
    found = {path.name for path in (campaign.graphs_folder(context) / "fxgraph").glob("*/*")}
    assert found
    return found


# ---------------------------------------------------------------------------------- sharded as planned
def test_the_plan_shards_what_can_be_sharded(sharded: Sharded) -> None:
    plan = sharded.plan
    assert (plan.cores, plan.tp, plan.ep) == (CORES, CORES, sharded.kind.ep)
    assert len(plan.notes) == bool(sharded.kind.note)
    assert all(note.startswith(sharded.kind.note) for note in plan.notes)


def test_the_tokens_are_those_of_the_unsharded_model(sharded: Sharded) -> None:
    plan, found = sharded.plan, sharded.result
    model = transformers.AutoModelForCausalLM.from_pretrained(plan.source, dtype=torch.float32)
    ids = torch.tensor([found["prompt_ids"]])
    length = {"min_new_tokens": plan.new_tokens, "max_new_tokens": plan.new_tokens}
    with torch.no_grad():
        whole = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **length)
    assert found["tokens"] == found["warm_tokens"] == whole[0, ids.shape[1] :].tolist()
    assert [rank["tokens"] for rank in found["ranks"]] == [found["tokens"]] * CORES
    assert len(set(found["tokens"])) > 4


def test_only_the_language_is_found_wanting(sharded: Sharded) -> None:
    seen = verdict_on(sharded.plan, sharded.result)
    assert seen.outcome.reason is Reason.REFERENCE_BROKEN
    assert seen.rungs == ("executed", "numbers")
    assert seen.cpu_match == "32/32"
    assert seen.logit_ratio is not None
    assert seen.logit_ratio < 0.01


def test_each_rank_holds_the_weights_that_were_planned(sharded: Sharded) -> None:
    held = [rank["weights_bytes"] for rank in sharded.result["ranks"]]
    assert max(held) == pytest.approx(sharded.plan.rank_bytes.weights, rel=0.01)
    assert min(held) == pytest.approx(max(held), rel=0.05)
    assert max(held) < sharded.plan.weights_bytes


def test_every_rank_compiles_one_graph(sharded: Sharded) -> None:
    assert [rank["graphs"] for rank in sharded.result["ranks"]] == [1] * CORES


# ---------------------------------------------------------------------------------- and not otherwise
def test_a_plan_that_silently_shards_nothing_is_stopped(plans: dict[str, Plan], run: Try) -> None:
    """transformers takes this flag alone for a tensor-parallel size of 1, and puts all of the model on every rank."""
    plan = plans["qwen3_moe"]
    tried = run(plan, lambda text: text.replace("tp_size=2, ep_size=2", "enable_expert_parallel=True"))
    outcome = explain(tried.ended, tried.result, tried.log, "cpu")
    assert outcome is not None
    assert (outcome.stage, outcome.reason, outcome.result) == (Stage.LOAD, Reason.REPLICATED, Result.FAIL)
    assert f"holds {plan.weights_bytes} bytes of {plan.rank_bytes.weights} planned" in outcome.detail


def test_experts_of_another_rank_are_seen_in_the_numbers_and_graphs_found_again(
    ran: Callable[[Kind], Sharded], run: Try, context: Context, tmp_path: Path
) -> None:
    """The graph is the same with other weights, so the second run compiles nothing."""
    plan = ran(KINDS[0]).plan
    swapped = small_models.swap_experts(Path(plan.source), tmp_path / "swapped", 0, 2)
    kept = graphs_in(context)
    tried = run(dataclasses.replace(plan, source=str(swapped)))
    assert tried.result is not None, tried.log
    assert graphs_in(context) == kept
    seen = verdict_on(plan, tried.result)
    assert seen.rungs == ("executed",)
    assert seen.logit_ratio is not None
    assert seen.logit_ratio > 1.5


def test_a_test_of_random_experts_reaches_every_rung_but_the_language(
    plans: dict[str, Plan], checkpoint: Path, tmp_path: Path, row_of: Callable[..., tuple[Row, Ran]]
) -> None:
    settings = tmp_path / "doesitrun.toml"
    settings.write_text(f'[judge]\nmodel = "{checkpoint}"\n')
    plan = plans["qwen3_moe"]
    row, ran = row_of(plan.source, "--cores", CORES, "--dtype", "float32", "--config", settings)
    assert (row.result, row.reason, ran.code) == (Result.EXCLUDED, Reason.REFERENCE_BROKEN, 11)
    assert (row.rungs or "").startswith("executed,numbers")
    assert (row.tp, row.ep, row.cores, row.cpu_match) == (2, 2, 2, "32/32")
    assert row.rank_weights_bytes == plan.rank_bytes.weights
