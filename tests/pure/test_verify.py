"""The verdict: every reason is reachable, noise is no fault, and no input makes it stumble."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun import verify
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Dtype, Plan, RankBytes
from doesitrun.verify import RULES, THRESHOLDS, verdict
from doesitrun.verify.fluency import fluency
from doesitrun.verify.ratio import leading_matches, position_ratio

STEPS, TOP, EOS = 8, 50, 2
SIGMA = 0.05
TEXT = "The old man walked down to the water and looked at the boats."

Json = dict[str, Any]


def plan(cores: int = 1, dtype: Dtype = Dtype.BFLOAT16, **changes: Any) -> Plan:
    base = Plan(
        model_id="local/toy",
        revision="a" * 64,
        source="/models/toy",
        task="text-generation",
        target="cpu",
        device="cpu",
        cores=cores,
        tp=cores,
        ep=1,
        dtype=dtype,
        new_tokens=STEPS,
        weights_bytes=1000,
        rank_bytes=RankBytes(sharded=1000 // cores),
        capacity_bytes=10**9,
        prompt="Once upon a time",
    )
    return dataclasses.replace(base, **changes)


def evidence(cores: int = 1, sigma_device: float = SIGMA, sigma_low: float = SIGMA, seed: int = 1) -> tuple[Json, Json]:
    """A device's result and the CPU's reference, apart by noise: exact logits, plus noise of each side."""
    chance = random.Random(seed)
    exact = [[20 - 0.3 * place + chance.gauss(0, 0.02) for place in range(TOP)] for _ in range(STEPS)]
    # The best token leads by more than the noise, so that rounding changes no token.
    for row in exact:
        row[0] += 3
    ids = [[100 * step + place for place in range(TOP)] for step in range(STEPS)]
    device, low = ([[logit + chance.gauss(0, sigma) for logit in row] for row in exact] for sigma in (sigma_device, sigma_low))
    tokens = [row[0] for row in ids]
    rank = {"peak_bytes": 2000, "weights_bytes": 1000 // cores, "graphs": 1}
    result = {
        "prompt_ids": [5, 6, 7],
        "tokens": tokens,
        "warm_tokens": list(tokens),
        "eos_ids": [EOS],
        "top_ids": ids,
        "top_logits": device,
        "text": TEXT,
        "compiled": True,
        "graphs": 1,
        "ranks": [{"rank": number, "tokens": list(tokens), **rank} for number in range(cores)],
        "missing_keys": [],
        "fallbacks": [],
    }
    reference = {
        "missing_keys": [],
        "unexpected_keys": [],
        "mismatched_keys": [],
        "passage_loss": 3.0,
        "passage_tokens": 120,
        "vocab_size": 49152,
        "fp32": exact,
        "low": low,
        "fp32_argmax": list(tokens),
        "low_argmax": list(tokens),
        "prompt_ids": [5, 6, 7],
    }
    return result, reference


JUDGE = {"nll": [1.2], "tokens": [14]}


# ---------------------------------------------------------------------------------- what passes
def test_one_core_rests_on_three_rungs():
    result, reference = evidence()
    seen = verdict(plan(), result, reference, None)
    assert seen.outcome.result is Result.PASS
    assert seen.rungs == ("reference", "executed", "numbers")
    assert (seen.cpu_match, seen.match_tokens, seen.passage_loss) == ("8/8", 8, 3.0)
    assert seen.notes == ()


def test_sharded_with_a_reference_rests_on_four_rungs():
    result, reference = evidence(cores=2)
    seen = verdict(plan(2), result, reference, JUDGE)
    assert seen.outcome.result is Result.PASS
    assert seen.rungs == ("reference", "executed", "numbers", "fluent")
    assert seen.english == "fluent (1.20 nats)"


def test_sharded_without_a_reference_rests_on_execution_and_fluency_and_says_so():
    result, _ = evidence(cores=2)
    seen = verdict(plan(2), result, None, JUDGE)
    assert seen.outcome.result is Result.PASS
    assert seen.rungs == ("executed", "fluent")
    assert seen.logit_ratio is None
    assert "no CPU reference" in seen.notes[0]


def test_a_text_that_is_not_fluent_is_no_fault_of_the_target_where_the_numbers_are_right():
    result, reference = evidence(cores=2)
    seen = verdict(plan(2), result, reference, {"nll": [9.0], "tokens": [14]})
    assert seen.outcome.result is Result.PASS
    assert seen.rungs == ("reference", "executed", "numbers")
    assert "not fluent" in seen.english
    assert len(seen.notes) == 1


@pytest.mark.parametrize(("held", "noted"), [(475, False), (474, True)])
def test_a_rank_that_holds_less_than_planned_is_told_and_is_no_fault(held: int, noted: bool):
    result, reference = evidence(cores=2)
    for rank in result["ranks"]:
        rank["weights_bytes"] = held
    seen = verdict(plan(2), result, reference, JUDGE)
    assert seen.outcome.result is Result.PASS
    assert any("of the weights that were planned" in note for note in seen.notes) == noted


def test_other_tokens_than_the_cpus_are_told_and_are_no_fault():
    result, reference = evidence()
    reference["low_argmax"] = [*result["tokens"][:3], 1, *result["tokens"][4:]]
    seen = verdict(plan(), result, reference, None)
    assert seen.outcome.result is Result.PASS
    assert seen.cpu_match == "3/8"


def test_tensors_that_the_model_does_not_use_are_told_and_are_no_fault():
    result, reference = evidence()
    reference["unexpected_keys"] = [f"mtp.{number}" for number in range(7)]
    seen = verdict(plan(), result, reference, None)
    assert seen.outcome.result is Result.PASS
    assert seen.notes == ("tensors of the checkpoint that the model does not use: mtp.0, mtp.1, mtp.2, mtp.3, mtp.4 and 2 more",)


# ---------------------------------------------------------------------------------- the ratio
@given(st.integers(0, 10**6), st.floats(0.02, 2.0))
def test_noise_of_the_dtypes_own_size_gives_a_ratio_near_one(seed: int, sigma: float):
    result, reference = evidence(sigma_device=sigma, sigma_low=sigma, seed=seed)
    steps = zip(result["top_logits"], reference["fp32"], reference["low"], strict=True)
    ratios = [position_ratio(device, wide, [narrow], 0.0) for device, wide, narrow in steps]
    assert 0.75 < sum(ratios) / len(ratios) < 1.35


@given(st.integers(0, 10**6), st.floats(2.5, 50))
def test_noise_twice_the_limit_fails(seed: int, factor: float):
    result, reference = evidence(sigma_device=SIGMA * factor, seed=seed)
    result["tokens"] = result["warm_tokens"] = greedy_of(result)
    result["ranks"][0]["tokens"] = result["tokens"]
    assert verdict(plan(), result, reference, None).outcome.reason is Reason.WRONG_NUMBERS


def greedy_of(result: Json) -> list[int]:
    return [max(zip(logits, ids, strict=True))[1] for logits, ids in zip(result["top_logits"], result["top_ids"], strict=True)]


@given(st.integers(0, 10**6), st.lists(st.floats(-1000, 1000), min_size=STEPS, max_size=STEPS))
def test_a_common_shift_of_all_logits_is_ignored(seed: int, shifts: list[float]):
    result, reference = evidence(seed=seed)
    before = verdict(plan(), result, reference, None).logit_ratio
    result["top_logits"] = [[x + shift for x in row] for row, shift in zip(result["top_logits"], shifts, strict=True)]
    assert verdict(plan(), result, reference, None).logit_ratio == pytest.approx(before, rel=1e-6)


@given(st.floats(0.001, 1000), st.integers(0, 10**6))
def test_the_ratio_has_no_unit(scale: float, seed: int):
    result, reference = evidence(seed=seed)
    rows = [result["top_logits"][0], reference["fp32"][0], reference["low"][0]]
    device, wide, low = ([x * scale for x in row] for row in rows)
    assert position_ratio(device, wide, [low], 2**-8) == pytest.approx(position_ratio(rows[0], rows[1], [rows[2]], 2**-8))


def test_an_exact_yardstick_divides_nobody_by_zero():
    result, reference = evidence()
    reference["low"] = reference["fp32"]
    assert math.isfinite(verdict(plan(), result, reference, None).logit_ratio)
    flat = [0.0] * TOP
    assert position_ratio(flat, flat, [flat], 2**-8) == 0
    assert position_ratio([1.0, *flat[1:]], flat, [flat], 2**-8) == math.inf


def test_float32_is_held_to_a_part_of_bfloat16s_rounding():
    result, reference = evidence(sigma_device=SIGMA / 100)
    assert verdict(plan(dtype=Dtype.FLOAT32), result, reference, None).outcome.result is Result.PASS
    result, reference = evidence()
    assert verdict(plan(dtype=Dtype.FLOAT32), result, reference, None).outcome.reason is Reason.WRONG_NUMBERS


def test_float32_tokens_are_compared_with_those_of_float32():
    result, reference = evidence(sigma_device=0)
    reference["low_argmax"] = [0] * STEPS
    assert verdict(plan(dtype=Dtype.FLOAT32), result, reference, None).cpu_match == "8/8"


@given(st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_matches_are_counted_up_to_the_first_difference(left: list[int], right: list[int]):
    size = min(len(left), len(right))
    count = leading_matches(left[:size], right[:size])
    assert left[:count] == right[:count]
    assert count == size or left[count] != right[count]


# ---------------------------------------------------------------------------------- mixtures of experts
PASSAGES, EXPERTS = 8, 4


def mixture(seed: int = 1) -> tuple[Json, Json]:
    """A right run of a model with one layer of experts, of which position i visits expert i mod 3: nobody visits the last."""
    texts = [evidence(seed=seed + number) for number in range(PASSAGES + 1)]
    chance = random.Random(seed)
    expected = [
        {
            "fp32": reference["fp32"],
            "low": reference["low"],
            "shaken": [[[logit + chance.gauss(0, SIGMA) for logit in row] for row in reference["fp32"]]],
            "visits": [[[step % 3] for step in range(STEPS)]],
        }
        for _, reference in texts
    ]
    names = ("prompt_ids", "tokens", "top_ids", "top_logits")
    result = {**texts[0][0], "passages": [{name: run[name] for name in names} for run, _ in texts[1:]]}
    return result, {**texts[0][1], **expected[0], "passages": expected[1:], "experts": [EXPERTS]}


MOE = {"is_moe": True}


def spoil(result: Json, reference: Json, positions: Callable[[int, int], bool], factor: float) -> None:
    """The device's deviations at those positions (text, step), times a factor."""
    for text, (run, wide) in enumerate(zip([result, *result["passages"]], [reference, *reference["passages"]], strict=True)):
        for step in range(STEPS):
            if positions(text, step):
                rows = zip(run["top_logits"][step], wide["fp32"][step], strict=True)
                run["top_logits"][step] = [exact + factor * (x - exact) for x, exact in rows]


@given(st.integers(0, 10**6))
def test_a_right_mixture_passes_and_says_which_experts_nobody_visits(seed: int):
    result, reference = mixture(seed)
    seen = verdict(plan(**MOE), result, reference, None)
    assert seen.outcome.result is Result.PASS
    assert seen.notes == ("fewer than 4 of 72 positions visit 1 of 4 experts: a fault of those goes unseen",)
    assert seen.expert_ratio < THRESHOLDS.expert


def test_an_expert_that_few_visit_is_told_from_noise_when_all_of_its_visits_are_off():
    result, reference = mixture()
    for number, each in enumerate(reference["passages"]):
        each["visits"][0][7] = [3] if number < 5 else []
    spoil(result, reference, lambda text, step: 0 < text < 6 and step == 7, 8)
    seen = verdict(plan(**MOE), result, reference, None)
    assert seen.logit_ratio < THRESHOLDS.ratio
    assert seen.outcome.reason is Reason.WRONG_NUMBERS
    assert "over the 5 positions that visit expert 3 of the 1st layer" in seen.outcome.detail


def test_single_wild_positions_of_a_mixture_are_rounding_and_no_fault():
    result, reference = mixture()
    spoil(result, reference, lambda text, step: text % 3 == 1 and step == 4, 40)
    assert verdict(plan(**MOE), result, reference, None).outcome.result is Result.PASS
    for each in (reference, *reference["passages"]):
        each.update(visits=[], shaken=[])
    assert verdict(plan(), result, {**reference, "experts": []}, None).outcome.reason is Reason.WRONG_NUMBERS


def test_an_evidence_without_passages_is_judged_as_far_as_it_goes():
    result, reference = mixture()
    del result["passages"]
    seen = verdict(plan(**MOE), result, reference, None)
    assert seen.outcome.result is Result.PASS
    assert "of 8 positions" in seen.notes[0]


def test_the_passages_go_to_the_reference_without_their_logits():
    result, _ = mixture()
    asked = verify.reference_request(plan(**MOE), result)["passages"]
    assert [set(each) for each in asked] == [{"prompt_ids", "tokens", "top_ids"}] * PASSAGES


@pytest.mark.parametrize("damage", [[], [{}], "x", [{"prompt_ids": []}] * PASSAGES])
def test_a_damaged_passage_is_a_sentence(damage: Any):
    result, reference = mixture()
    told = verdict(plan(**MOE), result, {**reference, "passages": damage}, None).outcome
    assert told.reason is Reason.REFERENCE_FAILED
    told = verdict(plan(**MOE), {**result, "passages": damage or [{}]}, reference, None).outcome
    assert told.reason is Reason.NO_RESULT


def test_a_device_that_never_held_the_planned_weights_ran_elsewhere():
    """Also where the rank believes that it holds nothing at all: what was planned is what counts."""
    result, reference = evidence()
    result["ranks"][0].update(peak_bytes=400, weights_bytes=300)
    seen = verdict(plan(), result, reference, None)
    assert seen.outcome.reason is Reason.EAGER_FALLBACK
    result["ranks"][0].update(peak_bytes=0)
    assert verdict(plan(), result, reference, None).outcome.result is Result.PASS, "a target that cannot tell"


# ---------------------------------------------------------------------------------- every reason
def change(path: str, value: Any) -> Callable[[Json, Json, Json], None]:
    """A fault: the entry at `path` ("result.ranks.0.tokens") becomes `value`."""

    def apply(result: Json, reference: Json, judge: Json) -> None:
        root, *keys, last = path.split(".")
        place: Any = {"result": result, "reference": reference, "judge": judge}[root]
        for key in keys:
            place = place[int(key) if isinstance(place, list) else key]
        place[int(last) if isinstance(place, list) else last] = value

    return apply


FAULTS = [
    (change("result.tokens", []), Reason.NO_RESULT, "tokens has 0 entries instead of 8"),
    (change("result.tokens.3", -1), Reason.NO_RESULT, "tokens is negative"),
    (change("result.top_logits.3", []), Reason.NO_RESULT, "the logits of step 3 do not fit their ids"),
    (change("result.text", None), Reason.NO_RESULT, "text is missing"),
    (change("result.ranks", []), Reason.NO_RESULT, "ranks has 0 entries instead of 2"),
    (change("reference.low", []), Reason.REFERENCE_FAILED, "low has 0 entries"),
    (change("reference.prompt_ids", [5, 6]), Reason.REFERENCE_FAILED, "3 ids on the device, 2 on the CPU"),
    (change("reference.low.2.7", math.inf), Reason.REFERENCE_FAILED, "there is no yardstick"),
    (change("reference.fp32.2.7", math.nan), Reason.REFERENCE_BROKEN, "NaN or infinity in float32"),
    (change("reference.passage_loss", 10.9), Reason.REFERENCE_BROKEN, "10.90 nats per token"),
    (change("reference.passage_loss", math.nan), Reason.REFERENCE_BROKEN, "nan nats"),
    (change("reference.passage_loss", None), Reason.REFERENCE_BROKEN, "could not be computed"),
    (change("reference.missing_keys", ["lm_head.weight"]), Reason.MISSING_WEIGHTS, "lm_head.weight"),
    (change("result.missing_keys", ["b", "a"]), Reason.MISSING_WEIGHTS, "a, b"),
    (change("reference.mismatched_keys", ["lm_head.weight"]), Reason.BROKEN_CHECKPOINT, "lm_head.weight"),
    (change("judge.nll", []), Reason.JUDGE_FAILED, "nll has 0 entries"),
    (change("result.graphs", 0), Reason.NOT_COMPILED, "No compiled graph ran"),
    (change("result.compiled", False), Reason.NOT_COMPILED, "No compiled graph ran"),
    (change("result.ranks.1.graphs", 0), Reason.NOT_COMPILED, "on rank 1"),
    (change("result.fallbacks", ["aten::nonzero"]), Reason.EAGER_FALLBACK, "aten::nonzero"),
    (change("result.ranks.1.peak_bytes", 100), Reason.EAGER_FALLBACK, "Rank 1 held at most 1e-07 GB"),
    (change("result.ranks.1.weights_bytes", 1000), Reason.REPLICATED, "Rank 1 holds 1e-06 GB of weights where the plan has 5e-07 GB"),
    (change("result.top_logits.4.0", math.nan), Reason.NAN_LOGITS, "token 5 of 8"),
    (change("result.top_logits.4.0", math.inf), Reason.NAN_LOGITS, "token 5 of 8"),
    (change("result.warm_tokens.6", 3), Reason.UNSTABLE_TOKENS, "at 7 of 8"),
    (change("result.ranks.1.tokens", [1] * STEPS), Reason.RANKS_DISAGREE, "Rank 1"),
    (change("result.top_logits.4.0", 0.0), Reason.WRONG_NUMBERS, "Token 5 of 8 is not the best one of its own logits"),
    (change("result.passages", [{}]), Reason.NO_RESULT, "prompt_ids is missing"),
    (change("result.top_logits.4.0", 50.0), Reason.WRONG_NUMBERS, "(limit 1.5); 8/8 tokens equal the CPU's."),
]


@pytest.mark.parametrize(("fault", "reason", "said"), FAULTS)
def test_each_fault_has_its_reason_and_a_sentence_with_the_figures(fault: Callable[..., None], reason: Reason, said: str):
    result, reference = evidence(cores=2)
    judge = {"nll": [1.2], "tokens": [14]}
    fault(result, reference, judge)
    seen = verdict(plan(2), result, reference, judge)
    assert seen.outcome.reason is reason
    assert said in seen.outcome.detail
    assert seen.outcome.detail.endswith(".")


def test_a_sharded_text_without_reference_has_to_be_fluent():
    result, _ = evidence(cores=2)
    seen = verdict(plan(2), result, None, {"nll": [9.0], "tokens": [14]})
    assert seen.outcome.reason is Reason.NOT_FLUENT
    assert seen.outcome.detail == f"The text is not fluent: 9.00 nats (limit {THRESHOLDS.nll})."
    assert seen.rungs == ("executed",)


def test_without_a_reference_one_core_is_inconclusive():
    result, _ = evidence()
    seen = verdict(plan(), result, None, JUDGE)
    assert seen.outcome.reason is Reason.REFERENCE_FAILED
    assert seen.outcome.result is Result.INCONCLUSIVE


def test_without_a_reference_and_a_judge_nothing_is_known():
    result, _ = evidence(cores=2)
    assert verdict(plan(2), result, None, None).outcome.reason is Reason.JUDGE_FAILED


def test_a_broken_upstream_model_is_never_counted_against_the_target():
    result, reference = evidence(sigma_device=5)
    result["top_logits"][0][0] = math.nan
    reference["passage_loss"] = 10.5
    seen = verdict(plan(), result, reference, None)
    assert seen.outcome.reason is Reason.REFERENCE_BROKEN
    assert not seen.outcome.reason.is_models_fault
    assert seen.outcome.result is Result.EXCLUDED


def test_a_failed_run_still_shows_the_rungs_that_it_passed_and_its_figures():
    result, reference = evidence()
    result["top_logits"] = [[-x for x in reversed(row)] for row in reference["fp32"]]
    result["tokens"] = result["warm_tokens"] = greedy_of(result)
    result["ranks"][0]["tokens"] = result["tokens"]
    seen = verdict(plan(), result, reference, None)
    assert seen.rungs == ("reference", "executed")
    assert seen.logit_ratio > 10
    assert seen.cpu_match is not None


def test_ties_may_go_either_way():
    result, reference = evidence(sigma_device=0)
    result["top_logits"][2][0] = result["top_logits"][2][1]
    result["tokens"][2] = result["top_ids"][2][1]
    seen = verdict(plan(), result, reference, None)
    assert "not the best" not in seen.outcome.detail


def test_the_end_of_the_text_may_be_the_best_logit_as_it_was_not_allowed():
    result, reference = evidence()
    result["top_ids"][1][1], result["top_logits"][1][1] = EOS, result["top_logits"][1][0] + 0.01
    assert "not the best" not in verdict(plan(), result, reference, None).outcome.detail


def test_every_rule_has_a_rung_and_says_what_holds():
    assert {rung for rung, _ in RULES} == {"reference", "executed", "numbers", "fluent"}
    assert all(rule.__doc__ for _, rule in RULES)


# ---------------------------------------------------------------------------------- anything at all
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), st.sampled_from([1, 2]))
def test_any_json_object_gives_a_verdict_and_never_a_pass(values: Json, cores: int):
    seen = verdict(plan(cores), values, values, values)
    assert seen.outcome.reason is Reason.NO_RESULT


@given(st.data())
def test_any_entry_may_be_anything(data: st.DataObject):
    result, reference = evidence(cores=2)
    judge: Json = {"nll": [1.2], "tokens": [14]}
    root = data.draw(st.sampled_from([result, reference, judge]))
    place, key = data.draw(st.sampled_from(list(places(root))))
    place[key] = data.draw(JSON | st.just(10**400) | st.just(1e308))
    seen = verdict(plan(2), result, reference, judge)
    assert isinstance(seen.outcome.detail, str)


def places(root: Any):
    """Every (container, key) of a JSON value, of long lists the first two."""
    keys = list(root) if isinstance(root, dict) else range(min(2, len(root)))
    for key in keys:
        yield root, key
        if isinstance(root[key], dict | list):
            yield from places(root[key])


# ---------------------------------------------------------------------------------- fluency
@pytest.mark.parametrize(
    "text",
    [
        "had a daughter named Elara. She was a kind and gentle soul with a heart full of love and a mind full of wisdom.",
        "The café was closed, so we walked along the Rhône until the rain stopped; nobody minded.",
        "It was late.",
    ],
)
def test_plain_english_is_fluent(text: str):
    assert fluency(text, 2.314).english == "fluent (2.31 nats)"


@pytest.mark.parametrize(
    ("text", "nll", "said"),
    [
        ("", None, "no words"),
        (" \n\t... !!! ", 1.0, "no words"),
        ("the the the the the the the the", 0.2, "repeats itself"),
        ("and so on and so on and so on and so on and so on and so on", 0.3, "repeats itself"),
        ("море было спокойно, и рыбаки вернулись домой", 1.0, "not in Latin letters"),
        ("the 海は静かで、漁師たちは家に帰った boat", 1.0, "not in Latin letters"),
        ("table seven of green because quickly it the orange", 9.0, f"9.00 nats (limit {THRESHOLDS.nll})"),
        ("a text whose likelihood is not a number", math.nan, "nan nats"),
    ],
)
def test_what_is_not_english_is_told_apart(text: str, nll: float | None, said: str):
    word = fluency(text, nll)
    assert not word.fluent
    assert word.english.startswith(f"not fluent: {said}")


# ---------------------------------------------------------------------------------- requests
def test_requests_carry_what_the_scripts_need():
    result, _ = evidence()
    asked = verify.reference_request(plan(), result)
    assert asked["model"] == "/models/toy"
    assert asked["revision"] is None
    assert (asked["auto_class"], asked["processor_class"]) == ("AutoModelForCausalLM", "AutoTokenizer")
    assert asked["tokens"] == result["tokens"]
    hub = plan(model_id="a/b", source="a/b")
    assert verify.reference_request(hub, result)["revision"] == "a" * 64
    assert verify.judge_request(plan(), result, "judge/model")["texts"] == [{"prompt": "Once upon a time", "text": TEXT}]


def test_answers_are_kept_by_content():
    result, _ = evidence()
    versions = {"torch": "2.13.0", "transformers": "5.24.0"}

    def key(of: Plan, tokens: list[int] | None = None, versions: dict[str, str] = versions) -> str:
        return verify.reference_key(of, verify.reference_request(of, result | ({"tokens": tokens} if tokens else {})), versions)

    same = key(plan())
    assert same == key(plan(source="/moved/toy"))
    assert same == key(plan(2))
    others = [key(plan(revision="b" * 64)), key(plan(), [1] * STEPS), key(plan(dtype=Dtype.FLOAT32)), key(plan(), None, {"torch": "2.14"})]
    assert len({same, *others}) == 5
    asked = verify.judge_request(plan(), result, "judge/model")
    assert verify.judge_key(asked, versions) != verify.judge_key(asked | {"revision": "c"}, versions)


def test_what_cannot_be_used_is_asked_about_nowhere():
    result, _ = evidence()
    assert verify.is_usable(plan(), result)
    assert not verify.is_usable(plan(), result | {"tokens": []})
    assert not verify.is_usable(plan(), {})


def test_a_float32_copy_and_room_are_reckoned_for_the_reference():
    assert verify.reference_memory(plan(weights_bytes=2 * 10**9)) == 7_000_000_000
    assert verify.reference_memory(plan(weights_bytes=2 * 10**9, dtype=Dtype.FLOAT32)) == 4_500_000_000
