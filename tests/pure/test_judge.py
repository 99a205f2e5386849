"""The judge on labelled texts: the bench's figures follow from its likelihoods and today's rules."""

from __future__ import annotations

import json

import pytest
from bench import judge as bench
from bench.report import RESULTS

from doesitrun.verify.fluency import degenerate, fluency

FIGURES = json.loads((RESULTS / "judge.json").read_text(encoding="utf-8"))
TEXTS = bench.labelled()
PROSE = [each for each in TEXTS if each.is_fluent and each.kind != "later"]


def test_there_are_enough_texts_of_each_label_and_none_twice() -> None:
    assert min(FIGURES["fluent"], FIGURES["broken"]) >= 60
    assert len({each.text for each in TEXTS}) == len(TEXTS) == len(FIGURES["nll"])


def test_the_benchs_accuracy_is_that_of_todays_rules() -> None:
    held_out, wrong = bench.accuracy(*bench.half(TEXTS, FIGURES["nll"], held_out=True))
    assert held_out == pytest.approx(FIGURES["accuracy_held_out"])
    assert held_out >= 0.9
    assert sum(each.is_fluent for each in wrong) <= 1
    alone, _ = bench.accuracy(*bench.half(TEXTS, FIGURES["nll"], held_out=True), by_likelihood=True)
    assert alone < held_out


@pytest.mark.parametrize(
    "each", [each for each in TEXTS if each.is_fluent and each.kind != "later"], ids=lambda each: f"{each.kind}-{each.place}"
)
def test_the_face_of_a_fluent_text_is_fluent(each: bench.Labelled) -> None:
    assert degenerate(each.text) is None


@pytest.mark.parametrize("text", ["j4" * 16, "if (x == null) { return a[i]; } sum += f(x);", "\\frac{1}{2} \\sum_{i=0} x_i", "haha" * 9])
def test_code_and_echoes_are_caught_however_likely_a_judge_finds_them(text: str) -> None:
    assert not fluency(text, 0.5).fluent


@pytest.mark.parametrize(
    "text",
    ["It was late.", "Oh no, no, no! You cannot come in with those shoes.", "Well... I don't know...", "Dr. Hill paid $4.50 on the 3rd."],
)
def test_short_and_lively_texts_are_let_through(text: str) -> None:
    assert fluency(text, 2.0).fluent
