"""A vision-language model with real English and a random eye: every rung is tried, on one core and sharded over two."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from doesitrun import verify
from doesitrun.outcomes import Reason, Result
from doesitrun.records import Dtype, Plan, RankBytes, Row
from doesitrun.tasks import TASKS
from tests.cpu.conftest import Command, Ran

torch = pytest.importorskip("torch", reason="the stack is not installed")
transformers = pytest.importorskip("transformers", reason="the stack is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

from doesitrun.instack import reference  # noqa: E402  torch may be absent
from tests.cpu import small_models  # noqa: E402  torch may be absent

TASK = TASKS["image-text-to-text"]


@pytest.fixture(scope="module")
def seeing(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models.vision_language(tmp_path_factory.mktemp("made") / "seeing", checkpoint)


@dataclass(frozen=True)
class Attempt:
    """A row, and what its run left."""

    row: Row
    ran: Ran
    plan: Plan
    result: dict[str, Any]


@pytest.fixture(scope="module", params=[1, 2], ids=lambda cores: f"cores-{cores}")
def attempt(
    request: pytest.FixtureRequest,
    seeing: Path,
    checkpoint: Path,
    command: Command,
    workspace: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Attempt:
    """`doesitrun test` of the model; its own language model, whole, is the judge."""
    settings = tmp_path_factory.mktemp("settings") / "doesitrun.toml"
    settings.write_text(f'[judge]\nmodel = "{checkpoint}"\n')
    ran = command("test", seeing, "--cores", request.param, "--config", settings, "--json")
    row = Row.from_json(json.loads(ran.out))
    folder = workspace / "attempts" / str(row.plan_id) / "1"
    return Attempt(row, ran, plan_in(folder), json.loads((folder / "result.json").read_bytes()))


def plan_in(folder: Path) -> Plan:
    values = json.loads((folder / "plan.json").read_bytes())
    kinds = {"dtype": Dtype(values["dtype"]), "rank_bytes": RankBytes(**values["rank_bytes"]), "notes": tuple(values["notes"])}
    return Plan(**{**values, **kinds})


def verdict_with(picture: Path, attempt: Attempt) -> verify.Verdict:
    """The verdict on what was generated, where the reference is shown `picture`."""
    asked = {**verify.reference_request(attempt.plan, attempt.result), "picture": str(picture)}
    with torch.inference_mode():
        answer = reference.answer_to(asked)
    return verify.verdict(attempt.plan, attempt.result, answer, None)


def test_it_passes_on_every_rung(attempt: Attempt) -> None:
    row = attempt.row
    assert (row.result, attempt.ran.code) == (Result.PASS, 0), row.error or row.exclusion
    assert (row.task, row.prompt) == ("image-text-to-text", TASK.prompt)
    assert row.rungs == "reference,executed,numbers" + (",fluent" if row.cores == 2 else "")
    assert row.logit_ratio is not None
    assert 0 < row.logit_ratio < 1.5
    assert len(row.output_tokens or []) == 32


def test_the_decoder_is_compiled_once_on_every_rank(attempt: Attempt) -> None:
    assert [rank["graphs"] for rank in attempt.result["ranks"]] == [1] * (attempt.row.cores or 0)
    assert attempt.row.compiled


def test_heads_that_do_not_divide_are_noted(attempt: Attempt) -> None:
    """Its 9 query and 3 key/value heads do not divide by 2."""
    overridden = "plan_override: attention is computed whole on every core" in (attempt.row.notes or "")
    assert overridden == (attempt.row.cores == 2)


def test_the_ranks_hold_what_was_planned(attempt: Attempt) -> None:
    held = [rank["weights_bytes"] for rank in attempt.result["ranks"]]
    assert max(held) == attempt.plan.rank_bytes.weights
    assert max(held) == pytest.approx(attempt.plan.weights_bytes / len(held), rel=0.01)


def test_the_prompt_holds_the_picture(attempt: Attempt, seeing: Path) -> None:
    config = json.loads((seeing / "config.json").read_text())
    assert attempt.result["prompt_ids"].count(config["image_token_id"]) == small_models.IMAGE_TOKENS


@pytest.mark.parametrize("attempt", [1], ids=["cores-1"], indirect=True)
def test_another_picture_gives_other_numbers(attempt: Attempt, tmp_path: Path) -> None:
    """So the picture did reach the device, and the comparison does look at what it made of it."""
    red = tmp_path / "red.png"
    Image.new("RGB", (224, 224), "red").save(red)
    seen = verdict_with(red, attempt)
    assert seen.outcome.reason is Reason.WRONG_NUMBERS
    assert seen.logit_ratio is not None
    assert attempt.row.logit_ratio is not None
    assert seen.logit_ratio > 3 * attempt.row.logit_ratio
    with resources.as_file(resources.files("doesitrun") / "tasks" / str(TASK.picture)) as own:
        assert verdict_with(own, attempt).logit_ratio == pytest.approx(attempt.row.logit_ratio, rel=0.01)
