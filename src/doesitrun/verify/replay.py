"""The verdict of a past attempt, reached again from what it left, and whether its row says the same. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from doesitrun.explain import explain
from doesitrun.isolate import Ended
from doesitrun.outcomes import Outcome, Reason, Stage
from doesitrun.records import VERDICT_VERSION, Blame, Plan, Row
from doesitrun.targets import DEVICES, ORACLE
from doesitrun.verify.decide import Verdict, numbers_alone, verdict
from doesitrun.verify.requests import is_usable

WITHOUT_EVIDENCE = frozenset({Reason.INTERRUPTED, Reason.HARNESS_ERROR, Reason.REFERENCE_FAILED, Reason.JUDGE_FAILED})
"""Outcomes that the harness itself came to: nothing in the attempt's folder could contradict them."""


@dataclass(frozen=True)
class Saved:
    """What an attempt left in its folder. A file that is absent, or no JSON object, is None."""

    row: Row
    plan: Plan | None = None
    ended: Ended | None = None
    result: Mapping[str, Any] | None = None
    log: str = ""
    probe: str = ""
    """How the sentence begins of a run that ended in a probe; empty for any other."""
    has_reference: bool = False
    """True when the reference was asked, even if the host could not hold it."""
    reference: Mapping[str, Any] | None = None
    judge: Mapping[str, Any] | None = None
    oracle: Mapping[str, Any] | None = None
    oracle_reference: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Replay:
    """What came of it. `agrees` is None where there is nothing to judge from, and `why` says so."""

    run_id: str
    agrees: bool | None
    why: str
    differences: tuple[str, ...] = ()
    """Columns that the row has otherwise, with both values."""
    outcome: Outcome | None = None
    row: Row | None = None


def replayed(saved: Saved) -> Replay:
    """The verdict reached again, beside the row."""
    row = saved.row
    run_id = row.run_id or f"{row.plan_id}/{row.attempt}"
    if row.result is None:
        return Replay(run_id, None, "It has not ended.", row=row)
    if saved.plan is None or saved.ended is None:
        if row.result is not None and row.reason is None:
            return Replay(run_id, False, "The row says PASS, and there is no run that it could rest on.", row=row)
        return Replay(run_id, None, "Nothing ran, so there is nothing to judge from.", row=row)
    if row.reason in WITHOUT_EVIDENCE:
        return Replay(run_id, None, f"{row.reason.meaning} Nothing can be judged from what is there.", row=row)
    found = again(saved.plan, saved)
    if found.outcome.reason is Reason.REFERENCE_FAILED and not saved.has_reference:
        return Replay(run_id, None, f"{found.outcome.detail} An older version did not keep it.", row=row)
    differences = tuple(_differences(row, saved, found))
    version = "" if row.verdict_version == VERDICT_VERSION else f" The row was judged by version {row.verdict_version} of the rules."
    said = "The row says the same." if not differences else f"The row differs in {', '.join(d.partition(' ')[0] for d in differences)}."
    return Replay(run_id, not differences, said + version, differences, found.outcome, row)


def again(plan: Plan, saved: Saved) -> Verdict:
    """The verdict on what was saved, by today's rules."""
    assert saved.ended is not None
    outcome = explain(saved.ended, saved.result, saved.log, plan.target)
    if outcome is not None:
        return Verdict(dataclasses.replace(outcome, detail=f"{saved.probe}{outcome.detail}"))
    if saved.result is None or not is_usable(plan, saved.result):
        return verdict(plan, saved.result or {}, None, None)
    if not saved.has_reference:
        return Verdict(Outcome(Stage.VERIFY, Reason.REFERENCE_FAILED, "The reference's answer is not in the attempt's folder."))
    return verdict(plan, saved.result, saved.reference, saved.judge)


def _differences(row: Row, saved: Saved, found: Verdict) -> list[str]:
    """`column ROW'S, now OURS` for each that is not the same. Floats may differ in their last digits."""
    now: dict[str, Any] = {
        "result": found.outcome.result,
        "stage": found.outcome.stage,
        "reason": found.outcome.reason,
        "rungs": ",".join(found.rungs) or None,
        "probes": "; ".join(found.probes) or None,
        "logit_ratio": found.logit_ratio,
        "logit_ratio_median": found.logit_ratio_median,
        "expert_ratio": found.expert_ratio,
        "match_tokens": found.match_tokens,
        "cpu_match": found.cpu_match,
        "passage_loss": found.passage_loss,
        "fluency_nll": found.fluency_nll,
        "english": found.english,
        **_outputs(saved),
        **_blame(saved),
    }
    return [f"{name} {getattr(row, name)!s}, now {value!s}" for name, value in now.items() if not _same(getattr(row, name), value)]


def _outputs(saved: Saved) -> dict[str, Any]:
    """What the row quotes of the result; nothing where it quotes nothing."""
    result = saved.result or {}
    quoted = {"output_text": result.get("text"), "output_tokens": result.get("tokens")}
    return quoted if saved.row.output_tokens is not None else {}


def _blame(saved: Saved) -> dict[str, Any]:
    if saved.plan is None or saved.oracle is None or saved.oracle_reference is None:
        return {"blame": None}
    return {"blame": blame(oracle_plan(saved.plan), saved.oracle, saved.oracle_reference)[0]}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


# ---------------------------------------------------------------------------------- the layout oracle
def oracle_plan(plan: Plan) -> Plan:
    """The plan of the layout oracle: the same layout on CPU ranks, without probes."""
    device = next(device for device in DEVICES.values() if device.target == ORACLE)
    return dataclasses.replace(plan, target=ORACLE, device=device.name, longest=0)


def blame(plan: Plan, result: Mapping[str, Any], reference: Mapping[str, Any]) -> tuple[Blame | None, str]:
    """Who is at fault for wrong numbers, from what the oracle's own run left, and the sentence that says why."""
    found = numbers_alone(plan, result, reference)
    where = f"The same layout, eager on {plan.cores} CPU ranks,"
    if found.outcome.reason is None and found.logit_ratio is not None:
        return Blame.TARGET, f"{where} is right (R = {found.logit_ratio:.3g}): the target is at fault, not the library."
    if found.outcome.reason is not None and found.outcome.reason.is_models_fault:
        return Blame.LIBRARY, f"{where} is wrong, too ({found.outcome.detail.rstrip('.')}): the library is at fault, not the target."
    return None, f"{where} says nothing ({found.outcome.detail.rstrip('.')})."
