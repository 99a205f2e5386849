"""What cannot be looked at is a refusal that says why, and hides no other model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from doesitrun.campaign import Ask, Context, Prepared, survey
from doesitrun.campaign.survey import PAUSES
from doesitrun.errors import HubError, ModelNotFoundError, StackError
from doesitrun.hub import HubThrottledError
from doesitrun.outcomes import Reason, Result
from doesitrun.plan.planner import PlanOptions
from doesitrun.records import PlanId, Refusal
from doesitrun.rows import refusal_plan_id
from doesitrun.settings import Settings
from doesitrun.store.workspace import Workspace
from doesitrun.targets import DEVICES
from doesitrun.tasks import TASKS
from tests.pure.test_conduct import STACK


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(STACK, Settings(), Workspace(tmp_path), lambda _: None, lambda _: None)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(survey.time, "sleep", found.append)
    return found


def refusals(asks: Sequence[Ask], context: Context) -> list[Refusal]:
    return [each.plan for each in survey.survey(asks, context) if isinstance(each.plan, Refusal)]


def failing(errors: dict[str, Exception]) -> Any:
    def opened(model: str, revision: str | None) -> Refusal:
        if model in errors:
            raise errors[model]
        return Refusal(model, revision or "", Reason.NO_WEIGHTS, "It has none.")

    return opened


def test_each_failure_of_the_hub_is_told_by_its_reason(context: Context, monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    errors = {
        "org/gone": ModelNotFoundError("gone"),
        "org/down": HubError("down"),
        "org/slow": HubThrottledError("slow"),
        "/no/such": ModelNotFoundError("no"),
    }
    monkeypatch.setattr(survey.hub, "open_checkpoint", failing(errors))
    found = refusals([Ask(name) for name in [*errors, "org/fine"]], context)
    assert [each.reason for each in found] == [
        Reason.PRIVATE,
        Reason.HUB_ERROR,
        Reason.HUB_THROTTLED,
        Reason.NOT_TRANSFORMERS,
        Reason.NO_WEIGHTS,
    ]
    assert [each.reason.result for each in found][1:3] == [Result.INCONCLUSIVE] * 2, "nothing is known of the model"
    assert len(slept) == PAUSES
    for each in found:
        PlanId.parse(refusal_plan_id(each, STACK, Ask("").dtype, 32))


def test_a_hub_that_asks_to_slow_down_is_waited_for(context: Context, monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    answers = iter([HubThrottledError("slow"), HubThrottledError("slow"), Refusal("org/a", "", Reason.NO_WEIGHTS, "")])

    def opened(*_: object) -> Refusal:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(survey.hub, "open_checkpoint", opened)
    assert [each.reason for each in refusals([Ask("org/a")], context)] == [Reason.NO_WEIGHTS]
    assert len(slept) == 2


def test_a_model_that_breaks_the_stacks_script_hides_no_other(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepared(asks: Sequence[Ask], opened: Sequence[Refusal], _: Context) -> list[Prepared]:
        if any(one.model_id == "org/3" and one.reason is not Reason.HARNESS_ERROR for one in opened):
            raise StackError("outline was ended by signal 11")
        return [Prepared(None, None, DEVICES["cpu"], TASKS["text-generation"], PlanOptions(), one) for one in opened]

    monkeypatch.setattr(survey.hub, "open_checkpoint", failing({}))
    monkeypatch.setattr(survey, "prepare_opened", prepared)
    found = refusals([Ask(f"org/{n}") for n in range(7)], context)
    assert [each.model_id for each in found] == [f"org/{n}" for n in range(7)]
    assert [each.reason for each in found if each.model_id == "org/3"] == [Reason.HARNESS_ERROR]
    assert sum(each.reason is Reason.NO_WEIGHTS for each in found) == 6
