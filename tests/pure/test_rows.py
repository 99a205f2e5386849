"""What becomes a row, and which of its columns an outcome fills."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from doesitrun import rows
from doesitrun.outcomes import Outcome, Reason, Result, Stage
from doesitrun.records import COLUMNS, Dtype, PlanId, Refusal, Row, Stack
from doesitrun.verify import Verdict
from tests.pure.golden_plans import PLANS

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
VERSIONS = {"torch": "2.13.0", "transformers": "5.24.0", "python": "3.12.1", "neuronx_cc": "2.28", "neuron_driver": "2.31"}
STACK = Stack("trn", "/python", "neuron", "trn2", 64, 2**40, VERSIONS, "neuronx-cc", "2.28")
PLAN = PLANS["neuron_4_cores_tp"]
RESULT = {
    "ranks": [{"peak_bytes": 2 * 10**9, "weights_bytes": 5}, {"peak_bytes": 3 * 10**9, "weights_bytes": 4}],
    "compiled": True,
    "graphs": 2,
    "load_s": 1.0,
    "first_s": 60.5,
    "second_s": 0.5,
    "text": "words",
    "tokens": [1, 2],
}


@pytest.fixture
def pending() -> Row:
    return rows.pending_row(PLAN, STACK, "print()", NOW)


def test_a_pending_row_has_everything_but_an_outcome(pending: Row) -> None:
    assert (pending.result, pending.stage, pending.reason, pending.error) == (None, None, None, None)
    assert (pending.tp, pending.cores, pending.neuron_driver, pending.neuronx_cc) == (4, 4, "2.31", "2.28")
    assert pending.runner == "torch.compile(neuron)"
    assert pending.plan_id == PLAN.plan_id


@pytest.mark.parametrize(
    ("reason", "filled"),
    [(Reason.CRASH, "error"), (Reason.NETWORK, "error"), (Reason.MISSING_WEIGHTS, "exclusion"), (Reason.REFERENCE_BROKEN, "exclusion")],
)
def test_the_sentence_is_in_the_column_of_its_result(reason: Reason, filled: str, pending: Row) -> None:
    row = rows.ended_row(pending, Outcome(Stage.RUN, reason, "what happened"), NOW, wall_s=61.6)
    other = {"error": "exclusion", "exclusion": "error"}[filled]
    assert (getattr(row, filled), getattr(row, other)) == ("what happened", None)
    assert (row.result, row.wall_s) == (reason.result, 62)


def test_an_outcome_without_detail_says_what_its_reason_means(pending: Row) -> None:
    assert rows.ended_row(pending, Outcome(Stage.RUN, Reason.CRASH), NOW).error == Reason.CRASH.meaning


def test_a_pass_has_no_sentence(pending: Row) -> None:
    row = rows.ended_row(pending, Outcome(Stage.VERIFY), NOW)
    assert (row.result, row.error, row.exclusion) == (Result.PASS, None, None)


def test_figures_are_those_of_the_fullest_rank(pending: Row) -> None:
    row = rows.measured_row(pending, RESULT)
    assert (row.hbm_peak_gb, row.rank_weights_bytes) == (3.0, 5)
    assert (row.compile_s, row.run_s, row.warm_run_s) == (60.0, 60.5, 0.5)


def test_notes_of_plan_and_verdict_stand_side_by_side(pending: Row) -> None:
    import dataclasses

    noted = dataclasses.replace(pending, notes="plan_override: x")
    row = rows.judged_row(noted, Verdict(Outcome(Stage.VERIFY), ("reference", "executed"), notes=("no reference",)))
    assert row.notes == "plan_override: x; no reference"
    assert row.rungs == "reference,executed"


def test_a_refusal_is_an_excluded_row_with_an_id_that_parses() -> None:
    refusal = Refusal("org/name", "0123456789abcdef", Reason.TOO_LARGE, "Too much.", "text-generation", 10**12, "LlamaForCausalLM", "llama")
    row = rows.refused_row(refusal, STACK, NOW)
    assert (row.architecture, row.model_type) == ("LlamaForCausalLM", "llama")
    assert (row.result, row.reason, row.exclusion, row.weights_bytes) == (Result.EXCLUDED, Reason.TOO_LARGE, "Too much.", 10**12)
    assert PlanId.parse(rows.refusal_plan_id(refusal, STACK, Dtype.BFLOAT16, 32)).cores == 0


def test_a_refusal_without_revision_has_an_id_too() -> None:
    refusal = Refusal("local/x", "", Reason.INVALID_CONFIG, "")
    assert PlanId.parse(rows.refusal_plan_id(refusal, STACK, Dtype.BFLOAT16, 32)).revision == "none"


def test_every_column_is_declared_with_a_sentence() -> None:
    assert all(column.doc.endswith(".") and column.arrow for column in COLUMNS)


def test_a_pass_carries_its_configuration(pending: Row) -> None:
    """What is right in one configuration may be wrong in another, so a PASS is never seen without its own."""
    verdict = Verdict(Outcome(Stage.VERIFY), ("reference", "executed", "numbers"))
    row = rows.ended_row(rows.judged_row(pending, verdict), verdict.outcome, NOW)
    assert row.result is Result.PASS
    told = (
        "plan_id",
        "run_py",
        "prompt",
        "target",
        "device",
        "cores",
        "tp",
        "ep",
        "runner",
        "compiler",
        "compiler_version",
        "rungs",
        "torch",
    )
    assert [name for name in told if getattr(row, name) is None] == []
    changes: list[dict[str, object]] = [{"cores": 8}, {"tp": 2}, {"ep": 4}, {"dtype": Dtype.FLOAT32}, {"new_tokens": 8}, {"device": "trn3"}]
    others = [dataclasses.replace(PLAN, **change).plan_id for change in changes]
    assert len({PLAN.plan_id, *others}) == 1 + len(changes)
    assert row.probes is None, "it does not say that a padded batch is right, for none was tried"
