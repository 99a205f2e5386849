"""Lists of models, and what earlier attempts say of the next ones."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.campaign.context import Ask
from doesitrun.campaign.expectation import Past, need, past, remaining_s
from doesitrun.campaign.listing import Listed, first_chosen, read_list
from doesitrun.errors import UsageError
from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.pool import Need
from doesitrun.records import Dtype, Plan, RankBytes, Row
from doesitrun.targets import DEVICES

CHOSEN = {"model_id": "org/a", "chosen": True, "place": 1, "revision": "abc", "task": "text-generation", "est_core_hours": 0.1}
LEFT_OUT = {"model_id": "org/b", "chosen": False, "reason": "duplicate", "stage": "select", "detail": "It is a copy of org/a."}


def test_a_list_holds_each_name_once_without_comments() -> None:
    found = read_list("# mine\norg/a\n\n  ./folder  # the local one\norg/a\n", "models.txt", Ask("", cores=2, dtype=Dtype.FLOAT16))
    assert found == [Listed(Ask("org/a", cores=2, dtype=Dtype.FLOAT16)), Listed(Ask("./folder", cores=2, dtype=Dtype.FLOAT16))]


def test_a_selection_keeps_revisions_and_reasons() -> None:
    text = "\n".join(map(json.dumps, (CHOSEN, LEFT_OUT, {"model_id": "org/c#1"})))
    chosen, left_out, other = read_list(text, "cpu.jsonl")
    assert chosen == Listed(Ask("org/a", revision="abc", task="text-generation"))
    assert left_out == Listed(Ask("org/b"), Reason.DUPLICATE, "It is a copy of org/a.", Stage.SELECT)
    assert other.ask.model == "org/c#1"
    assert first_chosen([chosen, left_out, other], 1) == [chosen, left_out]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# nothing\n", "names no model"),
        ('{"model_id": "org/a"', "line 1 is no JSON object"),
        ('org/a\n{"chosen": true}', "line 2 names no model"),
        ('{"model_id": 3}', "model_id must be text"),
        ('{"model_id": "org/a", "chosen": false}', "needs a reason"),
        ('{"model_id": "org/a", "chosen": false, "reason": "mood"}', "needs a reason"),
    ],
)
def test_a_list_that_says_nothing_usable_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_list(text, "models.txt")


@given(st.text())
def test_any_text_is_a_list_or_is_refused(text: str) -> None:
    with suppress(UsageError):
        assert read_list(text, "models.txt")


# ---------------------------------------------------------------------------------- expectations
def plan(cores: int, device: str, weights_bytes: int = 10**10) -> Plan:
    target = DEVICES[device].target
    ranks = RankBytes(sharded=weights_bytes // cores)
    return Plan(
        "org/a", "abc", "org/a", "text-generation", target, device, cores, cores, 1, Dtype.BFLOAT16, 32, weights_bytes, ranks, 10**11, "Hi"
    )


def test_a_plan_takes_what_it_took_before() -> None:
    known = plan(4, "trn2")
    row = Row(plan_id=known.plan_id, target="neuron", result=Result.FAIL, wall_s=700, weights_bytes=10**10)
    found = past(
        [row, Row(plan_id="x", target="cpu", result=Result.PASS, wall_s=1), Row(target="neuron", result=Result.INCONCLUSIVE, wall_s=9)],
        "neuron",
    )
    assert need(known, DEVICES["trn2"], 64, found).expected_s == 700
    other = need(plan(8, "trn2"), DEVICES["trn2"], 64, found)
    assert other.expected_s == pytest.approx(700), "what is not known is scaled by what is"
    assert other.cores == 8


def test_larger_plans_are_expected_to_take_longer_and_more_memory() -> None:
    small, large = (need(plan(1, "trn2", size), DEVICES["trn2"], 64, Past()) for size in (10**9, 10**10))
    assert small.expected_s < large.expected_s
    assert 10**10 < large.host_bytes < 2 * 10**10
    assert small.host_bytes < large.host_bytes


def test_more_processes_than_cores_may_run_only_where_a_core_is_a_process() -> None:
    assert need(plan(4, "cpu"), DEVICES["cpu"], 2, Past()).cores == 2
    assert need(plan(4, "trn2"), DEVICES["trn2"], 2, Past()).cores == 4


def test_the_end_is_no_sooner_than_the_longest_job_nor_than_all_work() -> None:
    assert remaining_s([Need(1, 0, 100.0)], [], 64) == 100
    assert remaining_s([Need(4, 0, 10.0)] * 8, [(Need(4, 0, 20.0), 15.0)], 4) == 85
    assert remaining_s([], [(Need(1, 0, 5.0), 60.0)], 4) == 0
