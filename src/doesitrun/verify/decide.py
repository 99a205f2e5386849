"""The verdict on a run: the rules applied to what was left behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from doesitrun.outcomes import Outcome, Reason, Stage
from doesitrun.records import Plan
from doesitrun.verify.evidence import DeviceRun, MalformedError, Reference, judge_nlls
from doesitrun.verify.fluency import fluency
from doesitrun.verify.probes import Probed, judged_texts, probed, read_probes, remarks
from doesitrun.verify.ratio import Numbers
from doesitrun.verify.rules import NUMBERS_ALONE, RULES, Case, Rung, names_of
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
    probes: tuple[str, ...] = ()
    """What each probe found, one clause each."""
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
        probes = read_probes(plan, result)
    except MalformedError as error:
        return _without_evidence(Reason.NO_RESULT, f"The result cannot be used: {error}.")
    try:
        nlls = None if judge is None else judge_nlls(judge, 1 + sum(len(judged_texts(probe)) for probe in probes))
    except MalformedError as error:
        return _without_evidence(Reason.JUDGE_FAILED, f"The judge's answer cannot be used: {error}.")
    if answer is None and nlls is None:
        return _without_evidence(Reason.JUDGE_FAILED, "There is neither a CPU reference nor a judge's word.")
    case = Case(plan, run, answer, None if nlls is None else fluency(run.text, nlls[0]))
    try:
        return judged(case, probed(case, probes, reference, nlls))
    except MalformedError as error:
        return _without_evidence(Reason.REFERENCE_FAILED, f"The CPU reference cannot be used: {error}.")


def numbers_alone(plan: Plan, result: Mapping[str, Any], reference: Mapping[str, Any]) -> Verdict:
    """The verdict by those rules that concern nothing but numbers: for a run that was not compiled, nor meant to be."""
    try:
        run = DeviceRun.read(result, plan.new_tokens, plan.cores)
        case = Case(plan, run, Reference.read(reference, run), None)
    except MalformedError as error:
        return _without_evidence(Reason.REFERENCE_FAILED, f"The evidence cannot be used: {error}.")
    found = [rule(case) for rule in NUMBERS_ALONE]
    first = next((finding for finding in found if finding is not None), None)
    outcome = Outcome(Stage.VERIFY, *first) if first else Outcome(Stage.VERIFY)
    return Verdict(outcome, logit_ratio=case.numbers.ratio if case.numbers else None, cpu_match=case.match or None)


def _without_evidence(reason: Reason, detail: str) -> Verdict:
    return Verdict(Outcome(Stage.VERIFY, reason, detail))


def judged(case: Case, probes: Sequence[Probed] = ()) -> Verdict:
    """All rules applied to the case, and then what the probes found."""
    found = [(rung, rule(case)) for rung, rule in RULES] + [(each.probe.name, each.finding) for each in probes]
    first = next((finding for _, finding in found if finding is not None), None)
    numbers = case.numbers
    return Verdict(
        outcome=Outcome(Stage.VERIFY, *first) if first else Outcome(Stage.VERIFY),
        rungs=_rungs(case, probes, {rung for rung, finding in found if finding is not None}),
        logit_ratio=numbers.ratio if numbers else None,
        logit_ratio_median=numbers.ratio_median if numbers else None,
        expert_ratio=numbers.worst.ratio if numbers and numbers.worst else None,
        match_tokens=numbers.match_tokens if numbers else None,
        cpu_match=case.match or None,
        passage_loss=case.reference.passage_loss if case.reference else None,
        fluency_nll=case.fluency.nll if case.fluency else None,
        english=case.fluency.english if case.fluency else None,
        probes=tuple(each.said for each in probes),
        notes=(*_notes(case), *remarks(probes)),
    )


def _rungs(case: Case, probes: Sequence[Probed], failed: set[Rung]) -> tuple[Rung, ...]:
    there: dict[Rung, bool] = {
        "reference": case.reference is not None,
        "executed": True,
        "numbers": case.numbers is not None,
        "fluent": case.fluency is not None and case.fluency.fluent,
        **{each.probe.name: each.is_sure for each in probes},
    }
    return tuple(rung for rung, is_there in there.items() if is_there and rung not in failed)


def _notes(case: Case) -> Iterable[str]:
    if case.reference is not None and case.reference.unexpected_keys:
        yield f"tensors of the checkpoint that the model does not use: {names_of(case.reference.unexpected_keys)}"
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
