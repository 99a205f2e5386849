"""The nouns: identities that parse back, enums that are closed, rows that survive JSON."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.errors import EXIT_CODES, DoesItRunError
from doesitrun.outcomes import Fault, Outcome, Reason, Result, Stage
from doesitrun.records import COLUMNS, Dtype, PlanId, Row, dumps

REFERENCE_COLUMNS = (
    "model_id library tp runner result notes error exclusion wall_s hbm_peak_gb hbm_capacity_gb cpu_match english neuronx_cc "
    "library_version transformers accelerate torch_neuronx torch nki python neuron_driver tested_at run_py"
)
name = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._]|-(?!-)){0,20}[A-Za-z0-9]", fullmatch=True)
plan_ids = st.builds(
    PlanId,
    model_id=name | st.tuples(name, name).map("/".join),
    revision=st.from_regex(r"[0-9a-f]{12}", fullmatch=True),
    task=st.sampled_from(["text-generation", "image-text-to-text"]),
    target=st.sampled_from(["neuron", "cuda", "cpu"]),
    device=st.sampled_from(["trn2", "trn2.3xlarge", "h200"]),
    cores=st.integers(0, 64),
    tp=st.integers(0, 64),
    ep=st.integers(0, 64),
    dtype=st.sampled_from(Dtype),
    new_tokens=st.integers(1, 4096),
)


@given(plan_ids)
def test_a_plan_id_parses_back_and_names_a_folder(plan_id: PlanId) -> None:
    assert PlanId.parse(str(plan_id)) == plan_id
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@+-]*", str(plan_id))


@given(st.text())
def test_any_text_is_a_plan_id_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert str(PlanId.parse(text)) == text


@given(st.sampled_from(Stage), st.none() | st.sampled_from(Reason))
def test_an_outcome_parses_back(stage: Stage, reason: Reason | None) -> None:
    assert Outcome.parse(str(Outcome(stage, reason, "lost"))) == Outcome(stage, reason)


@pytest.mark.parametrize("text", ["", "load", "nowhere:ok", "load:nothing"])
def test_other_texts_are_no_outcome(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Outcome.parse(text)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_says_what_it_means_and_what_to_do(reason: Reason) -> None:
    assert reason.meaning.endswith(".")
    assert reason.advice.endswith(".")
    assert reason.is_models_fault == (reason.result is Result.FAIL)


def test_faults_map_to_results() -> None:
    assert {fault: fault.result for fault in Fault} == {
        Fault.MODEL: Result.FAIL,
        Fault.CHOICE: Result.EXCLUDED,
        Fault.INCOMPATIBLE: Result.EXCLUDED,
        Fault.UPSTREAM: Result.EXCLUDED,
        Fault.HARNESS: Result.INCONCLUSIVE,
    }


def test_the_reference_datasets_columns_come_first_and_keep_their_names() -> None:
    assert [column.name for column in COLUMNS[:24]] == REFERENCE_COLUMNS.split()


def test_a_row_survives_json() -> None:
    row = Row(model_id="a/b", result=Result.FAIL, stage=Stage.RUN, reason=Reason.CRASH, output_tokens=[1, 2])
    assert Row.from_json(json.loads(dumps(row))) == row


def test_a_rows_unknown_columns_are_passed_over() -> None:
    assert Row.from_json({"model_id": "a", "of_a_later_version": 1}) == Row(model_id="a")


def test_exit_codes_are_distinct() -> None:
    errors = {kind.exit_code for kind in DoesItRunError.__subclasses__()}
    assert len(errors) == len(DoesItRunError.__subclasses__())
    assert not errors & set(EXIT_CODES.values())
    assert set(EXIT_CODES) == set(Result)
