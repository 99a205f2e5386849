"""One model through the layers, from its name to its row."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from doesitrun import hub, isolate, rows, script, verify
from doesitrun.campaign import evidence, oracle, witnesses
from doesitrun.campaign.asking import limits
from doesitrun.campaign.caching import cached
from doesitrun.campaign.context import Ask, Context, Progress
from doesitrun.campaign.planning import pins, prepare, script_of
from doesitrun.errors import DoesItRunError, UsageError
from doesitrun.explain import explain
from doesitrun.files import reaching, write_whole
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.outcomes import Outcome, Reason, Stage
from doesitrun.records import Plan, Refusal, Row, dumps
from doesitrun.store.workspace import read_row, write_row
from doesitrun.targets import TARGETS
from doesitrun.tasks import TASKS


def test(ask: Ask, context: Context) -> Row:
    """The row of one model, after whatever it takes; the dataset is exported. Raises as `prepare` does, and KeyboardInterrupt.

    A failure that looks intermittent is tried again, once; both attempts keep their rows.
    """
    return try_up_to(2, ask, context)


def try_up_to(tries: int, ask: Ask, context: Context) -> Row:
    """As `test`, with at most so many attempts."""
    refuse_emulated(context)
    for unknown in context.workspace.settle_interrupted().unknown:
        context.warn(unknown.problem)
    reference = None if ask.reference is None else _reference_checkpoint(ask.reference)
    (prepared,) = prepare([ask], context)
    plan = prepared.plan
    try:
        return refuse(plan, ask, context) if isinstance(plan, Refusal) else attempt(plan, reference, context, tries)
    finally:
        export(context)


def refuse_emulated(context: Context) -> None:
    """Raises UsageError where rows of an emulated device would get into a workspace that lasts."""
    if context.stack.is_emulated and not context.workspace.root.resolve().is_relative_to(tempfile.gettempdir()):
        raise UsageError(f"The device is emulated, so its rows go to a temporary workspace only: pass -w {tempfile.gettempdir()}/...")


def export(context: Context) -> None:
    """Makes the dataset say what the attempts say."""
    for warning in context.workspace.export().warnings:
        context.warn(warning)


def _reference_checkpoint(model: str) -> Checkpoint:
    found = hub.open_checkpoint(model)
    if isinstance(found, Refusal):
        raise UsageError(f"{model} cannot be the reference ({found.detail or found.reason.meaning}): name an undamaged checkpoint.")
    return found


def refuse(refusal: Refusal, ask: Ask, context: Context, stage: Stage = Stage.PLAN) -> Row:
    """The row of a model without a plan, written."""
    row = dataclasses.replace(rows.refused_row(refusal, context.stack, _now()), stage=stage)
    plan_id = rows.refusal_plan_id(refusal, context.stack, ask.dtype, ask.new_tokens)
    return write_row(context.workspace.new_attempt(plan_id, row), row)


def give_up(plan: Plan, outcome: Outcome, context: Context) -> Row:
    """The row of a plan that cannot even be tried, written."""
    row = rows.pending_row(plan, context.stack, script.render(plan, TASKS[plan.task], pins(context.stack)), _now())
    folder = context.workspace.new_attempt(plan.plan_id, row)
    return write_row(folder, rows.ended_row(row, outcome, _now()))


def close_pending(plan: Plan, outcome: Outcome, context: Context) -> Row:
    """The row of the newest attempt at the plan, which a fault of ours left pending, written."""
    folders = (context.workspace.attempts / plan.plan_id).iterdir()
    folder = max((each for each in folders if each.name.isdigit()), key=lambda each: int(each.name))
    row = read_row(folder)
    if isinstance(row, Row) and row.result is None:
        return write_row(folder, rows.ended_row(row, outcome, _now()))
    return give_up(plan, outcome, context)


def attempt(plan: Plan, reference: Checkpoint | None, context: Context, tries: int = 2) -> Row:
    """The row of an attempt at a plan, written; a KeyboardInterrupt leaves one, too, and comes through.

    Of several attempts it is the last: the first one whose failure, if any, does not look intermittent.
    """
    row = _attempt(plan, reference, context, None)
    for _ in range(1, tries):
        if row.reason is None or not row.reason.looks_intermittent:
            break
        context.warn(f"{row.model_id}: {row.reason.value} may come and go, so it is tried once more; both attempts are kept.")
        row = _attempt(plan, reference, context, row)
    return row


def _attempt(plan: Plan, reference: Checkpoint | None, context: Context, earlier: Row | None) -> Row:
    text = script_of(plan, context)
    row = rows.pending_row(plan, context.stack, text, _now(), retry_of=earlier)
    folder = context.workspace.new_attempt(plan.plan_id, row)
    try:
        with reaching(folder):
            write_whole(folder / "plan.json", dumps(plan).encode())
            write_whole(folder / "run.py", text.encode())
            return write_row(folder, _tried(plan, row, folder, reference, context))
    except KeyboardInterrupt:
        write_row(folder, rows.ended_row(row, Outcome(_stage(folder), Reason.INTERRUPTED, "It was stopped by the user."), _now()))
        raise
    except DoesItRunError as error:
        return write_row(folder, rows.ended_row(row, Outcome(_stage(folder), Reason.HARNESS_ERROR, str(error)), _now()))


def _tried(plan: Plan, row: Row, folder: Path, reference: Checkpoint | None, context: Context) -> Row:
    """The row after the run and, if it left a result, after the verdict."""
    argv = [context.stack.python, "run.py", "--report", "."]
    expected = _expected(folder)

    def watch(stage: Stage, elapsed_s: float) -> None:
        context.watch(Progress(stage, elapsed_s, expected.get(stage)))

    with cached(plan, context) as cache:
        variables = TARGETS[plan.target].environment(str(cache.folder))
        environment = isolate.child_environment(os.environ, variables, keep_token=plan.gated)
        ended = context.seat.on_device(argv, folder, environment, limits(context), watch)
        result = isolate.read_result(folder)
        measured = cache.collected(rows.measured_row(row, result), result) if result and verify.is_usable(plan, result) else row
        row = cache.noted(row)
        write_whole(folder / "graphs.json", dumps(cache.record()).encode())
    write_whole(folder / "ended.json", dumps(ended).encode())
    outcome = explain(ended, result, isolate.read_log(folder), plan.target)
    if outcome is not None:
        return rows.ended_row(row, evidence.in_probe(outcome, folder), _now(), wall_s=ended.wall_s)
    if result is None or not verify.is_usable(plan, result):
        return rows.ended_row(row, verify.verdict(plan, result or {}, None, None).outcome, _now(), wall_s=ended.wall_s)
    return _judged(plan, dataclasses.replace(measured, wall_s=round(ended.wall_s)), result, folder, reference, context)


def _expected(folder: Path) -> dict[str, float]:
    """Seconds per stage in the last earlier attempt that got through; none where there was no such attempt."""
    earlier = [read_row(folder.parent / str(number)) for number in range(int(folder.name) - 1, 0, -1)]
    row = next((row for row in earlier if isinstance(row, Row) and row.warm_run_s is not None), Row())
    seconds = {Stage.LOAD: row.load_s, Stage.COMPILE: row.run_s, Stage.RUN: row.warm_run_s}
    return {stage: value for stage, value in seconds.items() if value is not None}


def _judged(plan: Plan, row: Row, result: Mapping[str, Any], folder: Path, reference: Checkpoint | None, context: Context) -> Row:
    """The row after the reference and the judge were heard; what they said is kept beside the result."""
    context.seat.leave_device(verify.reference_memory(plan))
    try:
        answer, reference_s = witnesses.reference(plan, result, reference, context)
    except DoesItRunError as error:
        return rows.ended_row(row, Outcome(Stage.VERIFY, Reason.REFERENCE_FAILED, str(error)), _now())
    evidence.keep(folder, evidence.REFERENCE, answer)
    row = dataclasses.replace(row, reference_s=reference_s)
    word = None
    if verify.needs_judge(plan):
        try:
            word, judge_s, name = witnesses.judge(plan, result, context)
        except DoesItRunError as error:
            return rows.ended_row(row, Outcome(Stage.VERIFY, Reason.JUDGE_FAILED, str(error)), _now())
        evidence.keep(folder, evidence.JUDGE, word)
        row = dataclasses.replace(row, judge_s=judge_s, judge=name, judge_limits=verify.judge_limits())
    found = verify.verdict(plan, result, answer, word)
    row = rows.judged_row(row, found)
    if reference is None and oracle.is_asked(plan, found):
        return rows.blamed_row(row, found.outcome, oracle.word(plan, folder, context), _now())
    return rows.ended_row(row, found.outcome, _now())


# ---------------------------------------------------------------------------------- small things
def _stage(folder: Path) -> Stage:
    try:
        return Stage((folder / "stage").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Stage.START


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
