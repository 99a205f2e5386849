"""Scripts of the stack, asked through files; their answers are kept in the workspace."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doesitrun import isolate
from doesitrun.campaign.context import Context, Progress
from doesitrun.files import reaching, write_whole
from doesitrun.isolate import Limits
from doesitrun.outcomes import Stage
from doesitrun.stacks import INSTACK

HOST_SHARE = 0.92
"""Of the host's memory, what runs may take together, and one without a limit of its own alone: nearly all, but never the host."""


def reused(key: str, name: str, request: Mapping[str, Any], context: Context, *, keep_token: bool = False) -> tuple[dict[str, Any], float]:
    """The answer of a script and its seconds; one that the workspace holds is taken from there, in no time."""
    path = context.workspace.root / "references" / f"{key}.json"
    answer, started = kept(path), time.monotonic()
    if answer is not None:
        return answer, 0.0
    answer = ask_stack(name, name, request, context, keep_token=keep_token)
    seconds = time.monotonic() - started
    keep(path, answer)
    return answer, seconds


def ask_stack(name: str, step: str, request: Mapping[str, Any], context: Context, *, keep_token: bool = False) -> dict[str, Any]:
    """The answer of a script of instack/, run in the stack. Raises StackError."""
    folder = context.workspace.root / "scripts" / f"{name}-{os.getpid()}-{secrets.token_hex(4)}"
    allowed = limits(context)
    # A script is one stage: it may take as long as a run may load and compute.
    allowed = dataclasses.replace(allowed, start_s=allowed.start_s if step == "plan" else allowed.load_s + allowed.run_s)

    def watch(_: Stage, elapsed_s: float) -> None:
        context.watch(Progress(step, elapsed_s))

    environment = isolate.child_environment(os.environ, {}, keep_token=keep_token)
    try:
        with reaching(folder):
            answer = isolate.run_script(
                INSTACK / f"{name}.py",
                context.stack.python,
                request,
                folder,
                limits=allowed,
                env=environment,
                watch=watch,
                start=context.seat.on_host,
            )
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)  # a script that failed leaves its log there
    return answer


def kept(path: Path) -> dict[str, Any] | None:
    """A kept answer; one that cannot be read is as good as none."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def keep(path: Path, answer: Mapping[str, Any]) -> None:
    with reaching(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(answer).encode())


def limits(context: Context) -> Limits:
    asked = context.settings.limits
    given = {name: value for name, value in dataclasses.asdict(asked).items() if value is not None and name != "memory_gb"}
    memory = asked.memory_gb * 1e9 if asked.memory_gb else context.stack.host_memory_bytes * HOST_SHARE
    return Limits(**given, memory_bytes=int(memory))
