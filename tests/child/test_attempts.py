"""Attempts around a toy script: tried again, repeated, blamed and judged again from what they left."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pure.test_rows import NOW
from tests.pure.test_verify import JUDGE, evidence, greedy_of, plan

from doesitrun import campaign, rows
from doesitrun.campaign import Ask, Context, Prepared, oracle, trial, witnesses
from doesitrun.errors import EXIT_DISAGREES
from doesitrun.outcomes import Reason, Result
from doesitrun.plan.planner import PlanOptions
from doesitrun.records import Blame, Plan, Row, Stack
from doesitrun.settings import Settings
from doesitrun.store.workspace import Workspace
from doesitrun.targets import DEVICES
from doesitrun.tasks import TASKS

Json = dict[str, Any]
CRASH = """
[rank1]: Traceback (most recent call last):
[rank1]:   File "run.py", line 96, in run
[rank1]: RuntimeError: neuronx-cc failed: compiler returned exit code 70
"""
SECONDS = {"load_s": 1.0, "first_s": 2.0, "second_s": 1.0}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    versions = {"torch": "2.13.0", "transformers": "5.24.0", "python": "3.12", "os": "Linux"}
    stack = Stack("toy", sys.executable, "cpu", "cpu", 2, 2**40, versions, "inductor", "2.13.0")
    return Context(stack, Settings(), Workspace(tmp_path / "results"), watch=lambda _: None, warn=lambda _: None)


@pytest.fixture
def toy(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ask]:
    """Makes every test run a toy: it crashes in its first `crashes` attempts and leaves `result` in later ones."""

    def make(result: Json, reference: Json, cores: int = 1, crashes: int = 0) -> Ask:
        known = plan(cores, target="neuron", device="trn2") if crashes else plan(cores)
        told = tmp_path / "told.json"
        told.write_text(json.dumps(result | SECONDS))
        text = (
            f"import pathlib, shutil, sys\ncount = pathlib.Path({str(tmp_path / 'count')!r})\n"
            "tries = int(count.read_text()) if count.exists() else 0\ncount.write_text(str(tries + 1))\n"
            f"pathlib.Path('stage').write_text('compile')\n"
            f"if tries < {crashes}:\n    sys.exit({CRASH!r})\n"
            f"shutil.copy({str(told)!r}, 'result.json')\npathlib.Path('stage').write_text('exit')\n"
        )
        monkeypatch.setattr(trial, "prepare", lambda *_: [prepared(known)])
        monkeypatch.setattr(trial.script, "render", lambda *_, **__: text)
        monkeypatch.setattr(witnesses, "reference", lambda *_: (reference, 1.0))
        monkeypatch.setattr(witnesses, "judge", lambda *_: (JUDGE, 1.0, "a/judge@main"))
        return Ask("toy")

    return make


def prepared(known: Plan) -> Prepared:
    return Prepared(None, None, DEVICES["cpu"], TASKS[known.task], PlanOptions(), known)


def wrong(cores: int) -> tuple[Json, Json]:
    """A run whose numbers are off, though every token is the best of its own logits."""
    result, reference = evidence(cores=cores)
    result = copy.deepcopy(result)
    result["top_logits"] = [[-x for x in reversed(row)] for row in reference["fp32"]]
    result["tokens"] = result["warm_tokens"] = greedy_of(result)
    for rank in result["ranks"]:
        rank["tokens"] = result["tokens"]
    return result, reference


def verify_command(context: Context, *names: object) -> tuple[int, list[Json]]:
    argv = [sys.executable, "-m", "doesitrun", "verify", *map(str, names), "--json", "-w", str(context.workspace.root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


# ---------------------------------------------------------------------------------- second tries and repeats
def test_a_compiler_that_crashed_once_is_tried_again_and_both_attempts_stay(toy: Callable[..., Ask], context: Context) -> None:
    row = campaign.test(toy(*evidence(), crashes=1), context)
    first, second = context.workspace.rows().rows
    assert (first.result, first.reason, first.retry_of) == (Result.FAIL, Reason.COMPILER_BUG, None)
    assert (second.result, second.attempt, second.retry_of) == (Result.PASS, 2, first.run_id)
    assert row == second
    assert "tried again after compiler_bug in attempt 1" in (second.notes or "")
    assert verify_command(context)[0] == 0


def test_a_compiler_that_crashes_twice_has_failed(toy: Callable[..., Ask], context: Context) -> None:
    row = campaign.test(toy(*evidence(), crashes=9), context)
    assert (row.result, row.reason, row.attempt) == (Result.FAIL, Reason.COMPILER_BUG, 2)
    assert len(context.workspace.rows().rows) == 2


def test_repeats_are_attempts_of_their_own_and_none_is_tried_again(toy: Callable[..., Ask], context: Context) -> None:
    found = list(campaign.repeat(toy(*evidence(), crashes=1), context, 3))
    assert [row.result for row in found] == [Result.FAIL, Result.PASS, Result.PASS]
    assert [row.attempt for row in found] == [1, 2, 3]
    flakes = campaign.flakes(found)
    assert (flakes.usual, flakes.rate) == (Result.PASS, pytest.approx(1 / 3))


# ---------------------------------------------------------------------------------- who is at fault
@pytest.mark.parametrize("cores", [1, 2])
def test_wrong_numbers_are_brought_before_the_oracle_when_sharded(
    cores: int, toy: Callable[..., Ask], context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle, "word", lambda *_: (Blame.LIBRARY, "The CPU's ranks are wrong, too."))
    row = campaign.test(toy(*wrong(cores), cores=cores), context)
    assert (row.result, row.reason) == (Result.FAIL, Reason.WRONG_NUMBERS)
    assert row.blame == (Blame.LIBRARY if cores == 2 else None)
    assert (row.error or "").endswith("The CPU's ranks are wrong, too.") == (cores == 2)
    assert Row.from_json(row.to_json()) == row


def test_the_judge_its_revision_and_its_limits_are_in_the_row(toy: Callable[..., Ask], context: Context) -> None:
    row = campaign.test(toy(*evidence(cores=2), cores=2), context)
    assert (row.judge, row.result) == ("a/judge@main", Result.PASS)
    assert "nll<=" in (row.judge_limits or "")


# ---------------------------------------------------------------------------------- replay
def edited(folder: Path, name: str, edit: Callable[[Json], None]) -> None:
    values = json.loads((folder / name).read_text())
    edit(values)
    (folder / name).write_text(json.dumps(values))


def test_a_row_is_reached_again_without_a_stack(toy: Callable[..., Ask], context: Context) -> None:
    row = campaign.test(toy(*evidence(cores=2), cores=2), context)
    folder = context.workspace.folder(row)
    for name in (folder, row.run_id, row.plan_id):
        code, (said,) = verify_command(context, name)
        assert (code, said["agrees"], said["run_id"]) == (0, True, row.run_id), said


FORGED = [
    ("row.json", lambda values: values.update(result="PASS", reason=None, error=None), "result"),
    ("row.json", lambda values: values.update(logit_ratio=0.9), "logit_ratio"),
    ("row.json", lambda values: values.update(rungs="reference,executed,numbers"), "rungs"),
    ("row.json", lambda values: values.update(output_text="Once upon a time."), "output_text"),
    ("result.json", lambda values: values["top_logits"][0].__setitem__(0, 1e9), "logit_ratio"),
    ("reference.json", lambda values: values.update(passage_loss=11.0), "passage_loss"),
    ("ended.json", lambda values: values.update(exit_status=1, stage="run"), "stage"),
]


@pytest.mark.parametrize(("name", "forge", "column"), FORGED, ids=lambda each: each if isinstance(each, str) else "")
def test_a_row_that_its_evidence_does_not_bear_out_is_found(
    name: str, forge: Callable[[Json], None], column: str, toy: Callable[..., Ask], context: Context
) -> None:
    row = campaign.test(toy(*wrong(1)), context)
    folder = context.workspace.folder(row)
    assert campaign.replay(folder).agrees is True
    edited(folder, name, forge)
    found = campaign.replay(folder)
    assert found.agrees is False
    assert column in [difference.partition(" ")[0] for difference in found.differences]


def test_the_command_says_that_a_row_differs(toy: Callable[..., Ask], context: Context) -> None:
    row = campaign.test(toy(*wrong(1)), context)
    edited(context.workspace.folder(row), "row.json", lambda values: values.update(result="PASS", reason=None, error=None))
    code, (said,) = verify_command(context, row.run_id)
    assert (code, said["agrees"], said["now"]["reason"]) == (EXIT_DISAGREES, False, "wrong_numbers")


def test_an_attempt_whose_reference_was_not_kept_cannot_be_judged_again(toy: Callable[..., Ask], context: Context) -> None:
    folder = context.workspace.folder(campaign.test(toy(*evidence()), context))
    (folder / "reference.json").unlink()
    found = campaign.replay(folder)
    assert (found.agrees, "not in the attempt's folder" in found.why) == (None, True)


def test_a_pass_without_a_run_is_no_pass(context: Context) -> None:
    known = plan()
    row = rows.pending_row(known, context.stack, "", NOW)
    folder = context.workspace.new_attempt(known.plan_id, row)
    assert campaign.replay(folder).agrees is None, "it is pending"
    edited(folder, "row.json", lambda values: values.update(result="PASS", stage="verify"))
    assert campaign.replay(folder).agrees is False


def test_an_attempt_that_is_not_there_is_one_sentence(context: Context) -> None:
    argv = [sys.executable, "-m", "doesitrun", "verify", "nowhere", "-w", str(context.workspace.root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
