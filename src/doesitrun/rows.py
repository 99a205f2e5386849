"""Plan, run and verdict -> a row; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from doesitrun.outcomes import Outcome, Result, Stage
from doesitrun.records import SCHEMA_VERSION, VERDICT_VERSION, Blame, Dtype, Plan, PlanId, Refusal, Row, Stack
from doesitrun.targets import DEVICES, TARGETS
from doesitrun.verify import Verdict

GB = 10**9


def refusal_plan_id(refusal: Refusal, stack: Stack, dtype: Dtype, new_tokens: int) -> str:
    """Identity of what could not be planned: a plan id with no cores."""
    task = refusal.task or "none"
    return str(PlanId(refusal.model_id, refusal.revision or "none", task, stack.target, stack.device, 0, 0, 0, dtype, new_tokens))


def refused_row(refusal: Refusal, stack: Stack, at: datetime) -> Row:
    """The EXCLUDED row of a model that has no plan."""
    row = _stack_row(stack)
    return dataclasses.replace(
        row,
        model_id=refusal.model_id,
        revision=refusal.revision or None,
        task=refusal.task or None,
        result=refusal.reason.result,
        stage=Stage.PLAN,
        reason=refusal.reason,
        exclusion=refusal.detail or refusal.reason.meaning,
        weights_bytes=refusal.weights_bytes or None,
        architecture=refusal.architecture or None,
        model_type=refusal.model_type or None,
        tested_at=at,
    )


def pending_row(plan: Plan, stack: Stack, run_py: str, at: datetime, *, retry_of: Row | None = None) -> Row:
    """The row of a plan whose attempt begins; it has no result yet. `retry_of` is the attempt that it repeats."""
    device = DEVICES.get(plan.device)
    notes = [*plan.notes, *([f"tried again after {retry_of.reason} in attempt {retry_of.attempt}"] if retry_of else [])]
    return dataclasses.replace(
        _stack_row(stack),
        model_id=plan.model_id,
        tp=plan.tp,
        ep=plan.ep,
        cores=plan.cores,
        runner=f"torch.compile({TARGETS[plan.target].fragments(plan).backend})",
        notes="; ".join(notes) or None,
        hbm_capacity_gb=device.core_bytes / GB if device and device.core_bytes else None,
        tested_at=at,
        run_py=run_py,
        plan_id=plan.plan_id,
        revision=plan.revision,
        task=plan.task,
        device=plan.device,
        weights_bytes=plan.weights_bytes,
        architecture=plan.architecture or None,
        model_type=plan.model_type or None,
        prompt=plan.prompt,
        retry_of=retry_of.run_id if retry_of else None,
    )


def ended_row(row: Row, outcome: Outcome, at: datetime, *, wall_s: float | None = None) -> Row:
    """The pending row with its outcome."""
    result = outcome.result
    sentence = None if outcome.reason is None else outcome.detail or outcome.reason.meaning
    return dataclasses.replace(
        row,
        result=result,
        stage=outcome.stage,
        reason=outcome.reason,
        error=sentence if result in (Result.FAIL, Result.INCONCLUSIVE) else None,
        exclusion=sentence if result is Result.EXCLUDED else None,
        wall_s=row.wall_s if wall_s is None else round(wall_s),
        verdict_version=VERDICT_VERSION,
        tested_at=at,
    )


def measured_row(row: Row, result: Mapping[str, Any]) -> Row:
    """The row with what run.py measured. `result` must be well formed."""
    ranks = result["ranks"]
    return dataclasses.replace(
        row,
        hbm_peak_gb=max(rank["peak_bytes"] for rank in ranks) / GB,
        rank_weights_bytes=max(rank["weights_bytes"] for rank in ranks),
        compiled=result["compiled"],
        graphs=result["graphs"],
        graph_hits=_sum(ranks, "graph_hits"),
        graph_misses=_sum(ranks, "graph_misses"),
        load_s=result["load_s"],
        compile_s=max(0.0, result["first_s"] - result["second_s"]),
        run_s=result["first_s"],
        warm_run_s=result["second_s"],
        output_text=result["text"],
        output_tokens=list(result["tokens"]),
    )


def _sum(ranks: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """Over all ranks; None for a script that does not say."""
    values = [rank.get(name) for rank in ranks]
    return None if None in values else sum(value for value in values if value is not None)


def judged_row(row: Row, verdict: Verdict) -> Row:
    """The row with the figures of the verdict, but without its outcome."""
    notes = [note for note in (row.notes, *verdict.notes) if note]
    return dataclasses.replace(
        row,
        rungs=",".join(verdict.rungs) or None,
        notes="; ".join(notes) or None,
        cpu_match=verdict.cpu_match,
        match_tokens=verdict.match_tokens,
        english=verdict.english,
        logit_ratio=verdict.logit_ratio,
        logit_ratio_median=verdict.logit_ratio_median,
        expert_ratio=verdict.expert_ratio,
        passage_loss=verdict.passage_loss,
        fluency_nll=verdict.fluency_nll,
        probes="; ".join(verdict.probes) or None,
    )


def blamed_row(row: Row, outcome: Outcome, blame: tuple[Blame | None, str], at: datetime) -> Row:
    """The row of wrong numbers, with who is at fault and the sentence that says why."""
    ended = ended_row(row, outcome, at)
    return dataclasses.replace(ended, blame=blame[0], error=f"{ended.error} {blame[1]}")


def _stack_row(stack: Stack) -> Row:
    version = stack.versions
    return Row(
        library="transformers",
        library_version=version.get("transformers"),
        transformers=version.get("transformers"),
        accelerate=version.get("accelerate"),
        torch=version.get("torch"),
        python=version.get("python"),
        os=version.get("os"),
        neuron_driver=version.get("neuron_driver"),
        torch_neuronx=version.get("torch_neuronx"),
        neuronx_cc=version.get("neuronx_cc"),
        nki=version.get("nki"),
        schema_version=SCHEMA_VERSION,
        target=stack.target,
        device=stack.device,
        compiler=stack.compiler,
        compiler_version=stack.compiler_version,
    )
