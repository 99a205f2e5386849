"""The verdict on a run: the rules applied to what was left behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from doesitrun.outcomes import Outcome, Reason, Stage
from doesitrun.records import Plan
from doesitrun.verify.evidence import DeviceRun, MalformedError, Reference, judge_nll
from doesitrun.verify.fluency import fluency
from doesitrun.verify.ratio import Numbers
from doesitrun.verify.rules import RULES, Case, Rung
from doesitrun.verify.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Verdict:
    """What a run is worth. `rungs` are those passed, in order; figures are None where they could not be had."""

    outcome: Outcome
    rungs: tuple[Rung, ...] = ()
    logit_ratio: float | None = None
    logit_ratio_median: float | None = None
    expert_ratio: float | None = None
    match_tokens: int | None = None
    cpu_match: str | None = None
    passage_loss: float | None = None
    fluency_nll: float | None = None
    english: str | None = None
    notes: tuple[str, ...] = ()


def verdict(plan: Plan, result: Mapping[str, Any], reference: Mapping[str, Any] | None, judge: Mapping[str, Any] | None) -> Verdict:
    """What the run is worth. Any mappings give a verdict; none raises.

    `reference` may be None for a sharded plan only, and only because the host cannot hold the model.
    """
    try:
        run = DeviceRun.read(result, plan.new_tokens, plan.cores)
    except MalformedError as error:
        return _without_evidence(Reason.NO_RESULT, f"The result cannot be used: {error}.")
    if reference is None and plan.cores == 1:
        return _without_evidence(Reason.REFERENCE_FAILED, "There is no CPU reference to compare with.")
    try:
        answer = None if reference is None else Reference.read(reference, run)
    except MalformedError as error:
        return _without_evidence(Reason.REFERENCE_FAILED, f"The CPU reference cannot be used: {error}.")
    try:
        word = None if judge is None else fluency(run.text, judge_nll(judge))
    except MalformedError as error:
        return _without_evidence(Reason.JUDGE_FAILED, f"The judge's answer cannot be used: {error}.")
    if answer is None and word is None:
        return _without_evidence(Reason.JUDGE_FAILED, "There is neither a CPU reference nor a judge's word.")
    return judged(Case(plan, run, answer, word))


def _without_evidence(reason: Reason, detail: str) -> Verdict:
    return Verdict(Outcome(Stage.VERIFY, reason, detail))


def judged(case: Case) -> Verdict:
    """All rules applied to the case."""
    found = [(rung, rule(case)) for rung, rule in RULES]
    first = next((finding for _, finding in found if finding is not None), None)
    numbers = case.numbers
    return Verdict(
        outcome=Outcome(Stage.VERIFY, *first) if first else Outcome(Stage.VERIFY),
        rungs=_rungs(case, {rung for rung, finding in found if finding is not None}),
        logit_ratio=numbers.ratio if numbers else None,
        logit_ratio_median=numbers.ratio_median if numbers else None,
        expert_ratio=numbers.worst.ratio if numbers and numbers.worst else None,
        match_tokens=numbers.match_tokens if numbers else None,
        cpu_match=case.match or None,
        passage_loss=case.reference.passage_loss if case.reference else None,
        fluency_nll=case.fluency.nll if case.fluency else None,
        english=case.fluency.english if case.fluency else None,
        notes=tuple(_notes(case)),
    )


def _rungs(case: Case, failed: set[Rung]) -> tuple[Rung, ...]:
    there: dict[Rung, bool] = {
        "reference": case.reference is not None,
        "executed": True,
        "numbers": case.numbers is not None,
        "fluent": case.fluency is not None and case.fluency.fluent,
    }
    return tuple(rung for rung, is_there in there.items() if is_there and rung not in failed)


def _notes(case: Case) -> Iterable[str]:
    if case.reference is None:
        yield "no CPU reference: the host cannot hold the model, so the result rests on execution and fluency"
    if case.numbers is not None and case.fluency is not None and not case.fluency.fluent:
        yield "the text is not fluent, which the numbers say of the CPU's too"
    held, planned = max(rank.weights_bytes for rank in case.run.ranks), case.plan.rank_bytes.weights
    if held < (2 - THRESHOLDS.weights) * planned:
        yield f"the fullest rank holds {held / planned:.0%} of the weights that were planned for it"
    if case.plan.is_moe and case.numbers is not None:
        yield from _notes_on_experts(case.numbers)


def _notes_on_experts(numbers: Numbers) -> Iterable[str]:
    if not numbers.experts:
        yield f"{numbers.positions} positions cannot show a fault of an expert that few of them visit"
    elif numbers.judged < numbers.experts:
        seen = f"fewer than {THRESHOLDS.visits} of {numbers.positions} positions visit"
        yield f"{seen} {numbers.experts - numbers.judged} of {numbers.experts} experts: a fault of those goes unseen"
