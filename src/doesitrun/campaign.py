"""The only composer: a model through the layers, from its name to its row."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from doesitrun import hub, isolate, rows, script, verify
from doesitrun.errors import DoesItRunError, UsageError
from doesitrun.explain import explain
from doesitrun.files import reaching, write_whole
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.isolate import Limits
from doesitrun.outcomes import Outcome, Reason, Stage
from doesitrun.plan.outlines import Outline, Problem, outline_request, read_outlines
from doesitrun.plan.planner import PlanOptions, make_plan
from doesitrun.records import Device, Dtype, Plan, Refusal, Row, Stack, Task, dumps
from doesitrun.settings import JudgeSettings, Settings
from doesitrun.stacks import INSTACK
from doesitrun.store.workspace import Workspace, read_row, write_row
from doesitrun.targets import DEVICES, TARGETS
from doesitrun.tasks import TASKS


@dataclass(frozen=True)
class Ask:
    """What the user asks of one model; None leaves it to the planner."""

    model: str
    revision: str | None = None
    task: str | None = None
    device: str | None = None
    cores: int | None = None
    dtype: Dtype = Dtype.BFLOAT16
    new_tokens: int = 32
    prompt: str | None = None
    trust_remote_code: bool = False
    reference: str | None = None
    """Another checkpoint to compare with, instead of the model's own weights."""


@dataclass(frozen=True)
class Progress:
    """What is being done now (plan, start, load, compile, run, exit, reference or judge), and for how long."""

    step: str
    elapsed_s: float
    expected_s: float | None = None
    """What the step took the last time; None where it was never done."""


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Context:
    """Where models are run: one stack, one workspace, and who hears of it."""

    stack: Stack
    settings: Settings
    workspace: Workspace
    watch: Watch
    warn: Callable[[str], None]
    """Is told, in a sentence, what the user should know but need not act on at once."""


@dataclass(frozen=True)
class Prepared:
    """A model that was looked at: its plan, or why it has none. The first two are None where it could not be read."""

    checkpoint: Checkpoint | None
    outline: Outline | Problem | None
    device: Device
    task: Task
    options: PlanOptions
    plan: Plan | Refusal


# ---------------------------------------------------------------------------------- planning
def prepare(asks: Sequence[Ask], context: Context) -> list[Prepared]:
    """The plans of many models, outlined in one process. Raises ModelNotFoundError, HubError, StackError, UsageError."""
    opened = [hub.open_checkpoint(ask.model, ask.revision) for ask in asks]
    requests = [_outline_request(ask, found) if isinstance(found, Checkpoint) else None for ask, found in zip(asks, opened, strict=True)]
    outlines = _outlines([request for request in requests if request is not None], context)
    return [
        _prepared(ask, found, outlines.get(_key(request, context.stack)) if request else None, context)
        for ask, found, request in zip(asks, opened, requests, strict=True)
    ]


def _prepared(ask: Ask, found: Checkpoint | Refusal, outline: Outline | Problem | None, context: Context) -> Prepared:
    device, options = _device(ask, context.stack), _options(ask, context.stack)
    if isinstance(found, Refusal) or outline is None:
        task = TASKS[ask.task or "text-generation"]
        return Prepared(None, None, device, task, options, found if isinstance(found, Refusal) else _no_outline(found))
    task = TASKS[outline.task] if isinstance(outline, Outline) else _first_task(ask, found)
    return Prepared(found, outline, device, task, options, make_plan(found, outline, device, task, options))


def _no_outline(found: Checkpoint) -> Refusal:
    return Refusal(found.model_id, found.revision, Reason.HARNESS_ERROR, "The stack gave no outline of it.")


def _first_task(ask: Ask, found: Checkpoint) -> Task:
    return TASKS[ask.task or (found.pipeline_tag if found.pipeline_tag in TASKS else None) or "text-generation"]


def _device(ask: Ask, stack: Stack) -> Device:
    name = ask.device or stack.device
    if name not in DEVICES:
        raise UsageError(f"There is no device {name!r}: choose one of {', '.join(DEVICES)} with --device.")
    return DEVICES[name]


def _options(ask: Ask, stack: Stack) -> PlanOptions:
    return PlanOptions(
        cores=ask.cores,
        dtype=ask.dtype,
        new_tokens=ask.new_tokens,
        prompt=ask.prompt,
        host_memory_bytes=stack.host_memory_bytes,
        trust_remote_code=ask.trust_remote_code,
    )


def _outline_request(ask: Ask, found: Checkpoint) -> dict[str, Any]:
    if ask.task is not None and ask.task not in TASKS:
        raise UsageError(f"There is no task {ask.task!r}: choose one of {', '.join(TASKS)}.")
    tasks = [TASKS[ask.task]] if ask.task else list(TASKS.values())
    return outline_request([found], tasks, ask.dtype, trust_remote_code=ask.trust_remote_code)


def _outlines(requests: Iterable[Mapping[str, Any]], context: Context) -> dict[str, Outline | Problem]:
    """Outlines by the key of their request. Those that the workspace holds are not made again."""
    folder = context.workspace.root / "outlines"
    wanted = {_key(request, context.stack): request for request in requests}
    answers = {key: answer for key in wanted if (answer := _kept(folder / f"{key}.json")) is not None}
    missing = [key for key in wanted if key not in answers]
    if missing:
        models = [{**wanted[key]["models"][0], "key": key, "dtype": wanted[key]["dtype"]} for key in missing]
        answer = _ask_stack("outline", "plan", {"models": models}, context)
        for model in answer["models"]:
            answers[model["key"]] = {"versions": answer["versions"], "models": [model]}
            _keep(folder / f"{model['key']}.json", answers[model["key"]])
    return {key: read_outlines(answer)[0] for key, answer in answers.items()}


def _key(request: Mapping[str, Any], stack: Stack) -> str:
    versions = {name: stack.versions.get(name) for name in ("torch", "transformers")}
    content = json.dumps([request, versions, _outline_code()], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


@cache
def _outline_code() -> str:
    """What makes outlines is part of what they depend on; read once, for keys are made for every model."""
    return (INSTACK / "outline.py").read_text(encoding="utf-8")


def run_py(prepared: Prepared, context: Context) -> str:
    """The script of a plan. Raises UsageError, with the reason, where there is no plan."""
    if isinstance(prepared.plan, Refusal):
        refusal = prepared.plan
        raise UsageError(f"{refusal.model_id} has no script, for it would not be run. {refusal.detail} {refusal.reason.advice}")
    return script.render(prepared.plan, prepared.task, _pins(context.stack))


# ---------------------------------------------------------------------------------- testing
def test(ask: Ask, context: Context) -> Row:
    """The row of one model, after whatever it takes; the dataset is exported. Raises as `prepare` does, and KeyboardInterrupt."""
    if context.stack.is_emulated and not context.workspace.root.resolve().is_relative_to(tempfile.gettempdir()):
        raise UsageError(f"The device is emulated, so its rows go to a temporary workspace only: pass -w {tempfile.gettempdir()}/...")
    for unknown in context.workspace.settle_interrupted().unknown:
        context.warn(unknown.problem)
    reference = None if ask.reference is None else _reference_checkpoint(ask.reference)
    (prepared,) = prepare([ask], context)
    plan = prepared.plan
    row = _refuse(plan, ask, context) if isinstance(plan, Refusal) else _attempt(plan, reference, context)
    _export(context)
    return row


def _export(context: Context) -> None:
    for warning in context.workspace.export().warnings:
        context.warn(warning)


def _reference_checkpoint(model: str) -> Checkpoint:
    found = hub.open_checkpoint(model)
    if isinstance(found, Refusal):
        raise UsageError(f"{model} cannot be the reference ({found.detail or found.reason.meaning}): name an undamaged checkpoint.")
    return found


def _refuse(refusal: Refusal, ask: Ask, context: Context) -> Row:
    row = rows.refused_row(refusal, context.stack, _now())
    plan_id = rows.refusal_plan_id(refusal, context.stack, ask.dtype, ask.new_tokens)
    return write_row(context.workspace.new_attempt(plan_id, row), row)


def _attempt(plan: Plan, reference: Checkpoint | None, context: Context) -> Row:
    text = script.render(plan, TASKS[plan.task], _pins(context.stack))
    row = rows.pending_row(plan, context.stack, text, _now())
    folder = context.workspace.new_attempt(plan.plan_id, row)
    try:
        with reaching(folder):
            write_whole(folder / "plan.json", dumps(plan).encode())
            write_whole(folder / "run.py", text.encode())
            return write_row(folder, _tried(plan, row, folder, reference, context))
    except KeyboardInterrupt:
        write_row(folder, rows.ended_row(row, Outcome(_stage(folder), Reason.INTERRUPTED, "It was stopped by the user."), _now()))
        _export(context)
        raise
    except DoesItRunError as error:
        return write_row(folder, rows.ended_row(row, Outcome(_stage(folder), Reason.HARNESS_ERROR, str(error)), _now()))


def _tried(plan: Plan, row: Row, folder: Path, reference: Checkpoint | None, context: Context) -> Row:
    """The row after the run and, if it left a result, after the verdict."""
    argv = [context.stack.python, "run.py", "--report", "."]
    expected = _expected(folder)

    def watch(stage: Stage, elapsed_s: float) -> None:
        context.watch(Progress(stage, elapsed_s, expected.get(stage)))

    with _compiler_safe(graphs_folder(context)) as cache:
        variables = TARGETS[plan.target].environment(str(cache))
        environment = isolate.child_environment(os.environ, variables, keep_token=plan.gated)
        ended = isolate.run(argv, folder, environment, _limits(context), watch)
    write_whole(folder / "ended.json", dumps(ended).encode())
    result = isolate.read_result(folder)
    outcome = explain(ended, result, isolate.read_log(folder), plan.target)
    if outcome is not None:
        return rows.ended_row(row, outcome, _now(), wall_s=ended.wall_s)
    if result is None or not verify.is_usable(plan, result):
        return rows.ended_row(row, verify.verdict(plan, result or {}, None, None).outcome, _now(), wall_s=ended.wall_s)
    return _judged(plan, rows.measured_row(row, result), result, reference, ended.wall_s, context)


def _expected(folder: Path) -> dict[str, float]:
    """Seconds per stage in the last earlier attempt that got through; none where there was no such attempt."""
    earlier = [read_row(folder.parent / str(number)) for number in range(int(folder.name) - 1, 0, -1)]
    row = next((row for row in earlier if isinstance(row, Row) and row.warm_run_s is not None), Row())
    seconds = {Stage.LOAD: row.load_s, Stage.COMPILE: row.run_s, Stage.RUN: row.warm_run_s}
    return {stage: value for stage, value in seconds.items() if value is not None}


def _judged(plan: Plan, row: Row, result: Mapping[str, Any], reference: Checkpoint | None, wall_s: float, context: Context) -> Row:
    """The row after the reference and the judge were heard."""
    try:
        answer, reference_s = _reference(plan, result, reference, context)
    except DoesItRunError as error:
        return rows.ended_row(row, Outcome(Stage.VERIFY, Reason.REFERENCE_FAILED, str(error)), _now(), wall_s=wall_s)
    row = dataclasses.replace(row, reference_s=reference_s)
    word = None
    if verify.needs_judge(plan):
        try:
            word, judge_s, name = _judge(plan, result, context)
        except DoesItRunError as error:
            return rows.ended_row(row, Outcome(Stage.VERIFY, Reason.JUDGE_FAILED, str(error)), _now(), wall_s=wall_s)
        row = dataclasses.replace(row, judge_s=judge_s, judge=name)
    found = verify.verdict(plan, result, answer, word)
    return rows.ended_row(rows.judged_row(row, found), found.outcome, _now(), wall_s=wall_s)


def _reference(plan: Plan, result: Mapping[str, Any], other: Checkpoint | None, context: Context) -> tuple[dict[str, Any] | None, float]:
    """The reference's answer and seconds; no answer when the host's memory cannot hold it."""
    if verify.reference_memory(plan) > context.stack.host_memory_bytes:
        return None, 0.0
    if other is not None:
        plan = dataclasses.replace(plan, model_id=other.model_id, revision=other.revision, source=other.source, gated=other.gated)
    request = verify.reference_request(plan, result)
    key = verify.reference_key(plan, request, context.stack.versions)
    if request["picture"] is not None:
        request["picture"] = str(resources.files("doesitrun") / "tasks" / request["picture"])
    return _reused(key, "reference", request, context, keep_token=plan.gated)


def _judge(plan: Plan, result: Mapping[str, Any], context: Context) -> tuple[dict[str, Any], float, str]:
    """The judge's answer and seconds, and the judge's name for the row."""
    settings = context.settings.judge
    request = verify.judge_request(plan, result, settings.model, settings.revision)
    name = _judge_name(settings)
    key = verify.judge_key({**request, "model": name}, context.stack.versions)
    return *_reused(key, "judge", request, context), name


def _judge_name(settings: JudgeSettings) -> str:
    """The judge and its revision; for a folder, the sha256 of its content stands for the revision."""
    found = hub.open_checkpoint(settings.model, settings.revision)
    if isinstance(found, Refusal):
        raise UsageError(f"{settings.model} cannot judge ({found.detail or found.reason.meaning}): set judge.model in doesitrun.toml.")
    return f"{found.model_id}@{found.revision}"


# ---------------------------------------------------------------------------------- small things
def graphs_folder(context: Context) -> Path:
    """Where compiled graphs are kept: one folder per compiler and framework version, for their keys may not hold these."""
    stack = context.stack
    own = [column for column, name in TARGETS[stack.target].VERSION_COLUMNS.items() if name != stack.compiler]
    framework = "_".join(f"{name.replace('_', '-')}-{stack.versions[name]}" for name in own or ["torch"] if name in stack.versions)
    return context.workspace.root.resolve() / "graphs" / stack.target / f"{stack.compiler}-{stack.compiler_version}" / framework


@contextmanager
def _compiler_safe(folder: Path) -> Iterator[Path]:
    """The folder, or a link to it whose path needs no quotes: compilers are called with paths that nobody quoted."""
    with reaching(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if re.fullmatch(r"[A-Za-z0-9._/+@=-]+", str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="doesitrun-graphs-") as place:
        link = Path(place) / "graphs"
        link.symlink_to(folder, target_is_directory=True)
        yield link


def _reused(key: str, name: str, request: Mapping[str, Any], context: Context, *, keep_token: bool = False) -> tuple[dict[str, Any], float]:
    """The answer of a script and its seconds; one that the workspace holds is taken from there, in no time."""
    path = context.workspace.root / "references" / f"{key}.json"
    answer, started = _kept(path), time.monotonic()
    if answer is not None:
        return answer, 0.0
    answer = _ask_stack(name, name, request, context, keep_token=keep_token)
    seconds = time.monotonic() - started
    _keep(path, answer)
    return answer, seconds


def _ask_stack(name: str, step: str, request: Mapping[str, Any], context: Context, *, keep_token: bool = False) -> dict[str, Any]:
    """The answer of a script of instack/, run in the stack. Raises StackError."""
    folder = context.workspace.root / "scripts" / f"{name}-{os.getpid()}"
    limits = _limits(context)
    # A script is one stage: it may take as long as a run may load and compute.
    limits = dataclasses.replace(limits, start_s=limits.start_s if step == "plan" else limits.load_s + limits.run_s)

    def watch(_: Stage, elapsed_s: float) -> None:
        context.watch(Progress(step, elapsed_s))

    environment = isolate.child_environment(os.environ, {}, keep_token=keep_token)
    try:
        with reaching(folder):
            answer = isolate.run_script(
                INSTACK / f"{name}.py", context.stack.python, request, folder, limits=limits, env=environment, watch=watch
            )
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)  # a script that failed leaves its log there
    return answer


def _kept(path: Path) -> dict[str, Any] | None:
    """A kept answer; one that cannot be read is as good as none."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def _keep(path: Path, answer: Mapping[str, Any]) -> None:
    with reaching(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(answer).encode())


def _limits(context: Context) -> Limits:
    asked = context.settings.limits
    given = {name: value for name, value in dataclasses.asdict(asked).items() if value is not None and name != "memory_gb"}
    # Without a limit of its own, a run may take nearly all of the host's memory, but never the host.
    memory = asked.memory_gb * 1e9 if asked.memory_gb else context.stack.host_memory_bytes * 0.92
    return Limits(**given, memory_bytes=int(memory))


def _pins(stack: Stack) -> dict[str, str]:
    return {name.replace("_", "-"): version for name, version in stack.versions.items()}


def _stage(folder: Path) -> Stage:
    try:
        return Stage((folder / "stage").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Stage.START


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
