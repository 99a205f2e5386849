"""Models looked at: opened, outlined and planned."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from doesitrun import hub, script
from doesitrun.campaign.asking import ask_stack, keep, kept
from doesitrun.campaign.caching import header
from doesitrun.campaign.context import Ask, Context, Prepared
from doesitrun.errors import UsageError
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.outcomes import Reason
from doesitrun.plan.outlines import Outline, Problem, outline_request, read_outlines
from doesitrun.plan.planner import PlanOptions, make_plan
from doesitrun.records import Device, Plan, Refusal, Stack, Task
from doesitrun.stacks import INSTACK
from doesitrun.targets import DEVICES
from doesitrun.tasks import TASKS


def prepare(asks: Sequence[Ask], context: Context) -> list[Prepared]:
    """The plans of many models, outlined in one process. Raises ModelNotFoundError, HubError, StackError, UsageError."""
    return prepare_opened(asks, [hub.open_checkpoint(ask.model, ask.revision) for ask in asks], context)


def prepare_opened(asks: Sequence[Ask], opened: Sequence[Checkpoint | Refusal], context: Context) -> list[Prepared]:
    """The plans of models that were looked at already, outlined in one process. Raises StackError, UsageError."""
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
    plan = make_plan(found, outline, device, task, options)
    plan = dataclasses.replace(plan, architecture=found.architecture, model_type=found.model_type)
    return Prepared(found, outline, device, task, options, plan)


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
        thorough=ask.thorough,
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
    answers = {key: answer for key in wanted if (answer := kept(folder / f"{key}.json")) is not None}
    missing = [key for key in wanted if key not in answers]
    if missing:
        models = [{**wanted[key]["models"][0], "key": key, "dtype": wanted[key]["dtype"]} for key in missing]
        answer = ask_stack("outline", "plan", {"models": models}, context)
        for model in answer["models"]:
            answers[model["key"]] = {"versions": answer["versions"], "models": [model]}
            keep(folder / f"{model['key']}.json", answers[model["key"]])
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
    return script_of(prepared.plan, context)


def script_of(plan: Plan, context: Context) -> str:
    """The run.py of a plan, with the stack's versions and the store of its graphs. Raises UsageError for a bad URL of the store."""
    return script.render(plan, TASKS[plan.task], pins(context.stack), header(context))


def pins(stack: Stack) -> dict[str, str]:
    return {name.replace("_", "-"): version for name, version in stack.versions.items()}
