"""The word on probes: each fault has its probe, what could not be tried is no rung, and odd evidence is no traceback."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun import verify
from doesitrun.outcomes import Reason, Result
from doesitrun.script import SECOND_PROMPT, render
from doesitrun.tasks import TASKS
from doesitrun.verify import THRESHOLDS
from doesitrun.verify.probes import NAMES
from tests.pure.golden_plans import PLANS, VERSIONS
from tests.pure.test_verify import JSON, JUDGE, SIGMA, TEXT, evidence, places, plan

Json = dict[str, Any]
COUNTS = {"long_text": 1, "second_prompt": 2, "padded_batch": 2, "long_position": 1}
THOROUGH = plan(longest=4096)
TOKENS = "prompt_ids", "tokens", "top_ids", "top_logits"


def probed(sigma: float = SIGMA, cores: int = 1) -> tuple[Json, Json]:
    """A right run with right probes: every sequence is a run of its own, with its own noise."""
    result, reference = evidence(cores=cores)
    probes, answers = [], []
    for number, (name, count) in enumerate(COUNTS.items()):
        pairs = [evidence(seed=10 * number + each, sigma_device=sigma) for each in range(count)]
        sequences = [{**{key: device[key] for key in TOKENS}, "text": TEXT} for device, _ in pairs]
        probes.append({"name": name, "sequences": sequences, "seconds": 1.0, "graphs": 0, "wanted": 11})
        answers += [{key: cpu[key] for key in ("fp32", "low", "fp32_argmax", "low_argmax")} for _, cpu in pairs]
    return result | {"probes": probes}, reference | {"probes": answers}


def probe_of(result: Json, name: str) -> Json:
    return next(probe for probe in result["probes"] if probe["name"] == name)


def test_right_probes_are_rungs_and_their_figures_are_told():
    seen = verify.verdict(THOROUGH, *probed(), None)
    assert seen.outcome.result is Result.PASS
    assert seen.rungs == ("reference", "executed", "numbers", *NAMES)
    assert [said.partition(" R ")[0] for said in seen.probes] == list(NAMES)
    assert seen.probes[2].endswith("at 11 tokens")


def test_a_plan_without_probes_looks_at_none():
    result, reference = evidence()
    assert verify.verdict(plan(), result | {"probes": "rubbish"}, reference, None).probes == ()


@pytest.mark.parametrize("name", NAMES)
def test_another_prompts_numbers_fail_their_probe_alone(name: str):
    result, reference = probed()
    for sequence in probe_of(result, name)["sequences"][-1:]:
        sequence["top_logits"] = [[logit * (1 + 0.2 * (place % 3)) for place, logit in enumerate(row)] for row in sequence["top_logits"]]
        sequence["tokens"] = [
            max(zip(row, ids, strict=True))[1] for row, ids in zip(sequence["top_logits"], sequence["top_ids"], strict=True)
        ]
    seen = verify.verdict(THOROUGH, result, reference, None)
    assert (seen.outcome.reason, seen.outcome.result) == (Reason.WRONG_NUMBERS, Result.FAIL)
    assert f"In the probe {name}" in seen.outcome.detail
    assert set(NAMES) - set(seen.rungs) == {name}
    assert "numbers" in seen.rungs


def test_a_probe_may_wander_further_than_the_run():
    """At few positions of a mixture of experts R is wild; what a probe looks for is far above that."""
    result, reference = probed(sigma=SIGMA * THRESHOLDS.ratio * 1.2)
    assert verify.verdict(THOROUGH, result, reference, None).outcome.result is Result.PASS


ODD: list[tuple[Callable[[Json], None], Reason, str]] = [
    (lambda s: s["top_logits"][3].__setitem__(0, math.nan), Reason.NAN_LOGITS, "token 4 of 8 hold NaN"),
    (lambda s: s["top_logits"][3].__setitem__(0, -9.0), Reason.WRONG_NUMBERS, "token 4 of 8 is not the best one"),
]


@pytest.mark.parametrize(("fault", "reason", "said"), ODD)
def test_what_is_odd_on_its_face_is_found_without_the_cpu(fault: Callable[[Json], None], reason: Reason, said: str):
    result, reference = probed()
    fault(probe_of(result, "padded_batch")["sequences"][1])
    seen = verify.verdict(THOROUGH, result, reference, None)
    assert seen.outcome.reason is reason
    assert f"In the probe padded_batch, sequence 2 of 2, the logits of {said}" in seen.outcome.detail or said in seen.outcome.detail


def cut(result: Json, name: str, error: str) -> Json:
    """The result of a run whose probe `name` ended with an error: those after it were left out."""
    names = list(COUNTS)
    before = [probe for probe in result["probes"] if names.index(probe["name"]) < names.index(name)]
    return result | {"probes": [*before, {"name": name, "error": error}]}


def answers_of(reference: Json, result: Json) -> Json:
    count = sum(len(probe.get("sequences", ())) for probe in result["probes"])
    return reference | {"probes": reference["probes"][:count]}


def test_an_error_in_a_probe_is_told_with_its_reason_and_the_rest_is_left_out():
    result, reference = probed()
    error = 'Traceback (most recent call last):\n  File "run.py", line 9, in run\nValueError: no attention mask'
    result = cut(result, "second_prompt", error)
    seen = verify.verdict(THOROUGH, result, answers_of(reference, result), None)
    assert (seen.outcome.reason, seen.outcome.detail) == (Reason.PYTHON_ERROR, "In the probe second_prompt: ValueError: no attention mask")
    assert [name for name in NAMES if name in seen.rungs] == ["long_text"]
    assert "padded_batch was left out" in seen.probes


def test_a_long_position_that_the_memory_does_not_hold_is_no_fault():
    result, reference = probed()
    error = 'Traceback (most recent call last):\n  File "run.py", line 9, in run\ntorch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB'
    result = cut(result, "long_position", error)
    cuda = plan(longest=4096, target="cuda", device="h200")
    seen = verify.verdict(cuda, result, answers_of(reference, result), None)
    assert seen.outcome.result is Result.PASS
    assert "long_position" not in seen.rungs
    assert "the memory did not hold the probe long_position" in seen.notes


def test_a_long_position_that_came_out_shorter_is_no_rung():
    result, reference = probed()
    probe_of(result, "long_position")["wanted"] = 4192
    seen = verify.verdict(THOROUGH, result, reference, None)
    assert seen.outcome.result is Result.PASS
    assert "long_position" not in seen.rungs
    assert "the probe long_position reached 11 of 4192 tokens" in seen.notes


def test_a_long_text_that_repeats_itself_is_the_models_own_way_where_the_numbers_are_right():
    result, reference = probed()
    probe_of(result, "long_text")["sequences"][0]["text"] = "and the sea said no more of it " * 30
    seen = verify.verdict(THOROUGH, result, reference, None)
    assert seen.outcome.result is Result.PASS
    assert any("repeats itself" in note for note in seen.notes)


# ---------------------------------------------------------------------------------- without a reference
SHARDED = plan(2, longest=4096)
WORDS = {"nll": [1.2] * 6, "tokens": [14] * 6}


def test_without_a_reference_the_texts_of_the_probes_have_to_be_fluent():
    result, _ = probed(cores=2)
    seen = verify.verdict(SHARDED, result, None, WORDS)
    assert seen.outcome.result is Result.PASS
    assert [name for name in NAMES if name in seen.rungs] == ["second_prompt", "padded_batch", "long_text"]
    gibberish = WORDS | {"nll": [1.2, 1.2, 1.2, 1.2, 9.0, 1.2]}
    seen = verify.verdict(SHARDED, result, None, gibberish)
    assert (seen.outcome.reason, "padded_batch" in seen.rungs) == (Reason.NOT_FLUENT, False)
    assert "In the probe padded_batch, sequence 1 of 2, the text is not fluent: 9.00 nats" in seen.outcome.detail


def test_without_a_reference_a_text_that_is_stuck_fails():
    result, _ = probed(cores=2)
    probe_of(result, "long_text")["sequences"][0]["text"] = "the old man of the sea went home and " * 30
    assert verify.verdict(SHARDED, result, None, WORDS).outcome.reason is Reason.NOT_FLUENT


def test_the_judge_is_asked_about_every_text_with_its_own_prompt():
    result, _ = probed(cores=2)
    asked = verify.judge_request(SHARDED, result, "a/judge")["texts"]
    first, second = SHARDED.prompt, SECOND_PROMPT
    assert [each["prompt"] for each in asked] == [first, first, second, first, first, second]
    assert verify.verdict(SHARDED, result, None, JUDGE).outcome.reason is Reason.JUDGE_FAILED


# ---------------------------------------------------------------------------------- odd evidence
def test_probes_that_are_missing_are_no_result():
    result, reference = probed()
    del result["probes"][1]
    seen = verify.verdict(THOROUGH, result, reference, None)
    assert (seen.outcome.reason, seen.outcome.result) == (Reason.NO_RESULT, Result.INCONCLUSIVE)
    assert not verify.is_usable(THOROUGH, result)


@given(st.data())
def test_any_entry_of_a_probe_may_be_anything(data: st.DataObject):
    result, reference = probed()
    root: Any = data.draw(st.sampled_from([result["probes"], reference["probes"]]))
    place, key = data.draw(st.sampled_from(list(places(root))))
    place[key] = data.draw(JSON | st.just(10**400) | st.just(1e308))
    assert isinstance(verify.verdict(THOROUGH, result, reference, None).outcome.detail, str)


def test_the_reference_is_asked_about_every_sequence():
    result, _ = probed()
    asked = verify.reference_request(THOROUGH, result)["probes"]
    assert [each["tokens"] for each in asked] == [s["tokens"] for probe in result["probes"] for s in probe["sequences"]]
    assert verify.reference_request(plan(), copy.deepcopy(result) | {"probes": []})["probes"] == []


# ---------------------------------------------------------------------------------- the script
@pytest.mark.parametrize("name", PLANS)
def test_probes_are_in_the_script_only_when_asked_for(name: str):
    import dataclasses

    known = PLANS[name]
    asked = render(dataclasses.replace(known, longest=2048), TASKS[known.task], VERSIONS)
    compile(asked, "run.py", "exec")
    assert asked.count("run_probes(") == 2
    assert "LONGEST = 2048" in asked
    plain = render(known, TASKS[known.task], VERSIONS)
    assert "probe" not in plain
    assert set(plain.splitlines()) <= set(asked.splitlines())


def test_an_eager_script_compiles_nothing():
    known = PLANS["cpu_3_cores_tp"]
    text = render(known, TASKS[known.task], VERSIONS, eager=True)
    assert "disable_compile=True,\n" in text
    assert "twice: nothing is compiled." in text
