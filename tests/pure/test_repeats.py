"""Flake rates, second tries, and what they are made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.campaign import flakes
from doesitrun.campaign.repeats import wilson
from doesitrun.explain import explain_log
from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.records import Row
from tests.pure.golden_plans import PLANS
from tests.pure.test_explain import LOGS
from tests.pure.test_rows import NOW, STACK


def rows(*results: Result | None) -> list[Row]:
    return [Row(result=result) for result in results]


PASS, FAIL, UNKNOWN = Result.PASS, Result.FAIL, Result.INCONCLUSIVE


@pytest.mark.parametrize(
    ("ends", "usual", "others", "attempts", "inconclusive"),
    [
        ((PASS, PASS, PASS), PASS, 0, 3, 0),
        ((PASS, FAIL, PASS, PASS), PASS, 1, 4, 0),
        ((FAIL, FAIL, PASS), FAIL, 1, 3, 0),
        ((PASS, FAIL), FAIL, 1, 2, 0),
        ((PASS, UNKNOWN, None), PASS, 0, 1, 2),
        ((UNKNOWN,), None, 0, 0, 1),
        ((), None, 0, 0, 0),
    ],
)
def test_the_rate_is_of_attempts_that_ended_otherwise_than_most(
    ends: tuple[Result | None, ...], usual: Result | None, others: int, attempts: int, inconclusive: int
) -> None:
    found = flakes(rows(*ends))
    assert (found.usual, found.others, found.attempts, found.inconclusive) == (usual, others, attempts, inconclusive)
    assert found.rate == (others / attempts if attempts else None)
    assert (found.interval is None) == (attempts == 0)


def test_the_interval_is_wilsons() -> None:
    """Of the literature: 1 of 10 gives 1.8 to 40.4 %, 0 of 10 gives 0 to 27.8 %."""
    assert wilson(1, 10) == pytest.approx((0.0179, 0.4042), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)


@given(st.integers(1, 10**6).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_the_interval_holds_the_share(pair: tuple[int, int]) -> None:
    count, total = pair
    low, high = wilson(count, total)
    assert 0 <= low <= count / total + 1e-12
    assert count / total - 1e-12 <= high <= 1
    assert not math.isclose(low, high)


# ---------------------------------------------------------------------------------- second tries
NOW_AND_THEN = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "run.py", line 96, in run
[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3021
[rank7]: Traceback (most recent call last):
[rank7]:   File "run.py", line 96, in run
[rank7]: RuntimeError: neuronx-cc failed: compiler returned exit code 70
[rank5]: Traceback (most recent call last):
[rank5]: RuntimeError: Connection closed by peer
"""


def test_one_compile_job_of_many_that_exits_70_is_the_cause_and_looks_intermittent() -> None:
    """The other ranks only say that their peer is gone."""
    outcome = explain_log(NOW_AND_THEN, "neuron", Stage.COMPILE)
    assert outcome.reason is Reason.COMPILER_BUG
    assert "70" in outcome.detail
    assert outcome.reason.looks_intermittent


def test_a_killed_run_whose_log_says_pass_is_no_pass() -> None:
    log = "Compiler status PASS\n" * 40 + (LOGS / "neuron" / "host_oom_killed.log").read_text()
    outcome = explain_log(log, "neuron", Stage.COMPILE)
    assert (outcome.reason, outcome.result) == (Reason.HOST_OOM, Result.INCONCLUSIVE)
    assert explain_log("Compiler status PASS\n" * 40, "neuron", Stage.COMPILE).result is Result.INCONCLUSIVE


def test_only_what_may_go_away_by_itself_is_tried_again() -> None:
    again = {reason.value for reason in Reason if reason.looks_intermittent}
    assert again == {"compiler_bug", "execution_error", "crash", "rank_lost", "group_start"}


def test_a_second_attempt_names_the_first() -> None:
    from doesitrun import rows as making

    first = Row(run_id="a/1", attempt=1, reason=Reason.COMPILER_BUG)
    row = making.pending_row(PLANS["neuron_4_cores_tp"], STACK, "", NOW, retry_of=first)
    assert (row.retry_of, row.notes) == ("a/1", "tried again after compiler_bug in attempt 1")
