"""The CPU reference and the judge, asked about a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import resources
from typing import Any

from doesitrun import hub, verify
from doesitrun.campaign.asking import reused
from doesitrun.campaign.context import Context
from doesitrun.errors import UsageError
from doesitrun.hub.checkpoint import Checkpoint
from doesitrun.records import Plan, Refusal
from doesitrun.settings import JudgeSettings


def reference(plan: Plan, result: Mapping[str, Any], other: Checkpoint | None, context: Context) -> tuple[dict[str, Any] | None, float]:
    """The reference's answer and seconds; no answer when the host's memory cannot hold it."""
    if verify.reference_memory(plan) > context.stack.host_memory_bytes:
        return None, 0.0
    if other is not None:
        plan = dataclasses.replace(plan, model_id=other.model_id, revision=other.revision, source=other.source, gated=other.gated)
    request = verify.reference_request(plan, result)
    key = verify.reference_key(plan, request, context.stack.versions)
    if request["picture"] is not None:
        request["picture"] = str(resources.files("doesitrun") / "tasks" / request["picture"])
    return reused(key, "reference", request, context, keep_token=plan.gated)


def judge(plan: Plan, result: Mapping[str, Any], context: Context) -> tuple[dict[str, Any], float, str]:
    """The judge's answer and seconds, and the judge's name for the row."""
    settings = context.settings.judge
    request = verify.judge_request(plan, result, settings.model, settings.revision)
    name = _judge_name(settings)
    key = verify.judge_key({**request, "model": name}, context.stack.versions)
    return *reused(key, "judge", request, context), name


def _judge_name(settings: JudgeSettings) -> str:
    """The judge and its revision; for a folder, the sha256 of its content stands for the revision."""
    found = hub.open_checkpoint(settings.model, settings.revision)
    if isinstance(found, Refusal):
        raise UsageError(f"{settings.model} cannot judge ({found.detail or found.reason.meaning}): set judge.model in doesitrun.toml.")
    return f"{found.model_id}@{found.revision}"
