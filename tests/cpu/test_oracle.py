"""The layout oracle on two CPU ranks: a wrong rule of the layout convicts the library, a right layout the target."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from doesitrun import campaign, isolate, stacks
from doesitrun.campaign import Ask, Context, oracle
from doesitrun.records import Blame, Dtype, Plan
from doesitrun.settings import Settings
from doesitrun.store.workspace import Workspace

pytest.importorskip("torch", reason="the stack is not installed")
pytest.importorskip("transformers", reason="the stack is not installed")

from tests.cpu import small_models

REDUCED_TWICE = {"model.layers.*.post_attention_layernorm": "all_reduce"}
"""Every rank has the whole of a norm's output; a rule that sums it over the ranks makes it twice as large."""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    workspace = Workspace(tmp_path_factory.mktemp("workspace"))
    return Context(stacks.choose(Settings(), None, "cpu"), Settings(), workspace, watch=lambda _: None, warn=lambda _: None)


@pytest.fixture(scope="module")
def plan(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A plan for two cores of the device that stands at fault; only its layout is tried here."""
    folder = small_models.llama(tmp_path_factory.mktemp("llama"))
    (prepared,) = campaign.prepare([Ask(str(folder), cores=2, dtype=Dtype.FLOAT32)], context)
    assert isinstance(prepared.plan, Plan)
    return dataclasses.replace(prepared.plan, target="neuron", device="trn2")


@pytest.mark.parametrize(
    ("change", "blame", "said"),
    [
        (lambda plan: plan, Blame.TARGET, "is right (R = "),
        (lambda plan: dataclasses.replace(plan, tp_override=REDUCED_TWICE), Blame.LIBRARY, "is wrong, too (R = "),
    ],
    ids=["right layout", "wrong rule"],
)
def test_the_same_layout_on_cpu_ranks_says_who_is_at_fault(
    change: Callable[[Plan], Plan], blame: Blame, said: str, plan: Plan, context: Context, tmp_path: Path
) -> None:
    found, sentence = oracle.word(change(plan), tmp_path, context)
    assert (found, said in sentence) == (blame, True), sentence
    result = isolate.read_result(tmp_path / "oracle") or {}
    assert (result["compiled"], len(result["ranks"])) == (False, 2)
    assert (tmp_path / "oracle" / "reference.json").exists()


def test_what_the_host_cannot_hold_is_not_tried(plan: Plan, context: Context, tmp_path: Path) -> None:
    small = dataclasses.replace(context, stack=dataclasses.replace(context.stack, host_memory_bytes=10**9))
    found, sentence = oracle.word(plan, tmp_path, small)
    assert (found, "memory does not hold it" in sentence) == (None, True)
    assert not (tmp_path / "oracle").exists()
