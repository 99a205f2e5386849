"""run.py's text: what is checked in, and what hostile input must not do to it."""

from __future__ import annotations

import ast
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.records import Plan
from doesitrun.script import literal, render
from doesitrun.tasks import TASKS
from tests.pure.golden_plans import FOLDER, PLANS, VERSIONS, golden

hostile = st.text() | st.sampled_from(
    ['"""', "'''", "\n# ", "${model}", "$prompt", "\\", '"; import os; "', "\x00", "\ud800", "\r\n", "\u202e"]
)


def assigned(text: str) -> dict[str, object]:
    """The literals that the module assigns at its top level."""
    body = ast.parse(text).body
    literals = [node for node in body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)]
    return {node.targets[0].id: node.value.value for node in literals if isinstance(node.targets[0], ast.Name)}


def structure(text: str) -> str:
    """The module's syntax tree with every constant blanked."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = 0
    return ast.dump(tree)


@pytest.mark.parametrize("name", PLANS)
def test_script_equals_the_one_checked_in(name: str) -> None:
    assert (FOLDER / f"{name}.py").read_text(encoding="utf-8") == golden(name), "run `make golden` and read the difference"


@pytest.mark.parametrize("name", PLANS)
def test_script_stands_alone(name: str) -> None:
    text = golden(name)
    assert "doesitrun" not in text
    assert len(text.splitlines()) < (280 if PLANS[name].is_moe else 240)


@given(model=hostile, revision=hostile, prompt=hostile)
def test_hostile_text_stays_a_literal(model: str, revision: str, prompt: str) -> None:
    plan = dataclasses.replace(PLANS["cpu_1_core"], model_id=model, source=model, revision=revision, prompt=prompt)
    text = render(plan, TASKS[plan.task], VERSIONS)
    constants = assigned(text)
    assert (constants["MODEL"], constants["REVISION"], constants["PROMPT"]) == (model, revision, prompt)
    assert text.isascii()
    assert structure(text) == structure(golden("cpu_1_core"))


@given(st.text())
def test_literal_reads_back(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text


@given(st.dictionaries(st.sampled_from(["torch", "transformers", "accelerate"]), st.text()))
def test_hostile_versions_never_leave_the_header(versions: dict[str, str]) -> None:
    text = render(PLANS["cpu_1_core"], TASKS["text-generation"], versions)
    assert structure(text) == structure(golden("cpu_1_core"))
    header = text[: text.index('# ///\n"')]
    assert all(line.startswith("# ") for line in header.splitlines())


def test_versions_are_pinned_without_their_local_part() -> None:
    assert '#     "torch==2.13.0",\n' in golden("cpu_1_core")


def test_a_local_folder_has_no_revision() -> None:
    plan: Plan = dataclasses.replace(PLANS["cpu_1_core"], model_id="local/mine", source="/models/mine")
    assert assigned(render(plan, TASKS[plan.task], VERSIONS))["REVISION"] is None


def test_remote_code_is_asked_for_only_when_the_plan_says_so() -> None:
    assert "trust_remote_code" not in golden("cpu_1_core")
    plan = dataclasses.replace(PLANS["cpu_1_core"], trust_remote_code=True)
    assert render(plan, TASKS[plan.task], VERSIONS).count("trust_remote_code=True") == 2


def test_attention_override_enters_as_a_literal() -> None:
    rules = {"model.layers.*.self_attn.q_proj": "colwise_gather_output"}
    plan = dataclasses.replace(PLANS["cpu_3_cores_tp"], tp_override=rules)
    text = render(plan, TASKS[plan.task], VERSIONS)
    assert 'TP_PLAN = {"model.layers.*.self_attn.q_proj": "colwise_gather_output"}' in text
    assert "DistributedConfig(tp_size=3, tp_plan=TP_PLAN)" in text
