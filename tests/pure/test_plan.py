"""What the planner promises: the fewest cores, bytes that add up, and a reason with numbers where there is no plan."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.errors import UsageError
from doesitrun.outcomes import Reason
from doesitrun.plan.explanation import explanation, plan_line
from doesitrun.plan.outlines import PROBLEMS, Attention, Outline, Problem
from doesitrun.plan.planner import Fit, PlanOptions, capacity, fits, make_plan
from doesitrun.records import Device, Dtype, Plan, RankBytes, Refusal
from doesitrun.targets import DEVICES
from doesitrun.tasks import TASKS
from tests.pure.outline_cases import ATTENTION, DEVICE, TP, checkpoint, experts, outline

TEXT = TASKS["text-generation"]


def planned(model: Outline | Problem, device: Device = DEVICE, **options: Any) -> Plan | Refusal:
    return make_plan(checkpoint(), model, device, TEXT, PlanOptions(**options))


def plan(model: Outline, device: Device = DEVICE, **options: Any) -> Plan:
    result = planned(model, device, **options)
    assert isinstance(result, Plan), result
    return result


def refusal(model: Outline | Problem, device: Device = DEVICE, **options: Any) -> Refusal:
    result = planned(model, device, **options)
    assert isinstance(result, Refusal), result
    return result


def tried(model: Outline, device: Device = DEVICE, **options: Any) -> dict[int, Fit]:
    return {fit.cores: fit for fit in fits(checkpoint(), model, device, TEXT, PlanOptions(**options))}


def test_a_small_model_gets_one_core_and_no_parallelism() -> None:
    made = plan(outline())
    assert (made.cores, made.tp, made.ep, made.tp_override, made.notes) == (1, 1, 1, None, ())


def test_the_fewest_cores_that_hold_it_are_taken() -> None:
    made = plan(outline(vocab=40_000))  # 10 MB of embedding and head on cores that offer 5
    assert (made.cores, made.tp, made.ep) == (4, 4, 1)
    assert not tried(outline(vocab=40_000))[2].holds


def test_an_untied_head_is_counted() -> None:
    untied = outline()
    tied = dataclasses.replace(untied, parameters=untied.parameters[:-1], tied=True)
    assert plan(untied).weights_bytes - plan(tied).weights_bytes == 1000 * 64 * 2


def test_what_is_not_cut_is_on_every_core() -> None:
    fit = tried(outline())[4]
    assert fit.rank_bytes.replicated == 4 * 64 * 2  # the norms
    assert fit.rank_bytes.sharded == (plan(outline()).weights_bytes - fit.rank_bytes.replicated) // 4


def test_all_experts_are_in_memory_not_only_the_active_ones() -> None:
    few, many = (plan(outline(**experts(number))).weights_bytes for number in (2, 8))
    assert many - few == 6 * 4 * 3 * 256 * 64 * 2


def test_experts_that_divide_are_shared_out_by_expert() -> None:
    made = plan(outline(**experts(8)), cores=4)
    assert (made.tp, made.ep, made.is_moe) == (4, 4, True)
    assert made.rank_bytes.expert == 8 // 4 * 4 * 3 * 256 * 64 * 2


def test_experts_that_do_not_divide_stay_with_tensor_parallelism() -> None:
    made = plan(outline(**experts(6, sharded_by_tp=True)), cores=4)
    assert (made.tp, made.ep) == (4, 1)
    assert made.rank_bytes.expert == 6 * 4 * 3 * 256 * 64 * 2 // 4


def test_experts_alone_are_shared_out_where_there_is_no_tensor_parallel_plan() -> None:
    made = plan(outline(tp_plan={}, **experts(8)), cores=2)
    assert (made.tp, made.ep, made.tp_override) == (2, 2, {"lm_head": "colwise_gather_output"})
    assert made.notes[0].startswith("plan_override")


def test_a_tied_head_is_not_cut_away_from_its_embedding() -> None:
    made = plan(outline(tp_plan={}, tied=True, **experts(8)), cores=2)
    assert made.tp_override == {"lm_head": "replicate"}


def test_experts_that_do_not_divide_and_no_plan_are_refused_with_their_number() -> None:
    refused = refusal(outline(tp_plan={}, **experts(6)), cores=4)
    assert refused.reason is Reason.NO_PARALLEL_PLAN
    assert "6 experts do not divide by 4" in refused.detail


@pytest.mark.parametrize(("heads", "kv_heads", "cores"), [(8, 4, 8), (28, 4, 8), (9, 3, 2), (32, 1, 4)])
def test_heads_that_do_not_divide_are_overridden_and_recorded(heads: int, kv_heads: int, cores: int) -> None:
    made = plan(outline(hidden=heads * 8, heads=heads, kv_heads=kv_heads), cores=cores)
    assert made.tp_override == {
        **{f"{ATTENTION}.{name}": "colwise_gather_output" for name in ("q_proj", "k_proj", "v_proj")},
        f"{ATTENTION}.o_proj": "rowwise_split_input",
    }
    assert len(made.notes) == 1
    assert made.notes[0].startswith("plan_override: attention is computed whole on every core")
    assert f"its {heads} query and {kv_heads} key/value heads do not divide by {cores}" in made.notes[0]


def test_the_override_keeps_weights_cut_and_the_cache_whole() -> None:
    divided, whole = tried(outline(kv_heads=4))[4], tried(outline(kv_heads=2))[4]
    assert divided.rank_bytes.kv_cache == 4 * 96 * 1 * 16 * 2
    assert whole.rank_bytes.kv_cache == 4 * 96 * 2 * 16 * 2
    assert whole.rank_bytes.sharded < divided.rank_bytes.sharded


@pytest.mark.parametrize(("cores", "options"), [(8, {"attention_override": False}), (8, {})])
def test_heads_without_an_override_are_refused_with_the_values_that_work(cores: int, options: dict[str, bool]) -> None:
    model = outline()
    if not options:  # a style for which no override is known
        kind = dataclasses.replace(model.attention[0], styles={**model.attention[0].styles, f"{ATTENTION}.mix": "packed_colwise"})
        model = dataclasses.replace(model, attention=(kind,))
    refused = refusal(model, cores=cores, **options)
    assert refused.reason is Reason.HEADS_NOT_DIVISIBLE
    assert "8 query and 4 key/value heads do not divide by 8; 2 or 4 would work" in refused.detail


def test_parameters_of_the_attention_itself_are_left_whole_by_the_override() -> None:
    model = outline(kv_heads=1)
    sinks = f"{ATTENTION}.sinks"
    kind = Attention(ATTENTION, 8, 1, 4, {**model.attention[0].styles, sinks: "colwise", ATTENTION: "local_params"}, (sinks,))
    made = plan(dataclasses.replace(model, attention=(kind,)), cores=2)
    assert made.tp_override is not None
    assert made.tp_override[sinks] == "replicate"
    assert ATTENTION not in made.tp_override


def test_cores_that_the_device_does_not_have_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="1, 2, 4 or 8 cores, not on 12"):
        planned(outline(), cores=12)


def test_too_large_says_what_it_needs_and_what_there_is() -> None:
    refused = refusal(outline(vocab=400_000))
    assert refused.reason is Reason.TOO_LARGE
    assert refused.weights_bytes == plan(outline(vocab=400_000), dataclasses.replace(DEVICE, core_bytes=10**9)).weights_bytes
    assert "8 cores of toy offer 5.0 MB each" in refused.detail


def test_a_model_without_a_plan_that_needs_several_cores_is_refused() -> None:
    refused = refusal(outline(tp_plan={}, vocab=100_000))
    assert refused.reason is Reason.NO_PARALLEL_PLAN
    assert "transformers 5.24.0 has no tensor-parallel plan for ToyForCausalLM" in refused.detail


def test_a_model_without_a_plan_that_one_core_holds_is_planned() -> None:
    assert plan(outline(tp_plan={})).cores == 1


def test_a_plan_that_leaves_most_of_the_model_whole_is_no_plan() -> None:
    refused = refusal(outline(tp_plan={"lm_head": "colwise_gather_output"}, vocab=50_000))
    assert refused.reason is Reason.NO_PARALLEL_PLAN
    assert "whole on every core" in refused.detail


@pytest.mark.parametrize("kind", [*PROBLEMS, "never heard of"])
def test_every_problem_of_the_outline_becomes_a_reason(kind: str) -> None:
    refused = refusal(Problem("0", kind, "it is odd"))
    assert refused.reason is PROBLEMS.get(kind, Reason.INVALID_CONFIG)
    assert refused.detail == "It is odd."


def test_memory_shared_by_the_cores_is_divided_by_them() -> None:
    device = Device("cpu", "cpu", (1, 2, 4), 0, 0.2)
    assert capacity(device, 4, PlanOptions(host_memory_bytes=100)) == 20
    assert refusal(outline(), device, host_memory_bytes=10**5).reason is Reason.TOO_LARGE
    assert plan(outline(), device).capacity_bytes == 0  # not known: nothing is too large


def test_new_tokens_and_the_prompt_make_the_cache() -> None:
    per_token = 4 * 4 * 16 * 2
    assert plan(outline(), new_tokens=10, prompt_tokens=20).rank_bytes.kv_cache == 30 * per_token
    assert plan(outline(), dtype=Dtype.FLOAT32, new_tokens=10, prompt_tokens=20).rank_bytes.kv_cache == 60 * per_token


def test_the_line_for_programs_has_the_same_keys_with_and_without_a_plan() -> None:
    kept, refused = plan_line(planned(outline()), DEVICE), plan_line(planned(outline(vocab=400_000)), DEVICE)
    assert kept.keys() == refused.keys()
    assert (kept["outcome"], kept["reason"]) == ("plan", None)
    assert (refused["outcome"], refused["reason"]) == ("excluded", "too_large")
    assert kept["max_rank_bytes"] <= kept["capacity_bytes"]


def explained(model: Outline, device: Device = DEVICE, **options: Any) -> tuple[str, ...]:
    return explanation(checkpoint(), model, device, TEXT, PlanOptions(**options)).warnings


def test_the_explanation_covers_every_size_and_every_byte() -> None:
    model = outline(**experts(8))
    told = explanation(checkpoint(), model, DEVICE, TEXT, PlanOptions())
    chosen = next(fit for fit in told.fits if fit.holds)
    assert [fit.cores for fit in told.fits] == list(DEVICE.sizes)
    assert sum(module.total_bytes for module in told.modules) == told.weights_bytes
    assert sum(module.rank_bytes for module in told.modules) == chosen.rank_bytes.weights


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"compiled": False}, "never compiled"),
        ({"static_cache": False}, "static cache"),
        ({"layer_types": ("full_attention", "sliding_attention")}, "compiled anew at every token"),
        ({"layer_types": ("linear_attention",)}, "neuronx-cc"),
    ],
)
def test_what_may_go_wrong_is_said(fields: dict[str, Any], said: str) -> None:
    device = dataclasses.replace(DEVICE, hard_layers=DEVICES["trn2"].hard_layers)
    assert explained(outline(), device) == ()
    assert [warning for warning in explained(outline(**fields), device) if said in warning]


def test_stored_tensors_that_do_not_fit_the_outline_are_told() -> None:
    model = outline(unloaded={"a copy of the tied head": 64_000})
    stored = checkpoint(stored={"BF16": model.elements + 64_000})
    told = explanation(stored, model, DEVICE, TEXT, PlanOptions()).warnings
    assert told == ("The checkpoint also stores a copy of the tied head (0.00 billion parameters), which is not loaded.",)
    odd = explanation(checkpoint(stored={"BF16": model.elements // 2}), model, DEVICE, TEXT, PlanOptions()).warnings
    assert "missing or unused" in odd[0]


@given(
    layers=st.integers(1, 6),
    heads=st.integers(1, 16),
    groups=st.integers(1, 4),
    vocab=st.integers(1, 5000),
    number=st.integers(0, 12),
    cores=st.sampled_from((1, 2, 4, 8)),
)
def test_ranks_together_hold_the_whole_model(layers: int, heads: int, groups: int, vocab: int, number: int, cores: int) -> None:
    mixture = experts(number, layers=layers, hidden=8 * heads * groups) if number else {}
    model = outline(layers=layers, hidden=8 * heads * groups, heads=heads * groups, kv_heads=heads, vocab=vocab, **mixture)
    whole, fit = tried(model)[1].rank_bytes, tried(model)[cores].rank_bytes
    assert whole.weights == sum(p.elements * p.itemsize for p in model.parameters)
    assert fit.weights * cores >= whole.weights
    assert fit.weights <= whole.weights
    assert fit.kv_cache <= whole.kv_cache


@given(vocab=st.integers(1, 300_000), kv_heads=st.sampled_from((1, 2, 4, 8)), override=st.booleans())
def test_a_plan_fits_and_no_smaller_one_does(vocab: int, kv_heads: int, override: bool) -> None:
    result = planned(outline(vocab=vocab, kv_heads=kv_heads), attention_override=override)
    holding = [fit.cores for fit in tried(outline(vocab=vocab, kv_heads=kv_heads), attention_override=override).values() if fit.holds]
    if isinstance(result, Plan):
        assert result.cores == min(holding)
        assert result.rank_bytes.total <= result.capacity_bytes
        assert isinstance(result.rank_bytes, RankBytes)
    else:
        assert not holding
        assert result.detail


def test_the_plan_of_a_toy_uses_the_architectures_rules() -> None:
    assert set(TP) >= set(outline().attention[0].styles)
