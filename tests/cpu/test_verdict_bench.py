"""A small part of the fault bench again: what it says of faults and right runs is measured, not remembered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from bench.report import RESULTS

torch = pytest.importorskip("torch", reason="the stack is not installed")
transformers = pytest.importorskip("transformers", reason="the stack is not installed")

from bench.verdict.cases import CASES  # noqa: E402  torch may be absent
from bench.verdict.device import Bench  # noqa: E402
from bench.verdict.measure import Measured, measure  # noqa: E402

from doesitrun.instack import reference  # noqa: E402

# Of the real weights, which need not be taught first: garbage from a wrong activation is a public fault that got past
# somebody's check.
SAMPLE = {
    ("fault", "smollm2", "one head zeroed"),
    ("fault", "smollm2", "GELU for SiLU in 1 of 30 layers"),
    ("right", "smollm2", "static cache, eager"),
}


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    load = reference.load
    yield Bench(["smollm2"])
    reference.load = load


@cache
def published() -> dict[tuple[str, str, str], dict[str, Any]]:
    cases = json.loads((RESULTS / "verdict.json").read_text())["cases"]
    return {(case["kind"], case["model"], case["name"]): case for case in cases}


@pytest.fixture(params=sorted(SAMPLE), ids=lambda each: "-".join(each).replace(" ", "_"))
def again(request: pytest.FixtureRequest, bench: Bench) -> Measured:
    torch.set_num_threads(1)
    case = next(case for case in CASES if (case.kind, case.model, case.name) == request.param)
    return measure(case, bench)


def test_the_figures_are_those_that_are_published(again: Measured) -> None:
    before = published()[again.kind, again.model, again.name]
    assert again.verdict == before["verdict"]
    assert again.verdict == ("FAIL" if again.kind == "fault" else "PASS")
    # Other machines round differently, so the figures differ, but not on which side of the limit they are.
    assert again.R is not None
    assert (again.R < 1.5) == (before["R"] < 1.5)


def test_the_published_bench_meets_its_bar() -> None:
    """Every fault beyond twice the noise is failed, no right variant is, and the other two ways of judging do worse."""
    cases = list(published().values())
    assert sum(case["kind"] == "fault" for case in cases) >= 25
    assert sum(case["kind"] == "right" for case in cases) >= 12
    assert not [case["name"] for case in cases if case["kind"] == "right" and case["verdict"] == "FAIL"]
    large = [case for case in cases if case["kind"] == "fault" and (case["change"] is None or case["change"] > 2)]
    assert {case["verdict"] for case in large} == {"FAIL"}
    summary = json.loads((RESULTS / "verdict.json").read_text())["summary"]
    assert summary["ours"] == {**summary["ours"], "sensitivity": 1.0, "false_fail": 0.0}
    assert max(summary["token_equality"]["sensitivity"], summary["judge"]["sensitivity"]) < 1
