"""Which attempts count, and how many of each result there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.outcomes import Result
from doesitrun.records import Row
from doesitrun.store.accounts import Counts, accounting, published, winner

PENDING = None
PASS, FAIL, EXCLUDED, INCONCLUSIVE = Result.PASS, Result.FAIL, Result.EXCLUDED, Result.INCONCLUSIVE


def attempts(*results: Result | None, plan_id: str = "p", **values: str) -> list[Row]:
    return [Row(plan_id=plan_id, attempt=n, result=result, **values) for n, result in enumerate(results, 1)]


@pytest.mark.parametrize(
    ("results", "number"),
    [
        ([PENDING], None),
        ([PASS, FAIL], 2),
        ([FAIL, PASS], 2),
        ([PASS, INCONCLUSIVE], 1),
        ([FAIL, INCONCLUSIVE, INCONCLUSIVE], 1),
        ([EXCLUDED, INCONCLUSIVE], 1),
        ([INCONCLUSIVE, INCONCLUSIVE], 2),
        ([INCONCLUSIVE, PASS, INCONCLUSIVE, PENDING], 2),
        ([PASS, EXCLUDED], 2),
        ([PASS, PENDING], 1),
    ],
)
def test_the_last_attempt_counts_but_inconclusive_replaces_no_result(results: list, number: int | None) -> None:
    best = winner(reversed(attempts(*results)))
    assert (best and best.attempt) == number


def test_each_version_of_compiler_and_library_has_its_own_row() -> None:
    rows = attempts(PASS, compiler="inductor", compiler_version="1") + attempts(FAIL, compiler="inductor", compiler_version="2")
    rows += attempts(FAIL, FAIL, compiler="inductor", compiler_version="2", library_version="5")
    assert [(row.compiler_version, row.library_version, row.result, row.attempt) for row in published(rows)] == [
        ("1", None, PASS, 1),
        ("2", None, FAIL, 1),
        ("2", "5", FAIL, 2),
    ]


def test_every_planned_model_has_a_state() -> None:
    rows = attempts(PASS, plan_id="a") + attempts(PENDING, plan_id="b") + attempts(FAIL, plan_id="not planned")
    counts = accounting(rows, ["a", "b", "never started"])
    assert counts == Counts(planned=3, passed=1, failed=0, excluded=0, inconclusive=0, pending=2)
    assert str(counts) == "3 planned = 1 PASS + 0 FAIL + 0 EXCLUDED + 0 INCONCLUSIVE + 2 pending"
    assert not counts.is_complete


def test_an_empty_run_is_not_complete() -> None:
    assert not accounting([]).is_complete
    assert accounting(attempts(EXCLUDED)).is_complete


def test_counts_that_do_not_add_up_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="3 planned, but 2 accounted for"):
        Counts(planned=3, passed=1, failed=1, excluded=0, inconclusive=0, pending=0)
    with pytest.raises(ValueError, match="planned"):
        Counts(planned=0, passed=1, failed=-1, excluded=0, inconclusive=0, pending=0)


@given(
    st.lists(
        st.builds(
            Row, plan_id=st.sampled_from(["a", "b", "c", None]), result=st.none() | st.sampled_from(Result), attempt=st.integers(1, 9)
        )
    )
)
def test_no_plan_is_lost_whatever_its_rows_say(rows: list[Row]) -> None:
    counts = accounting(rows)
    assert counts.planned == len({row.plan_id for row in rows if row.plan_id}) + sum(row.plan_id is None for row in rows)
